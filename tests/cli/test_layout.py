"""`edge0verify layout`: the error of decoded weights beside the format's own, the mistake that fits, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edge0verify.cli.main import run
from edge0verify.model import DEFAULT_MODEL, load_model
from edge0verify.numerics import formats


@pytest.fixture
def files(tmp_path, monkeypatch):
    """w.npy and what Q4_0 makes of it, q.npy, in the working directory."""
    monkeypatch.chdir(tmp_path)
    w = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    np.save("w.npy", w)
    np.save("q.npy", formats.decode("Q4_0", formats.encode("Q4_0", w)))
    return w


def answer(capsys, *words):
    code = run(["layout", *words, "--json", "-"])
    return code, json.loads(capsys.readouterr().out)


def test_the_formats_own_loss_passes(files, capsys):
    code, found = answer(capsys, "q.npy", "w.npy", "--format", "Q4_0")
    assert (code, found["status"], found["hypothesis"]) == (0, "PASS", None)
    assert found["rel_l2"] == pytest.approx(found["expected"])


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda q: -q, "every sign is inverted"),
        (lambda q: q.reshape(64, -1, 2, 16)[:, :, ::-1].reshape(64, 256), "low and high nibbles are exchanged"),
        (lambda q: q * 12, "times too large, as by a tensor scale left out"),
    ],
)
def test_a_mistake_is_named_beside_it(files, capsys, change, said):
    np.save("bad.npy", change(np.load("q.npy")))
    code, found = answer(capsys, "bad.npy", "w.npy", "--format", "Q4_0")
    assert code == 1 and said in found["hypothesis"] and found["left"] < 1.5 * found["expected"] < found["rel_l2"]
    assert run(["layout", "bad.npy", "w.npy", "--format", "Q4_0"]) == 1
    out = capsys.readouterr().out
    assert "where the format's own loss is 0.086" in out and said in out and "verdict: FAIL" in out


def test_other_weights_fit_no_mistake(files, capsys):
    np.save("other.npy", np.random.default_rng(1).standard_normal((64, 256)).astype(np.float32))
    code, found = answer(capsys, "other.npy", "w.npy", "--format", "Q4_0")
    assert code == 1 and found["hypothesis"] is None and "no layout fault fits" in found["reasons"][0]


def test_without_a_format_nothing_is_proven_but_what_is_named(files, capsys):
    assert answer(capsys, "q.npy", "w.npy")[0] == 3
    assert answer(capsys, "w.npy", "w.npy")[0] == 0
    np.save("bad.npy", -np.load("w.npy"))
    assert answer(capsys, "bad.npy", "w.npy")[0] == 1


def test_a_tensor_of_a_gguf_file_brings_format_and_bytes(files, capsys):
    name = "blk.2.ffn_down_exps.weight"
    values = load_model().tensor(name).values()
    np.savez("original.npz", w=values, other=np.zeros((2, 2)))
    code, found = answer(capsys, f"{DEFAULT_MODEL}:{name}", "original.npz:w")
    assert (code, found["format"], found["rel_l2"]) == (0, "IQ4_NL", 0.0)
    data = bytearray(DEFAULT_MODEL.read_bytes())
    from tests.study.copies import ENTRIES

    entry = ENTRIES[name]
    blocks = np.frombuffer(data, np.uint8, entry.nbytes, entry.offset).reshape(-1, 18).copy()
    blocks[:, 2:] = blocks[:, 2:] // 16 + blocks[:, 2:] % 16 * 16
    data[entry.offset : entry.offset + entry.nbytes] = blocks.tobytes()
    Path("bad.gguf").write_bytes(data)
    code, found = answer(capsys, f"bad.gguf:{name}", "original.npz:w")
    assert code == 1 and "nibbles are exchanged" in found["hypothesis"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["none.npy", "w.npy"], "none.npy: expected a file"),
        (["q.npy:x", "w.npy"], "expected a tensor x"),
        (["q.npy", "w.npy", "--format", "Q9"], "--format Q9: expected one of"),
        (["q.npy", "short.npy", "--format", "Q4_0"], "expected the reference's shape [3, 256], found [64, 256]"),
        (["ints.npy", "w.npy"], "expected floats [rows, K], found int64"),
        ([f"{DEFAULT_MODEL}", "w.npy"], "expected FILE:TENSOR, a tensor of the file"),
        ([f"{DEFAULT_MODEL}:nosuch", "w.npy"], "found nosuch"),
    ],
)
def test_input_errors_are_one_line(files, capsys, words, said):
    np.save("short.npy", files[:3])
    np.save("ints.npy", np.arange(12).reshape(3, 4))
    assert run(["layout", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1
