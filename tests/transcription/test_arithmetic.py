"""The transcription's own arithmetic against exact fractions, and its parts against ggml's bytes."""

from fractions import Fraction

import numpy as np
import pytest

from edge0verify.numerics import formats, quantise
from tests.numerics.vectors import KINDS, load
from tests.transcription import arithmetic, quantisers, rows, stages, weights


def nearest_f32(exact: Fraction) -> np.float32:
    """float32 nearest to a fraction, ties to even, by search among the neighbours of a first guess."""
    guess = np.float32(float(exact))
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    near = [v for v in near if np.isfinite(v)]
    return min(near, key=lambda v: (abs(Fraction(float(v)) - exact), int(np.array(v).view(np.uint32)) & 1))


def test_fma_is_one_rounding():
    rng = np.random.default_rng(1)
    a = rng.standard_normal(3000).astype(np.float32)
    b = rng.standard_normal(3000).astype(np.float32)
    c = (-(a.astype(np.float64) * b) * (1 + rng.standard_normal(3000) * 2.0 ** rng.integers(-30, 5, 3000))).astype(np.float32)
    a[:4], b[:4], c[:4] = 1 + 2.0**-23, 1 + 2.0**-23, [2.0**-70, -(2.0**-70), -1.0, 2.0**24]
    a[4:6], b[4:6], c[4:6] = 2.0**-75, 1.5 * 2.0**-74, [2.0**-149, -(2.0**-149)]
    got = arithmetic.fma(a, b, c)
    want = [nearest_f32(Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r))) for p, q, r in zip(a, b, c, strict=True)]
    assert (got == np.array(want)).all()
    twice = (a * b + c != got).sum()
    assert twice > 100, "inputs on which two roundings would pass prove nothing"


@pytest.mark.parametrize("name", quantise.QUANTISERS)
def test_quantisers_agree_with_the_package(name):
    x = [load("inputs")[f"x__{kind}"] for kind in KINDS]
    edge = np.zeros((8, 512), np.float32)
    edge[0, :32] = 1e-45
    edge[1, 3] = np.nan
    edge[2, 40] = -np.inf
    edge[3] = 3e38
    edge[4] = 2100
    edge[5] = 2.0**-127
    edge[6] = np.linspace(-1e-43, 1e-43, 512)
    edge[7, ::3] = -0.0
    for part in [*x, edge]:
        assert quantisers.quantise(name, part).same_bits(quantise.quantise(name, part))


@pytest.mark.parametrize("fmt", ["Q8_0", "Q4_0", "IQ4_NL", "Q3_K"])
def test_weights_agree_with_the_package(fmt):
    raw = load(fmt.lower())["raw"]
    u = formats.unpack(fmt, raw)
    if fmt == "Q3_K":
        code, sc, d = weights.q3_k(raw)
        assert (code[:, 0] - 4 == u.q).all() and (sc[:, 0] - 32 == u.sc).all() and (d == u.d).all()
    else:
        q, d = weights.plain(raw, fmt)
        assert (q[:, 0] == u.q).all() and (d == u.d).all()


def test_variants_differ_but_agree_to_rounding():
    """Every cell lands within 1e-5 of float64 on the same operands, and no two orders are the same function."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((5, 33 * 32)).astype(np.float32)
    raw = formats.encode("Q8_0", rng.standard_normal((7, 33 * 32)).astype(np.float32))
    out = {}
    for variant in rows.PLAIN:
        operand, out[variant] = stages.d_rows(variant, raw, "Q8_0", x)
        exact = operand.values() @ formats.unpack("Q8_0", raw).values().T
        assert np.abs(out[variant] - exact).max() < 1e-4
    assert len({v.tobytes() for v in out.values()}) == 4

    q3 = load("q3_k")["ref__normal"].reshape(12, -1)
    xl = rng.standard_normal((3, 512)).astype(np.float32)
    out = {}
    for variant in rows.Q3_K:
        operand = quantisers.quantise(stages.OPERAND[variant], xl)
        out[variant] = rows.q3_k_rows(variant, q3, operand)
        exact = operand.values() @ formats.unpack("Q3_K", q3).values().T
        assert np.abs(out[variant] - exact).max() < 1e-4
    assert len({v.tobytes() for v in out.values()}) == 4


def test_expert_sum_orders():
    ids = np.array([[3, 1, 2]], np.int32)
    weights_ = np.array([[1.0, 1.0, 1.0]], np.float32)
    y = np.array([[1.0], [2.0**-24], [2.0**-24]], np.float32)
    assert stages.expert_sum("mmvq", y, ids, weights_)[0, 0] == 1.0
    assert stages.expert_sum("mmq", y, ids, weights_)[0, 0] == np.float32(1 + 2.0**-23)
    assert stages.expert_sum("ref", y, ids, weights_)[0, 0] == np.float32(1 + 2.0**-23)


def test_a_stage_runs_end_to_end():
    rng = np.random.default_rng(3)
    xl = rng.standard_normal((3, 256)).astype(np.float32)
    q3 = load("q3_k")["ref__normal"].reshape(-1, 110)[:64 * 3 // 8]
    raw = np.tile(q3, (8, 1))[:3 * 64].reshape(3, 64, 110)
    ids = np.array([[2, 0], [1, 2], [0, 1]], np.int32)
    down = formats.encode("Q4_0", rng.standard_normal((3, 40, 64)).astype(np.float32))
    for variant in ("ref", "mmvq"):
        gate, _up, h = stages.a1(variant, raw, raw[:, ::-1], xl, quantisers.quantise("mmvq", xl), ids, np.exp)
        y, yl = stages.a2(variant, down, h, ids, np.full((3, 2), 0.5, np.float32), fmt="Q4_0")
        assert gate.shape == (6, 64) and h.codes.shape == (6, 64) and y.shape == (6, 40) and yl.shape == (3, 40)
        assert np.isfinite(yl).all()
    with pytest.raises(ValueError, match="no w11"):
        stages.a2("w11", down, h, ids, np.full((3, 2), 0.5, np.float32), fmt="Q4_0")
