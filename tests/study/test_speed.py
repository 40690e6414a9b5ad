"""Speed measurements: what they count, what they say is missing, and that an absent device gives a reason and no number."""

import json
import sys

import numpy as np
import pytest

from edge0verify.cli.main import run as main
from edge0verify.numerics.formats import FORMATS
from edge0verify.report.speed_text import speed_text
from edge0verify.runtime.detect import Absent
from edge0verify.study import speed_device, speed_host
from edge0verify.study.speed import random_weights
from edge0verify.study.speed_prefill import Timed, prefill_shares
from edge0verify.variants.kernels import Kernels

SMALL = {"m": 64, "k": 256, "counts": (1, 64), "formats": ("Q3_K",), "repeats": 2, "prefill": False}


@pytest.fixture(scope="module")
def simulated():
    return speed_device.measure("sim:0", **SMALL)


def test_a_device_has_every_variant_at_every_shape(simulated):
    assert [(r.part, r.variant, r.n, r.note) for r in simulated.rows] == [
        ("tile", "w11", 64, ""),
        ("tile", "mmq", 64, ""),
        ("row", "mmvq", 1, ""),
        ("row", "mmvq", 1, "with quantisation"),
        ("row", "ref", 1, ""),
    ]
    for row in simulated.rows:
        assert row.us > 0 and row.spread >= 0
        assert row.tops == pytest.approx(2 * row.m * row.n * row.k / row.us / 1e6)
    assert simulated.rows[2].weights_tbs == pytest.approx(64 * 110 / simulated.rows[2].us / 1e6)


def test_what_is_missing_is_said(simulated):
    assert simulated.int8_tops is None and all(r.of_int8 is None and r.of_bare is None for r in simulated.rows)
    said = " ".join(simulated.not_measured)
    assert "int8 ceiling" in said and "reading kernel" in said
    assert all(f"not measured: {text}" in speed_text(simulated) for text in simulated.not_measured)


def test_a_given_ceiling_is_the_measure():
    found = speed_device.measure("sim:0", **{**SMALL, "counts": (64,)}, int8_tops=0.5)
    assert all(r.of_int8 == pytest.approx(r.tops / 0.5) for r in found.rows)


def test_a_runtime_that_captures_no_graph_is_not_measured():
    with pytest.raises(Absent, match="no graph capture"):
        speed_device.measure("cpu:0", **SMALL)


def test_random_weights_are_finite_in_every_format():
    for fmt in speed_device.FORMATS:
        raw = random_weights(np.random.default_rng(1), fmt, 3, 512)
        assert raw.shape == (3, 512 // FORMATS[fmt].values * FORMATS[fmt].bytes)
        from edge0verify.numerics.formats import decode

        assert np.isfinite(decode(fmt, raw)).all()


def test_the_processor_without_ggml(monkeypatch):
    monkeypatch.setitem(sys.modules, "libggml", None)
    found = speed_host.measure(tokens=4, repeats=2, prefill=False)
    assert "libggml-python" in found.not_measured[0] and all(r.ggml is None for r in found.rows)
    assert {(r.part, r.variant) for r in found.rows} >= {("D", "w11"), ("A1", "mmq"), ("A2", "ref"), ("U", "mmvq")}
    assert json.loads(found.dumps())["schema"] == "edge0verify.speed/1"


def test_the_processor_beside_ggml():
    pytest.importorskip("libggml", reason="not run: libggml-python is not installed")
    found = speed_host.measure(tokens=4, repeats=2, prefill=False)
    assert found.not_measured == () and all(r.ggml > 0 for r in found.rows)


def test_shares_of_a_prefill_add_up():
    found = prefill_shares(Kernels(threads=1), tokens=40, threads=1)
    assert found["tokens"] == 40
    assert sum(s["share"] for s in found["shares"]) == pytest.approx(1)
    assert all(s["seconds"] > 0 for s in found["shares"])


def test_timed_kernels_are_the_kernels():
    kernels = Kernels(threads=1)
    timed = Timed(kernels)
    assert timed.native is kernels.native and timed.isa == kernels.isa


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--device", "hip:9"], 3),
        (["--device", "sim:0", "--isa", "phase"], 2),
        (["--device", "sim:0", "--shape", "64"], 2),
        (["--device", "sim:0", "--shape", "64,100"], 2),
        (["--device", "sim:0", "--rows", "0"], 2),
        (["--isa", "none"], 2),
        (["--device", "nowhere"], 2),
    ],
)
def test_exit_codes(arguments, code, capsys):
    assert main(["bench", "kernels", *arguments]) == code
    said = capsys.readouterr()
    assert (said.out if code == 3 else said.err).strip()


def test_an_absent_device_gives_the_reason_in_json(capsys):
    assert main(["bench", "kernels", "--device", "hip:9", "--json", "-"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["reason"].startswith("hip:9") and found["rows"] == []
