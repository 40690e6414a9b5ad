"""`prove` as a person and a program read it, and that a claim that comes out otherwise is not passed over."""

import json
import time
from dataclasses import replace

import pytest

from edge0verify.cli.main import run
from edge0verify.numerics import claims
from edge0verify.report.claims import claims_text


def test_the_command_shows_every_claim_and_is_quick(capsys):
    start = time.perf_counter()
    assert run(["prove"]) == 0
    assert time.perf_counter() - start < 2
    text = capsys.readouterr().out
    assert "2^-17 <= |a| <= 65280" in text and "code 0, sc 0: 128" in text and "7 true, 3 false, each as stated" in text
    assert max(map(len, text.splitlines())) <= 132


def test_json_holds_the_same(capsys):
    assert run(["prove", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["name"] for r in rows if not r["holds"]] == ["q3k-int8-textbook", "e4m3-plain-shift", "bf16-f16"]
    assert all(r["holds"] == r["stated"] for r in rows)


@pytest.mark.parametrize("at", [0, 1])
def test_a_claim_that_comes_out_otherwise_fails_the_command(at, monkeypatch, capsys):
    """Either way round: a true one found false, and one that is said to be false found true."""
    other = list(claims.prove())
    other[at] = replace(other[at], holds=not other[at].holds)
    monkeypatch.setattr(claims, "prove", lambda: tuple(other))
    assert run(["prove"]) == 1
    text = capsys.readouterr().out
    assert f"NOT as stated: {other[at].name}" in text


def test_lines_name_the_stated_truth():
    wrong = replace(claims.q3_k_int8_sum_is_exact(), holds=False)
    assert "said" in claims_text([wrong]) and "FALSE" in claims_text([wrong])
