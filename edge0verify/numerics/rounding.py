"""Rounding to f16, bf16 and integers, and distances in units of the last place.

Everything here is exact by construction: numpy's own IEEE conversions (nearest even) or integer work on the bits, never a
library function whose last bit depends on the machine.
"""

from __future__ import annotations

import numpy as np

EPS = 2.0**-24
"""Unit roundoff of float32: half the gap between 1 and the next float."""
TINY = 2.0**-149
"""Smallest positive float32, the absolute error an underflowing operation may make."""
FAR = np.iinfo(np.int64).max
"""`ulp_distance` between a NaN and a number."""


def to_f16(x) -> np.ndarray:
    """h(x): float16 nearest to `x` (ties to even), in one rounding from float32 or float64; overflow gives infinity."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.asarray(x).astype(np.float16)


def to_f32(x) -> np.ndarray:
    """f(x): float32 nearest to `x` (ties to even); overflow gives infinity."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.asarray(x).astype(np.float32)


def bf16_encode(x) -> np.ndarray:
    """uint16 bits of the bfloat16 nearest to the float32 `x` (ties to even); a NaN stays a NaN and becomes quiet."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    quiet = bits | np.uint32(0x00400000)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return (np.where(nan, quiet, rounded) >> np.uint32(16)).astype(np.uint16)


def bf16_decode(bits) -> np.ndarray:
    """float32 of bfloat16 bits (uint16); exact."""
    return (np.asarray(bits, dtype=np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def rha(x) -> np.ndarray:
    """Nearest integer, halves away from zero, in the dtype of `x`.

    floor(x + 0.5) would be wrong for 0.49999997f, whose sum with 0.5 rounds to 1; the fraction x - trunc(x) is exact.
    """
    x = np.asarray(x)
    whole = np.trunc(x)
    up = np.abs(x - whole) >= x.dtype.type(0.5)
    return whole + np.copysign(up.astype(x.dtype), x)


def rne(x) -> np.ndarray:
    """Nearest integer, halves to even, in the dtype of `x`."""
    return np.rint(x)


def ulp(x, fmt: str = "f32") -> np.ndarray:
    """Gap between neighbours of `fmt` ('f16', 'bf16', 'f32') at the magnitude of `x`, as float64.

    `x` is taken as float64 and need not be a value of the format; the gap is the one of the binade that holds |x|, or the
    subnormal gap below the smallest normal number.
    """
    bits, lowest = {"f16": (10, -14), "bf16": (7, -126), "f32": (23, -126)}[fmt]
    exponent = np.ascontiguousarray(x, dtype=np.float64).view(np.uint64) & np.uint64(0x7FF0000000000000)
    return np.maximum(exponent.view(np.float64), 2.0**lowest) * 2.0**-bits


def ordered(x, fmt: str | None = None) -> np.ndarray:
    """int64 ranks of f16 or f32 values (bf16: uint16 bits with fmt='bf16'): neighbours differ by one, both zeros are 0."""
    x = np.ascontiguousarray(x)
    if fmt == "bf16" or x.dtype == np.float16:
        bits, sign = x.view(np.uint16).astype(np.int64), 0x8000
    elif x.dtype == np.float32:
        bits, sign = x.view(np.uint32).astype(np.int64), 0x80000000
    else:
        raise ValueError(f"ulp distance is defined for float16, float32 and bf16 bits, not {x.dtype}")
    return np.where(bits & sign, sign - bits, bits)


def is_nan(x, fmt: str | None = None) -> np.ndarray:
    """Where `x` is NaN; `x` may be bf16 bits with fmt='bf16'."""
    return np.isnan(bf16_decode(x)) if fmt == "bf16" else np.isnan(x)


def ulp_distance(a, b, fmt: str | None = None) -> np.ndarray:
    """int64 steps between `a` and `b` of one format: 0 for equal values and for two NaNs, `FAR` for a NaN and a number.

    dtype float16 or float32; bfloat16 is passed as uint16 bits with fmt='bf16'.
    """
    gap = np.abs(ordered(a, fmt) - ordered(b, fmt))
    nan_a, nan_b = is_nan(a, fmt), is_nan(b, fmt)
    gap = np.where(nan_a & nan_b, 0, gap)
    return np.where(nan_a ^ nan_b, FAR, gap)
