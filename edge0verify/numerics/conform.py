"""Does a result keep its own contract?  Row values by bound, stored blocks by what their quantiser could have made of such rows.

All functions take whole arrays or any chunk of rows; `blocks_conform` walks the rows itself in chunks that stay in cache.
t and B are float64 [n, m]: the own oracle and its bound.  There is no tolerance here beyond what the roundings add up to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .blocks import BLOCK, Blocks, same_floats
from .quantise import F16_SCALE, quantise
from .rounding import EPS, TINY, rha, to_f16

_F32_MAX = float(np.finfo(np.float32).max)
_GUARD = 2.0**-48  # covers the float64 roundings of this file itself
# Roundings (in eps) between amax/127 and d, and between t/d and the number that is rounded to a code.
_SCALE_EPS = {"mmvq": 1, "mmq": 2, "ggml-ref": 1, "ggml-x86": 1}
_CODE_EPS = {"mmvq": 1, "mmq": 2, "ggml-ref": 2, "ggml-x86": 3}
# Largest amax/127 whose reciprocal (1/d, or 127/amax) is not a finite float32: the quantiser then stores d = 0.
_ZERO_BELOW = {"mmvq": 0.0, "mmq": 1 / _F32_MAX, "ggml-ref": 1 / _F32_MAX, "ggml-x86": 1 / _F32_MAX}


def rows_conform(y: np.ndarray, t: np.ndarray, b: np.ndarray) -> np.ndarray:
    """bool [n, m]: |y - t| <= B.  A NaN on either side does not conform."""
    with np.errstate(invalid="ignore"):
        gap = np.subtract(y, t, dtype=np.float64)
        return np.abs(gap, out=gap) <= b


def enclose_scale(t: np.ndarray, b: np.ndarray, quantiser: str) -> tuple[np.ndarray, np.ndarray]:
    """(lo, hi) float64 [n, m/32] between which the float32 d of each block lies.

    [max(max(|t|-B), 0)/127*(1-e), max(|t|+B)/127*(1+e)], 2^-149 wider at both ends; lo is 0 where it would be negative and where
    the quantiser's reciprocal may overflow, since it then stores 0.
    """
    n, m = t.shape
    magnitude = np.abs(t)
    hi = (magnitude + b).reshape(n, m // BLOCK, BLOCK).max(axis=-1)
    magnitude -= b
    lo = np.maximum(magnitude.reshape(n, m // BLOCK, BLOCK).max(axis=-1), 0.0)
    e = _SCALE_EPS[quantiser] * EPS + _GUARD
    hi = hi / 127 * (1 + e) + TINY
    lo = np.maximum(lo / 127 * (1 - e) - TINY, 0.0)
    return np.where(lo <= _ZERO_BELOW[quantiser] * (1 + 4 * EPS), lo * 0, lo), hi


def scales_conform(d: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """bool [n, m/32]: a float16 d lies in h() of the enclosure, a float32 d in the enclosure."""
    if d.dtype == np.float16:
        lo, hi = to_f16(lo), to_f16(hi)
    return (lo <= d) & (d <= hi)


def code_interval(t: np.ndarray, b: np.ndarray, lo: np.ndarray, hi: np.ndarray, quantiser: str) -> tuple[np.ndarray, np.ndarray]:
    """(cmin, cmax) int16 [n, m]: the codes that conform, RHA of the enclosure of t/d widened by the quantiser's roundings.

    A NaN in t or the enclosure gives the empty set (cmin 127, cmax -127).
    """
    n, m = t.shape
    e = _CODE_EPS[quantiser] * EPS + _GUARD
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        wide, narrow = ((1 + e) / lo)[:, :, None], ((1 - e) / hi)[:, :, None]
        shape = (n, m // BLOCK, BLOCK)
        magnitude = np.abs(t)
        far = np.add(magnitude, b).reshape(shape)
        far *= wide
        near = np.subtract(magnitude, b, out=magnitude).reshape(shape)
        below = near < 0  # the value may have the other sign: then the smaller scale takes it farther
        near *= np.where(below.any(axis=-1, keepdims=True), np.where(below, wide, narrow), narrow)
        far += 0.5
        np.floor(far, out=far)
        near += 0.5  # RHA for positive numbers; for negative ones the half goes down, put right below
        half_down = below & (near == np.floor(near))
        np.floor(near, out=near)
        near -= half_down
    if (lo <= 0).any():  # the scale may be 0, and then every code is
        np.minimum(near, 0.0, out=near, where=(lo <= 0)[:, :, None])
    far = np.fmin(far, 127.0).reshape(n, m)
    near = np.clip(near, -127.0, 127.0).reshape(n, m)
    cmax, cmin = np.nan_to_num(far, nan=127.0).astype(np.int16), np.nan_to_num(near, nan=-127.0).astype(np.int16)
    negative = t < 0
    cmin, cmax = np.where(negative, -cmax, cmin), np.where(negative, -cmin, cmax)
    empty = np.isnan(t) | np.isnan(b) | np.repeat(np.isnan(lo) | np.isnan(hi), BLOCK, axis=1)
    if empty.any():
        cmin[empty], cmax[empty] = 127, -127
    return cmin, cmax


def loose_codes(cmin: np.ndarray, cmax: np.ndarray, lo: np.ndarray) -> np.ndarray:
    """bool [n, m]: more than two codes conform, or the scale may be 0: the bound cannot tell."""
    return (cmax - cmin > 1) | np.repeat(lo <= 0, BLOCK, axis=1)


@dataclass(frozen=True, kw_only=True)
class Conformance:
    """Element by element: codes and loose bool [n, m], scales and loose_scales bool [n, m/32]."""

    codes: np.ndarray
    scales: np.ndarray
    loose: np.ndarray
    loose_scales: np.ndarray


def blocks_conform(blocks: Blocks, t: np.ndarray, b: np.ndarray, *, quantiser: str | None = None, chunk: int = 256) -> Conformance:
    """Stored blocks against the own oracle of the rows they were made from; `quantiser` defaults to the blocks' own."""
    quantiser = quantiser or blocks.quantiser
    n, m = t.shape
    codes, loose = np.empty((n, m), bool), np.empty((n, m), bool)
    scales, loose_scales = np.empty(blocks.d.shape, bool), np.empty(blocks.d.shape, bool)
    for first in range(0, n, chunk):
        r = slice(first, min(first + chunk, n))
        lo, hi = enclose_scale(t[r], b[r], quantiser)
        scales[r] = scales_conform(blocks.d[r], lo, hi)
        loose_scales[r] = lo <= 0
        cmin, cmax = code_interval(t[r], b[r], lo, hi, quantiser)
        codes[r] = (cmin <= blocks.codes[r]) & (blocks.codes[r] <= cmax)
        loose[r] = loose_codes(cmin, cmax, lo)
    return Conformance(codes=codes, scales=scales, loose=loose, loose_scales=loose_scales)


