"""The four activation quantisers, by name, bit for bit.

    ggml-ref  d = f(amax/127)            code = RHA(x*f(1/d))           stores h(d), s = h(d*sum(codes))
    mmvq      d = f(amax/127)            code = RHA(f(x/d))             stores h(d), s = h(butterfly sum of x)
    mmq       d = f(1/f(127/amax))       code = RHA(f(x*f(127/amax)))   stores f32 d, no s
    ggml-x86  d = f(amax/127)            code = RNE(x*f(127/amax))      stores h(d), s = h(d*sum(codes))

Source: ggml's quantize_row_q8_0_ref, quantize_row_q8_1_ref and their AVX2 paths (tests/vectors holds their output), and the
contracts in kernels/README.md.  Every line below is float32 arithmetic, one IEEE rounding per operation.
"""

from __future__ import annotations

import numpy as np

from .blocks import BLOCK, Blocks
from .rounding import rha, rne, to_f16

QUANTISERS = ("ggml-ref", "mmvq", "mmq", "ggml-x86")
F16_SCALE = {"ggml-ref": True, "mmvq": True, "mmq": False, "ggml-x86": True}
"""Whether the quantiser stores its scale as float16 (else float32)."""

_127 = np.float32(127)
_ZERO = np.float32(0)
_ONE = np.float32(1)
_CHUNK_VALUES = 1 << 18  # keeps the temporaries of one step inside a core's cache


def quantise(name: str, x) -> Blocks:
    """Quantise float32 rows [n, K], K a multiple of 32, by the quantiser called `name`.

    Codes clamp to +-127.  An all-zero block, an underflowing d and an infinite reciprocal give d = 0 and codes 0; a block with
    a non-finite value gives d and s NaN and codes 0.  A d beyond float16 is stored as infinity.  Raises ValueError on an
    unknown name or an odd shape.
    """
    if name not in QUANTISERS:
        raise ValueError(f"unknown quantiser {name!r}, expected one of {', '.join(QUANTISERS)}")
    x = np.ascontiguousarray(x, dtype=np.float32)
    if x.ndim != 2 or x.shape[1] % BLOCK:
        raise ValueError(f"expected rows [n, K] with K a multiple of {BLOCK}, found shape {list(x.shape)}")
    n, width = x.shape
    codes = np.empty((n, width), np.int8)
    d = np.empty((n, width // BLOCK), np.float16 if F16_SCALE[name] else np.float32)
    s = np.empty(d.shape, np.float16) if F16_SCALE[name] else None
    step = max(1, _CHUNK_VALUES // max(width, 1))
    with np.errstate(all="ignore"):
        for lo in range(0, n, step):
            part = slice(lo, min(lo + step, n))
            block_codes, scale, total = _blocks(name, x[part].reshape(-1, width // BLOCK, BLOCK))
            codes[part] = block_codes.reshape(-1, width)
            d[part] = scale.astype(d.dtype)
            if s is not None:
                s[part] = to_f16(total)
    return Blocks(codes, d, s, name)


def _blocks(name: str, x: np.ndarray):
    """Codes int8, f32 scale and f32 sum (None for mmq) of blocks x [..., 32]."""
    amax = np.abs(x).max(axis=-1)
    finite = np.isfinite(amax)
    d = amax / _127
    if name == "mmvq":
        zero = d == 0
        q = rha(x / np.where(zero, _ONE, d)[..., None])
    elif name == "ggml-ref":
        inverse = _ONE / d
        zero = (d == 0) | np.isinf(inverse)
        q = rha(x * np.where(zero, _ZERO, inverse)[..., None])
    else:
        inverse = _127 / amax
        zero = np.isinf(inverse) | (d == 0)
        q = x * np.where(zero, _ZERO, inverse)[..., None]
        q = rha(q) if name == "mmq" else rne(q)
        if name == "mmq":
            d = _ONE / inverse
    dead = zero | ~finite
    q = np.where(dead[..., None], _ZERO, np.clip(q, -_127, _127))
    d = np.where(finite, np.where(zero, _ZERO, d), np.float32(np.nan))
    codes = q.astype(np.int8)
    if name == "mmq":
        return codes, d, None
    if name == "mmvq":
        total = butterfly_sum(x)
    else:
        total = d * codes.sum(axis=-1, dtype=np.int32).astype(np.float32)
    return codes, d, np.where(finite, total, np.float32(np.nan))


def butterfly_sum(x: np.ndarray) -> np.ndarray:
    """float32 sum over the last axis (a power of two) as a xor butterfly makes it: partners half the width apart first.

    Addition commutes, so every lane ends with the same bits and one half of each step is enough.
    """
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]
