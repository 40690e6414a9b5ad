"""Roundings against exact fractions, all codes, and neighbours in the bit patterns."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge0verify.numerics import rounding
from tests.numerics.vectors import KINDS, load

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
small = st.one_of(floats, st.floats(-200, 200, width=32), st.integers(-260, 260).map(lambda i: np.float32(i / 2).item()))


def exact_rha(value: float) -> int:
    magnitude = abs(Fraction(value)) + Fraction(1, 2)
    return (magnitude.numerator // magnitude.denominator) * (1 if value >= 0 else -1)


@settings(max_examples=400, deadline=None)
@given(small)
def test_rha_and_rne_are_exact(value):
    x = np.array([value], np.float32)
    assert int(rounding.rha(x)[0]) == exact_rha(value)
    assert int(rounding.rne(x)[0]) == round(Fraction(value))
    assert rounding.rha(x).dtype == np.float32


def test_rha_where_adding_a_half_goes_wrong():
    x = np.array([0.49999997, -0.49999997, 0.5, -0.5, 2.5, 8388609.0, -0.0], np.float32)
    assert rounding.rha(x).tolist() == [0, 0, 1, -1, 3, 8388609, 0]
    naive = np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x)
    assert (naive != rounding.rha(x)).any(), "the negative control must round 0.49999997 up"


@settings(max_examples=300, deadline=None)
@given(floats)
def test_to_f16_is_nearest_even(value):
    got = rounding.to_f16(np.float32(value))
    exact = Fraction(value)
    if np.isinf(got):
        assert abs(exact) >= Fraction(65520)
        return
    for toward in (-np.inf, np.inf):
        other = np.nextafter(got, np.float16(toward))
        if np.isfinite(other):
            mine, theirs = abs(Fraction(float(got)) - exact), abs(Fraction(float(other)) - exact)
            assert mine < theirs or (mine == theirs and int(got.view(np.uint16)) % 2 == 0)


def test_bf16_agrees_with_ggml_and_ml_dtypes():
    for kind in KINDS:
        x = load("inputs")[f"x__{kind}"]
        assert (rounding.bf16_encode(x) == load("small_floats")[f"bf16__{kind}"]).all()
    codes = np.arange(1 << 16, dtype=np.uint16)
    values = rounding.bf16_decode(codes)
    assert np.array_equal(values, codes.view(ml_dtypes.bfloat16).astype(np.float32), equal_nan=True)
    numbers = ~np.isnan(values)
    assert (rounding.bf16_encode(values)[numbers] == codes[numbers]).all()
    assert np.isnan(rounding.bf16_decode(rounding.bf16_encode(values[~numbers]))).all()
    truncated = (load("inputs")["x__normal"].view(np.uint32) >> 16).astype(np.uint16)
    assert (truncated != load("small_floats")["bf16__normal"]).any(), "truncation must fail the vectors"


@pytest.mark.parametrize(("fmt", "dtype"), [("f16", np.float16), ("f32", np.float32)])
def test_ulp_is_the_gap_of_the_binade(fmt, dtype):
    x = np.array([1.0, 1.5, 1.9990234, 2.0, 3e-5, 6e-8, 0.0, 1e-40, -7.25], np.float64)
    held = np.abs(x).astype(dtype)
    held = np.where(held.astype(np.float64) > np.abs(x), np.nextafter(held, dtype(0)), held)
    assert (rounding.ulp(x, fmt) == np.spacing(held).astype(np.float64)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_ulp_distance_counts_steps(dtype):
    x = np.array([1.0, -1.0, 0.0, 6e-8, 1000.0], dtype)
    up = x
    for steps in range(1, 5):
        up = np.nextafter(up, dtype(np.inf))
        assert (rounding.ulp_distance(x, up) == steps).all()
    assert rounding.ulp_distance(dtype(-0.0).reshape(1), dtype(0.0).reshape(1))[0] == 0
    tiny = np.nextafter(dtype(0), dtype(1)).reshape(1)
    assert rounding.ulp_distance(tiny, -tiny)[0] == 2
    nan = np.full(1, np.nan, dtype)
    assert rounding.ulp_distance(nan, -nan)[0] == 0
    assert rounding.ulp_distance(nan, tiny)[0] == rounding.FAR == rounding.ulp_distance(tiny, nan)[0]


def test_ulp_distance_of_bf16_bits():
    bits = np.array([0x3F80, 0x0001, 0x7FC0], np.uint16)
    other = np.array([0x3F83, 0x8001, 0x0000], np.uint16)
    assert rounding.ulp_distance(bits, other, "bf16").tolist() == [3, 2, rounding.FAR]
    with pytest.raises(ValueError, match="bf16"):
        rounding.ulp_distance(bits, other)
