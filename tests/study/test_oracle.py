"""The compiled oracle against exact fractions, against numpy, and against faults planted in its operands."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from edge0verify.model import DEFAULT_Q4_PROJECTION, load_model
from edge0verify.numerics import formats
from edge0verify.numerics import oracle as plain
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.contracts import contract
from edge0verify.numerics.quantise import quantise
from edge0verify.study import _oracle, oracle

FORMATS = ("Q8_0", "Q4_0", "IQ4_NL", "Q3_K")
ISAS = _oracle.isas()


@dataclass(frozen=True, eq=False)
class Weights:
    """A weight tensor of random bytes: every code, scales of both signs."""

    fmt: str
    shape: tuple[int, ...]
    raw: np.ndarray

    def values(self):
        return formats.decode(self.fmt, self.raw)


def weights(rng, fmt, *shape):
    f = formats.FORMATS[fmt]
    blocks = shape[-1] // f.values
    raw = rng.integers(0, 256, (*shape[:-1], blocks, f.bytes)).astype(np.uint8)
    d = (rng.standard_normal((*shape[:-1], blocks)) * 0.02).astype(np.float16)
    at = 108 if fmt == "Q3_K" else 0
    raw[..., at : at + 2] = d.view(np.uint8).reshape(*d.shape, 2)
    return Weights(fmt, shape, raw.reshape(*shape[:-1], -1))


def operands(rng, name, n, columns):
    q = quantise(name, (rng.standard_normal((n, columns)) * rng.choice([1e-3, 1, 40], (n, 1))).astype(np.float32))
    codes = q.codes.copy()
    codes[:: 3, ::5] = -128          # a quantiser never writes it; the oracle is defined on it all the same
    return Blocks(codes, q.d, q.s, q.quantiser)


def exact(fmt, raw, codes, da, granularity):
    """(t, s) of one row of weights and one of codes as fractions, straight from the definition."""
    u = formats.unpack(fmt, raw)
    t = s = Fraction(0)
    per = u.columns // u.d.size
    for at in range(0, u.columns, granularity):
        inside = range(at, at + granularity)
        dot = sum(int(u.q[k]) * int(codes[k]) * (1 if u.sc is None else int(u.sc[k // 16])) for k in inside)
        term = dot * Fraction(float(u.d[at // per])) * Fraction(float(da[at // 32]))
        t, s = t + term, s + abs(term)
    return t, s


def rows(w, blocks, granularity, experts=None, isa="", threads=1):
    u = formats.unpack(w.fmt, w.raw)
    packed = _oracle.Weights(u.q, u.d, u.sc, isa=isa, threads=threads)
    t, s = (np.full((blocks.rows, w.shape[-2]), np.nan) for _ in range(2))
    _oracle.rows(packed, blocks.codes, blocks.dot_scale(), granularity, experts, t, s, threads)
    return t, s


@pytest.mark.parametrize("granularity", [4, 16, 32])
@pytest.mark.parametrize("fmt", FORMATS)
def test_equals_exact_fractions(fmt, granularity):
    rng = np.random.default_rng(1)
    w, x = weights(rng, fmt, 3, 768), operands(rng, "mmvq", 5, 768)
    t, s = rows(w, x, granularity)
    for i in range(5):
        for m in range(3):
            want_t, want_s = exact(fmt, w.raw[m], x.codes[i], x.dot_scale()[i], granularity)
            assert abs(Fraction(t[i, m]) - want_t) <= want_s * Fraction(1, 1 << 47)
            assert abs(Fraction(s[i, m]) - want_s) <= want_s * Fraction(1, 1 << 47)


def test_cancelling_dots_still_have_magnitude():
    """A 32-block whose dot is 0: its terms count at finer granularity, which is why the contract declares one."""
    q = np.ones((1, 32), np.int8)
    codes = np.repeat(np.array([[3, -3]], np.int8), 16, axis=1)
    found = []
    for granularity in (4, 16, 32):
        t, s = np.empty((1, 1)), np.empty((1, 1))
        packed = _oracle.Weights(q, np.full((1, 1), -2, np.float32))
        _oracle.rows(packed, codes, np.ones((1, 1), np.float32), granularity, None, t, s)
        assert t[0, 0] == 0
        found.append(s[0, 0])
    assert found == [192, 192, 0]


SHAPES = [(1, 32), (3, 33 * 32), (16, 256), (17, 768), (35, 96)]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_same_bits_on_every_instruction_set_and_thread_count(isa, fmt):
    rng = np.random.default_rng(2)
    for m, k in SHAPES:
        k = k if fmt != "Q3_K" else -(-k // 256) * 256
        w, x = weights(rng, fmt, m, k), operands(rng, "mmq", 67, k)
        for granularity in (4, 16, 32):
            want = rows(w, x, granularity, isa="baseline")
            for threads in (1, 2):
                got = rows(w, x, granularity, isa=isa, threads=threads)
                assert all(np.array_equal(a.view(np.uint64), b.view(np.uint64)) for a, b in zip(want, got))
            for at in (0, 5, 66):       # alone, or among others
                alone = rows(w, x.take(slice(at, at + 1)), granularity, isa=isa)
                assert all(np.array_equal(a[at : at + 1], b) for a, b in zip(want, alone))


@pytest.mark.parametrize("variant", ["ref", "mmvq", "mmq", "w11"])
@pytest.mark.parametrize("stage,fmt,m,k", [
    ("D", "Q8_0", 35, 33 * 32), ("D", "Q4_0", 7, 96), ("A1", "Q3_K", 17, 768), ("A1", "Q3_K", 33, 256),
    ("A2", "IQ4_NL", 31, 33 * 32), ("U", "Q8_0", 16, 32),
])
def test_agrees_with_numerics(stage, fmt, m, k, variant):
    rng = np.random.default_rng(3)
    c = contract(stage, variant)
    w, x = weights(rng, fmt, m, k), operands(rng, c.operand, 21, k)
    got = oracle.own_oracle(c, w, x, threads=2)
    t, s = plain.own_oracle(c, formats.unpack(fmt, w.raw), x)
    assert np.all(np.abs(got.t - t) <= 1e-13 * s) and np.allclose(got.s, s, rtol=1e-13, atol=0)
    n = c.roundings(nb=k // 32, super_blocks=-(-k // 256), k=0)
    assert np.allclose(got.bound, plain.bound(n, s), rtol=1e-13, atol=0)


def test_each_row_meets_its_own_expert():
    rng = np.random.default_rng(4)
    w, x = weights(rng, "Q3_K", 5, 19, 512), operands(rng, "mmvq", 301, 512)
    ids = rng.integers(0, 4, 301).astype(np.int32)      # expert 4 gets none
    for threads in (1, 2):
        t, s = rows(w, x, 4, experts=ids, threads=threads)
        for e in range(4):
            one = Weights(w.fmt, (19, 512), w.raw[e])
            want_t, want_s = rows(one, x.take(np.flatnonzero(ids == e)), 4)
            assert np.array_equal(t[ids == e], want_t) and np.array_equal(s[ids == e], want_s)
    assert not np.isnan(t).any()


def test_nonfinite_scales_show():
    rng = np.random.default_rng(5)
    w, x = weights(rng, "Q8_0", 4, 64), operands(rng, "mmvq", 6, 64)
    d = x.d.copy()
    d[2, 1] = np.nan
    t, s = rows(w, Blocks(x.codes, d, x.s, x.quantiser), 32)
    assert np.isnan(t[2]).all() and np.isnan(s[2]).all()
    assert np.isfinite(np.delete(t, 2, axis=0)).all()


@pytest.mark.parametrize("fault", ["scale of the next block", "one code", "one super block's sub-scale", "another expert"])
def test_planted_faults_leave_the_bound(fault):
    """Negative control: operands changed in one place move t out of the bound there, and nowhere else."""
    rng = np.random.default_rng(6)
    c = contract("A1", "mmvq")
    w, x = weights(rng, "Q3_K", 3, 24, 768), operands(rng, "mmvq", 40, 768)
    ids = rng.integers(0, 3, 40).astype(np.int32)
    good = oracle.own_oracle(c, w, x, experts=ids, threads=1)
    codes, d, raw, other = x.codes.copy(), x.d.copy(), w.raw.copy(), ids.copy()
    touched = np.zeros(good.t.shape, bool)
    if fault == "scale of the next block":
        d[7, 3] = d[7, 4]
        touched[7] = True
    elif fault == "one code":
        codes[7, 100] += 1
        touched[7] = True
    elif fault == "another expert":
        other[7] = (ids[7] + 1) % 3
        touched[7] = True
    else:
        raw[1, 5, 110 + 96] ^= 4
        touched[np.ix_(ids == 1, [5])] = True
    bad = oracle.own_oracle(c, Weights(w.fmt, w.shape, raw), Blocks(codes, d, x.s, x.quantiser), experts=other, threads=1)
    outside = np.abs(bad.t - good.t) > good.bound
    assert outside[touched].mean() > 0.8 and not outside[~touched].any()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_rows(isa, dtype):
    rng = np.random.default_rng(7)
    w = rng.standard_normal((3, 37, 53)).astype(np.float32)
    x = rng.standard_normal((29, 53)).astype(dtype)
    ids = rng.integers(0, 3, 29).astype(np.int32)
    want = np.zeros((29, 37))
    for k in range(53):
        want += w[ids, :, k].astype(np.float64) * x[:, k, None].astype(np.float64)
    for threads in (1, 2):
        got = np.full_like(want, np.nan)
        _oracle.float_rows(_oracle.FloatWeights(w, isa=isa), x, ids, got, threads)
        assert np.array_equal(got, want)


def test_swiglu_and_its_bound():
    rng = np.random.default_rng(8)
    g, p = rng.standard_normal((2, 50, 64)) * 6
    g[0, :4] = [0, -800, 800, -0.0]
    bg, bp = np.abs(rng.standard_normal((2, 50, 64))) * 1e-3
    t, bound = oracle.swiglu(g, bg, p, bp, threads=2)
    with np.errstate(over="ignore"):
        silu = g / (1 + np.exp(-g))
    assert np.allclose(t, silu * p, rtol=1e-14, atol=0) and np.array_equal(t, oracle.swiglu_value(g, p))
    want = 1.1 * bg * np.abs(p) + np.abs(silu) * bp + 1.1 * bg * bp + 6 * 2.0**-24 * np.abs(silu * p)
    assert np.allclose(bound, want, rtol=1e-13, atol=0)
    for sg in (-1, 1):                  # what the bound is for: both factors at the end of their own
        for sp in (-1, 1):
            moved = oracle.swiglu_value(g + sg * bg, p + sp * bp)
            assert np.all(np.abs(moved - t) <= bound)
    assert np.any(np.abs(oracle.swiglu_value(g + 3 * bg, p + 3 * bp) - t) > bound)


def test_expert_sum():
    rng = np.random.default_rng(9)
    c, w = contract("A2", "w11"), weights(rng, "IQ4_NL", 4, 24, 128)
    t = rng.standard_normal((60, 24))
    s = np.abs(t) + rng.random((60, 24))
    route = rng.random((15, 4)).astype(np.float32)
    got, bound = oracle.expert_sum(c, w, t, s, route, threads=2)
    assert np.allclose(got, np.einsum("nk,nkm->nm", route.astype(float), t.reshape(15, 4, 24)), rtol=1e-13, atol=1e-14)
    magnitude = np.einsum("nk,nkm->nm", route.astype(float), s.reshape(15, 4, 24))
    unit = (128 // 32 + 1 + 4) * 2.0**-24
    assert np.allclose(bound, unit / (1 - unit) * magnitude, rtol=1e-9, atol=0)


def test_the_models_own_weights():
    model, rng = load_model(projection=DEFAULT_Q4_PROJECTION), np.random.default_rng(10)
    used = [("D", model.tensor("latent_down.weight")), ("A1", model.layer(2, "ffn_up_exps")),
            ("A2", model.layer("mtp", "ffn_down_exps"))]
    for stage, tensor in used:
        x = rng.standard_normal((9, tensor.shape[-1])).astype(np.float32)
        ids = rng.integers(0, 16, 9).astype(np.int32) if len(tensor.shape) == 3 else None
        c = contract(stage, "mmvq")
        got = oracle.own_oracle(c, tensor, quantise(c.operand, x), experts=ids)
        truth = oracle.float_rows(tensor, x, experts=ids)
        assert np.abs(got.t - truth).max() < 0.02 * np.abs(truth).max()


def test_what_does_not_fit_is_refused():
    rng = np.random.default_rng(11)
    c, w = contract("D", "mmvq"), weights(rng, "Q8_0", 4, 64)
    with pytest.raises(ValueError, match=r"codes: expected \[3, 64\], found \[3, 96\]"):
        oracle.own_sums(c, w, operands(rng, "mmvq", 3, 96))
    with pytest.raises(ValueError, match=r"experts: row 1: expected 0\.\.0, found 1"):
        oracle.own_sums(c, w, operands(rng, "mmvq", 3, 64), experts=np.array([0, 1, 0]))
    with pytest.raises(ValueError, match="expected the expert of each row"):
        oracle.own_sums(c, weights(rng, "Q8_0", 2, 4, 64), operands(rng, "mmvq", 3, 64))
    with pytest.raises(ValueError, match="granularity"):
        rows(w, operands(rng, "mmvq", 3, 64), 8)
    with pytest.raises(ValueError, match="instruction set sse9"):
        rows(w, operands(rng, "mmvq", 3, 64), 32, isa="sse9")
    with pytest.raises(ValueError, match="BF16"):
        oracle.own_sums(c, load_model().tensor("tok_embd.weight"), operands(rng, "mmvq", 3, 384))


class TestBlockTerms:
    @pytest.mark.parametrize("fmt", FORMATS)
    def test_terms_add_up_to_the_oracle(self, fmt):
        rng = np.random.default_rng(5)
        w, x = weights(rng, fmt, 7, 512), operands(rng, "mmvq", 6, 512)
        rows = np.array([4, 1])
        terms = oracle.block_terms(w, x)(rows)
        t, s = oracle.own_sums(contract("D", "ref"), w, x, threads=1)
        assert terms.shape == (16, 2, 7)
        finer = oracle.block_terms(w, x)(rows, 4)
        assert finer.shape == (128, 2, 7) and np.allclose(finer.reshape(16, 8, 2, 7).sum(axis=1), terms, rtol=1e-12)
        # decoded Q3_K values are rounded twice on the way, which the own oracle is not
        assert (np.abs(terms.sum(axis=0) - t[rows]) <= 2**-22 * s[rows] + 1e-30).all()

    def test_each_row_takes_its_own_expert(self):
        rng = np.random.default_rng(6)
        w, x, experts = weights(rng, "IQ4_NL", 3, 5, 64), operands(rng, "mmvq", 4, 64), np.array([2, 0, 2, 1])
        t, s = oracle.own_sums(contract("A2", "ref"), w, x, experts=experts, threads=1)
        terms = oracle.block_terms(w, x, experts=experts)(np.arange(4))
        assert (np.abs(terms.sum(axis=0) - t) <= 2**-40 * s).all()
        swapped = oracle.block_terms(w, x, experts=experts[::-1])(np.arange(4))
        assert (np.abs(swapped.sum(axis=0) - t) > 2**-40 * s).any()
