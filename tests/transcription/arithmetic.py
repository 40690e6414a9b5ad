"""Single roundings: f(), h(), RHA, RNE and fma."""

import numpy as np

f32, f64 = np.float32, np.float64


def f(x):
    """Round to float32."""
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(f32)


def h(x):
    """Round to float16."""
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(np.float16)


def mul(a, b):
    with np.errstate(all="ignore"):
        return np.multiply(a, b, dtype=f32)


def add(a, b):
    with np.errstate(all="ignore"):
        return np.add(a, b, dtype=f32)


def div(a, b):
    with np.errstate(all="ignore"):
        return np.divide(a, b, dtype=f32)


def round_half_away(x):
    """float32 -> nearest integer, halves away from zero."""
    magnitude = np.abs(x.astype(f64))           # a float32 plus 0.5 is exact in float64 wherever it matters
    return (np.sign(x) * np.floor(magnitude + 0.5)).astype(f32)


def round_half_even(x):
    magnitude = np.abs(x.astype(f64))
    down = np.floor(magnitude)
    with np.errstate(invalid="ignore"):
        part = magnitude - down
        up = (part > 0.5) | ((part == 0.5) & (down % 2 == 1))
    return (np.sign(x) * (down + up)).astype(f32)


def fma(a, b, c):
    """a*b + c in one rounding to float32.

    The product of two float32 is exact in float64.  The float64 sum is rounded to odd (its error, which two-sum gives exactly,
    decides the last bit), and a sum rounded to odd with 29 spare bits rounds to float32 as the exact sum would.
    """
    with np.errstate(all="ignore"):
        p = np.asarray(a, dtype=f64) * np.asarray(b, dtype=f64)
        c = np.asarray(c, dtype=f64)
        s = np.asarray(p + c)
        back = s - p
        err = (p - (s - back)) + (c - back)
        bits = s.view(np.int64)
        inexact = np.isfinite(s) & (err != 0)
        toward_zero = inexact & (np.signbit(err) != np.signbit(s))
        bits = np.where(toward_zero, bits - 1, bits)
        bits = np.where(inexact, bits | 1, bits)
        return bits.view(f64).astype(f32)


def butterfly(lanes):
    """Sum of float32 lanes [2^k, ...] by xor exchange, farthest partner first; every lane holds it, lane 0 is returned."""
    step = lanes.shape[0] // 2
    index = np.arange(lanes.shape[0])
    while step:
        lanes = add(lanes, lanes[index ^ step])
        step //= 2
    return lanes[0]