def store_matches(blocks: Blocks, rows: np.ndarray, store: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(codes [n, m], d [n, m/32], s [n, m/32] or None) bool: bit-equal to quantiser `store` of the dumped float32 rows.

    NaNs are equal whatever their payload; a missing or superfluous s, or another dtype of d, matches nowhere.
    """
    made = quantise(store, rows)
    d = same_floats(blocks.d, made.d) if blocks.d.dtype == made.d.dtype else np.zeros(made.d.shape, bool)
    if made.s is None and blocks.s is None:
        s = None
    elif made.s is None or blocks.s is None:
        s = np.zeros(made.d.shape, bool)
    else:
        s = same_floats(blocks.s, made.s)
    return blocks.codes == made.codes, d, s


def code_of_oracle(t: np.ndarray, quantiser: str) -> tuple[np.ndarray, np.ndarray]:
    """(codes int8 [n, m], d [n, m/32] as stored) that float64 rows would quantise to in exact arithmetic.

    Two sides whose oracles differ here differ by their operands, not by rounding.  Non-finite blocks give codes 0 and d NaN.
    """
    n, m = t.shape
    grouped = t.reshape(n, m // BLOCK, BLOCK)
    amax = np.abs(grouped).max(axis=-1)
    finite = np.isfinite(amax)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = grouped * np.where((amax > 0) & finite, 127 / amax, 0.0)[:, :, None]
    ratio[~finite] = 0.0
    codes = (np.rint(ratio) if quantiser == "ggml-x86" else rha(ratio)).astype(np.int8).reshape(n, m)
    d = np.where(finite, amax / 127, np.nan)
    with np.errstate(over="ignore"):
        return codes, to_f16(d) if F16_SCALE[quantiser] else d.astype(np.float32)
