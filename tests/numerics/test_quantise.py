"""The four quantisers: ggml's bytes, every edge, and quantisers that are nearly right and must fail."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge0verify.numerics import formats, rounding
from edge0verify.numerics.blocks import Blocks, same_floats
from edge0verify.numerics.quantise import QUANTISERS, butterfly_sum, quantise
from tests.numerics.vectors import KINDS, load

f32 = np.float32


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("fmt", "tag", "name"), [("Q8_0", "ref", "ggml-ref"), ("Q8_1", "ref", "ggml-ref"),
                                                  ("Q8_0", "simd", "ggml-x86"), ("Q8_1", "simd", "ggml-x86")])
def test_ggmls_bytes(kind, fmt, tag, name):
    z = load(fmt.lower())
    want, ok = z[f"{tag}__{kind}"], z[f"ok__{kind}"]
    got = formats.pack_q8(quantise(name, load("inputs")[f"x__{kind}"]), fmt).reshape(want.shape)
    assert (got[ok] == want[ok]).all()


def nearly(x, *, round_=rounding.rha, reciprocal=True, scale=None):
    """A quantiser with one part exchanged, codes only."""
    g = x.reshape(x.shape[0], -1, 32)
    with np.errstate(all="ignore"):
        d = np.abs(g).max(axis=-1, keepdims=True) / f32(127)
        inverse = np.where(d > 0, f32(1) / d, f32(0)) if scale is None else scale(d)
        q = g * inverse if reciprocal else np.where(d > 0, g / d, f32(0))
        return np.clip(np.nan_to_num(round_(q)), -127, 127).astype(np.int8)


def missed(codes):
    """How many defined blocks of the vectors the codes (a function of x) get wrong."""
    z = load("q8_0")
    wrong = 0
    for kind in KINDS:
        want = z[f"ref__{kind}"][..., 2:].view(np.int8)
        wrong += int((codes(load("inputs")[f"x__{kind}"]).reshape(want.shape) != want)[z[f"ok__{kind}"]].any(axis=-1).sum())
    return wrong


def test_negative_controls_fail_the_vectors():
    assert missed(nearly) == 0
    assert missed(lambda x: nearly(x, round_=np.rint)) > 0, "half to even"
    assert missed(lambda x: nearly(x, round_=np.trunc)) > 0, "truncation"
    assert missed(lambda x: nearly(x, round_=lambda q: np.floor(q + f32(0.5)))) > 0, "half up"
    assert missed(lambda x: nearly(x, scale=lambda d: f32(128) / (d * f32(127)))) > 0, "a scale of 128"


def borders(count=200000):
    """bf16-rounded normals, whose codes often sit on a border."""
    x = np.random.default_rng(5).standard_normal((count // 32, 32)).astype(f32)
    return rounding.bf16_decode(rounding.bf16_encode(x))


def test_division_and_reciprocal_are_told_apart():
    x = borders()
    by_division = quantise("mmvq", x).codes
    assert (by_division == nearly(x, reciprocal=False).reshape(x.shape)).all()
    share = (by_division != quantise("mmq", x).codes).mean()
    assert 0.0003 < share < 0.002
    assert (by_division != nearly(x).reshape(x.shape)).any(), "x*(1/d) in place of x/d must show"
    steps = np.abs(quantise("mmq", x).d / quantise("mmvq", x).dot_scale() - 1).max()
    assert 2.0**-13 < steps <= 2.0**-11


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-(2.0**60), 2.0**60, width=32), min_size=32, max_size=32))
def test_mmvq_against_fractions(values):
    """d and the quotient by exact arithmetic and one rounding each; the code is the nearest integer to that quotient."""
    x = np.array([values], f32)
    got = quantise("mmvq", x)
    d = np.abs(x).max() / f32(127)
    assert got.d[0, 0] == rounding.to_f16(d) or (np.isinf(got.d[0, 0]) and d > 65504)
    for value, code in zip(x[0], got.codes[0]):
        if d == 0:
            assert code == 0
            continue
        quotient = Fraction(float(value / d))
        error = abs(Fraction(float(value)) / Fraction(float(d)) - quotient)
        assert error <= abs(quotient) * Fraction(1, 1 << 24) + Fraction(1, 1 << 149)
        magnitude = abs(quotient) + Fraction(1, 2)
        assert abs(int(code)) == min(127, magnitude.numerator // magnitude.denominator)


@pytest.mark.parametrize("name", QUANTISERS)
def test_zero_and_underflowing_blocks(name):
    x = np.zeros((4, 32), f32)
    x[1] = 1e-45  # amax/127 rounds to 0
    x[2] = -0.0
    x[3] = 2.0**-140  # 127/amax and 1/d are infinite
    q = quantise(name, x)
    assert (q.codes[:3] == 0).all() and (q.d[:3] == 0).all() and not np.signbit(q.d[:3]).any()
    if name == "mmvq":
        assert (q.codes[3] == 127).all()  # a true division needs no reciprocal; only its stored f16 d is 0
    else:
        assert (q.codes[3] == 0).all()
    assert q.d[3, 0] == 0
    if q.s is not None:
        assert np.isfinite(q.s.astype(f32)).all()


@pytest.mark.parametrize("name", QUANTISERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_input(name, bad):
    x = np.ones((1, 64), f32)
    x[0, 40] = bad
    q = quantise(name, x)
    assert np.isnan(q.d[0, 1]) and (q.codes[0, 32:] == 0).all()
    assert q.d[0, 0] == rounding.to_f16(f32(1) / f32(127)).astype(q.d.dtype) or name == "mmq"
    assert (q.codes[0, :32] == 127).all()
    assert q.s is None or np.isnan(q.s[0, 1])


@pytest.mark.parametrize("name", QUANTISERS)
def test_scales_and_sums_beyond_f16(name):
    x = np.full((2, 32), 1e8, f32)
    x[1] = 2100.0
    q = quantise(name, x)
    assert (q.codes == 127).all()
    if name == "mmq":
        assert q.d.dtype == f32 and np.isfinite(q.d).all() and q.s is None
    else:
        assert np.isinf(q.d[0, 0]) and np.isfinite(q.d[1, 0])
        assert np.isinf(q.s).all()  # 32 x 2100 = 67,200


@pytest.mark.parametrize("name", QUANTISERS)
def test_codes_never_reach_minus_128(name):
    x = np.random.default_rng(6).standard_normal((64, 256)).astype(f32) * 2.0 ** np.arange(-64, 64, 2, dtype=f32)[:, None]
    x[:32] *= f32(2.0**-80)  # into the subnormal scales, where x/d may exceed 127
    q = quantise(name, x)
    assert q.codes.min() >= -127


def test_subnormal_scale_clamps():
    x = np.full((1, 32), 190 * 2.0**-149, f32)
    assert (quantise("mmvq", x).codes == 127).all()


def test_sum_is_the_butterfly_of_the_unquantised_values():
    x = np.random.default_rng(7).standard_normal((200, 64)).astype(f32) * f32(100)
    lanes = x.reshape(200, 2, 32)
    for step in (16, 8, 4, 2, 1):
        lanes = lanes + lanes[..., np.arange(32) ^ step]
    assert (lanes[..., 0] == butterfly_sum(x.reshape(200, 2, 32))).all()
    q = quantise("mmvq", x)
    assert (q.s == rounding.to_f16(lanes[..., 0])).all()
    assert (q.s != quantise("ggml-ref", x).s).any(), "the sum of the codes must not pass for it"
    serial = np.zeros((200, 2), f32)
    for i in range(32):
        serial = serial + x.reshape(200, 2, 32)[..., i]
    assert (serial != butterfly_sum(x.reshape(200, 2, 32))).any(), "nor a serial sum"


def test_rows_are_independent_of_the_chunking():
    x = np.random.default_rng(8).standard_normal((700, 1024)).astype(f32)
    whole = quantise("mmvq", x)
    assert Blocks(*(np.concatenate([getattr(quantise("mmvq", p), f) for p in np.array_split(x, 13)]) for f in ("codes", "d", "s")),
                  "mmvq").same_bits(whole)


def test_blocks():
    q = quantise("mmvq", np.random.default_rng(9).standard_normal((3, 64)).astype(f32))
    assert (q.values() == q.codes * np.repeat(q.d.astype(float), 32, axis=1)).all()
    assert q.dot_scale().dtype == f32 and q.take([1]).rows == 1 and q.columns == 64
    other = Blocks(q.codes.copy(), q.d.copy(), q.s.copy(), "mmvq")
    assert q.same_bits(other)
    other.s[0, 0] = np.nextafter(other.s[0, 0], np.float16(np.inf))
    assert not q.same_bits(other)
    assert same_floats(np.array([np.nan, 0.0]), np.array([-np.nan, -0.0])).tolist() == [True, False]
    assert not q.same_bits(quantise("mmq", q.values()))


def test_names_and_shapes_are_checked():
    with pytest.raises(ValueError, match="unknown quantiser 'q8'"):
        quantise("q8", np.zeros((1, 32)))
    with pytest.raises(ValueError, match="multiple of 32"):
        quantise("mmvq", np.zeros((1, 33)))
