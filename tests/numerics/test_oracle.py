"""Oracles against exact fractions, bounds against every variant's rows, and ggml's own dot products."""

from fractions import Fraction

import numpy as np
import pytest

from edge0verify.numerics import conform, formats, oracle
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.contracts import STAGES, VARIANTS, contract
from edge0verify.numerics.rounding import to_f32
from tests.numerics.scenes import iq4_nl_raw, scene
from tests.numerics.vectors import load
from tests.transcription import quantisers, stages


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_of_every_variant_lie_within_its_bound(stage, variant):
    s = scene(stage, variant)
    t, b = s.oracle
    assert conform.rows_conform(s.y, t, b).all()
    assert (s.y != t).any()
    assert np.abs(s.y - t).max() > 0
    largest = (np.abs(s.y - t) / b).max()
    assert 0.005 < largest < (1.0 if variant == "ref" else 0.6)


def exact(s, row, column):
    """t and S of one element by fractions, straight from the definition."""
    u, g = s.weights, s.contract.granularity
    t = size = Fraction(0)
    per = u.columns // u.d.shape[-1]
    for at in range(0, u.columns, g):
        dot = sum(int(u.q[column, i]) * (int(u.sc[column, i // 16]) if u.sc is not None else 1) * int(s.blocks.codes[row, i])
                  for i in range(at, at + g))
        term = dot * Fraction(float(u.d[column, at // per])) * Fraction(float(s.blocks.d[row, at // 32]))
        t += term
        size += abs(term)
    return t, size


CELLS = [("D", "mmvq"), ("U", "mmq"), ("A2", "w11"), ("A1", "mmvq"), ("A1", "mmq"), ("A1", "w11")]


@pytest.mark.parametrize(("stage", "variant"), CELLS)
def test_own_oracle_against_fractions(stage, variant):
    s = scene(stage, variant)
    t, size = oracle.own_oracle(s.contract, s.weights, s.blocks)
    for row, column in ((0, 0), (7, 63), (159, 31)):
        want_t, want_s = exact(s, row, column)
        assert abs(Fraction(float(t[row, column])) - want_t) <= want_s * Fraction(1, 1 << 48)
        assert abs(Fraction(float(size[row, column])) - want_s) <= want_s * Fraction(1, 1 << 48)


def test_a_cancelled_dot_still_has_terms_where_the_variant_rounds_inside_it():
    """Two 4-groups of a 32-block cancel: S of the 32-block is 0, S of A1 mmvq is not."""
    raw = np.zeros((1, 110), np.uint8)
    raw[0, 108:] = np.array([1.0], np.float16).view(np.uint8)
    codes = np.zeros((1, 256), np.int8)
    codes[0, :8] = [1] * 4 + [-1] * 4
    blocks = Blocks(codes, np.ones((1, 8), np.float16), None, "mmvq")
    sizes = {v: oracle.own_oracle(contract("A1", v), formats.unpack("Q3_K", raw), blocks)[1][0, 0] for v in VARIANTS}
    assert sizes == {"ref": 0, "mmvq": 2 * 16 * 32, "mmq": 0, "w11": 0}


@pytest.mark.parametrize("fmt", ["Q8_0", "Q4_0", "IQ4_NL"])
@pytest.mark.parametrize("case", ["normal-normal", "heavy-normal", "negamax-normal", "long", "rawbytes"])
def test_ggmls_dot_products(fmt, case):
    z = load("dots")
    w = formats.unpack(fmt, z[f"{fmt}__{case}__w"])
    a = z[f"{fmt}__{case}__a"].reshape(4, -1, 34)
    blocks = Blocks(np.ascontiguousarray(a[..., 2:]).view(np.int8).reshape(4, -1),
                    np.ascontiguousarray(a[..., :2]).view(np.float16)[..., 0], None, "ggml-ref")
    t, _ = oracle.own_oracle(contract("D", "w11"), w, blocks)
    size = np.abs(blocks.values()) @ np.abs(w.values()).T
    for part in ("generic", "generic_fma", "avx2"):
        error = np.abs(z[f"{fmt}__{case}__{part}"].T - t)
        assert (error <= 2.1e-7 * size).all(), part


def test_expert_oracle_takes_each_rows_expert():
    raw = np.stack([iq4_nl_raw(5, 64, seed) for seed in range(3)])
    w = formats.unpack("IQ4_NL", raw)
    h = quantisers.quantise("mmvq", np.random.default_rng(1).standard_normal((6, 64)).astype(np.float32))
    experts = np.array([2, 0, 1, 2, 0, 0])
    t, s = oracle.expert_oracle(contract("A2", "mmvq"), w, h, experts)
    assert np.abs(t - np.einsum("pk,pmk->pm", h.values(), w.values()[experts])).max() < 1e-12
    assert (s >= np.abs(t) * (1 - 1e-12)).all()
    with pytest.raises(ValueError, match="columns"):
        oracle.own_oracle(contract("A2", "mmvq"), w[0], h.take([0]).__class__(h.codes[:, :32], h.d[:, :1], None, "mmvq"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_expert_sum_stays_within_its_bound(variant):
    rng = np.random.default_rng(3)
    raw = np.stack([iq4_nl_raw(40, 64, seed) for seed in range(6)])
    h = quantisers.quantise(stages.OPERAND[variant], rng.standard_normal((200, 64)).astype(np.float32))
    ids = np.argsort(rng.random((50, 6)), axis=1)[:, :4].astype(np.int32)
    weights = rng.dirichlet(np.ones(4), 50).astype(np.float32)
    y, yl = stages.a2(variant, raw, h, ids, weights)
    c = contract("A2", variant)
    t, s = oracle.expert_oracle(c, formats.unpack("IQ4_NL", raw), h, ids.ravel())
    assert conform.rows_conform(y, t, oracle.bound(c.roundings(nb=2), s)).all()
    t, s = oracle.expert_sum(t, s, weights)
    b = oracle.bound(c.roundings(nb=2, k=4), s)
    assert conform.rows_conform(yl, t, b).all()
    wrong = stages.expert_sum(variant, y, ids, weights[:, ::-1])
    assert not conform.rows_conform(wrong, t, b).all()


def test_exp64_needs_no_library():
    x = np.concatenate([np.linspace(-744, 709, 200001), [0.0, -0.0, 1.0]])
    want = np.exp(x)
    normal = want > 1e-300
    assert (np.abs(oracle.exp64(x) / np.where(normal, want, 1) - 1)[normal] < 5e-16).all()
    assert oracle.exp64(np.array([0.0, -np.inf, np.inf, 710.0, -800.0])).tolist() == [1, 0, np.inf, np.inf, 0]
    assert np.isnan(oracle.exp64(np.array([np.nan])))[0]


@pytest.mark.parametrize("variant", ["mmvq", "mmq", "w11"])
def test_swiglu_stays_within_its_bound(variant):
    s = scene("A1", variant)
    t, b = s.oracle
    gate, up = s.y[:, :32] * np.float32(3), s.y[:, 32:]
    tg, tp, bg, bp = t[:, :32] * 3, t[:, 32:], b[:, :32] * 3 + np.abs(t[:, :32]) * 3 * 2.0**-24, b[:, 32:]
    h = stages.swiglu(gate, up, lambda v: to_f32(np.exp(v.astype(np.float64))))
    want, bound = oracle.h_bound(tg, tp, bg, bp)
    assert conform.rows_conform(h, want, bound).all()
    assert not conform.rows_conform(h * np.float32(1 + 2.0**-12), want, bound).all()
