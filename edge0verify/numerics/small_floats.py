"""Four- and eight-bit floats: E2M1, E4M3 (the fn kind: no infinity, NaN at 0x7f and 0xff) and their block layouts.

Source: OCP Microscaling Formats v1.0 and the FP8 paper (Micikevicius et al., 2022); tests/vectors holds ml_dtypes' tables.
"""

from __future__ import annotations

import numpy as np


def _table(exponent_bits: int, mantissa_bits: int, bias: int) -> np.ndarray:
    code = np.arange(1 << (1 + exponent_bits + mantissa_bits))
    mantissa = code & ((1 << mantissa_bits) - 1)
    exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    sign = np.where(code >> (exponent_bits + mantissa_bits), -1.0, 1.0)
    whole = np.where(exponent > 0, (1 << mantissa_bits) + mantissa, mantissa)
    return (sign * np.ldexp(whole.astype(np.float64), np.maximum(exponent, 1) - bias - mantissa_bits)).astype(np.float32)


E2M1_VALUES = _table(2, 1, 1)
"""float32 [16]: 0 .5 1 1.5 2 3 4 6 and the negatives."""
E4M3_VALUES = _table(4, 3, 7)
"""float32 [256]; NaN at codes 0x7f and 0xff, largest 448."""
UE4M3_VALUES = np.tile(E4M3_VALUES[:128], 2)
"""float32 [256]: ggml's unsigned reading of an NVFP4 scale byte: the sign bit is ignored, 0x7f is 0 and 0xff is 480."""
UE4M3_VALUES[0x7F] = 0
E4M3_VALUES[[0x7F, 0xFF]] = np.nan


def e2m1_encode(x) -> np.ndarray:
    """uint8 codes of the nearest E2M1 value (ties to even); beyond 6 saturates, NaN becomes -0 as ml_dtypes has it."""
    x = np.asarray(x, dtype=np.float32)
    code = _nearest(np.abs(x), E2M1_VALUES[:8])
    return np.where(np.isnan(x), 8, code | (np.signbit(x) << 3)).astype(np.uint8)


def e4m3_encode(x) -> np.ndarray:
    """uint8 codes of the nearest E4M3 value (ties to even); above 464, the midpoint to the absent 480, it is NaN."""
    x = np.asarray(x, dtype=np.float32)
    magnitude = np.abs(x)
    code = np.where(magnitude > 464, 0x7F, _nearest(magnitude, E4M3_VALUES[:0x7F]))
    code = np.where(np.isnan(x), 0x7F, code)
    return (code | (np.signbit(x) << 7)).astype(np.uint8)


def _nearest(magnitude: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Index of the nearest of ascending `values`; a tie goes to the even index, which is the even mantissa."""
    values = values.astype(np.float64)
    middle = (values[1:] + values[:-1]) / 2
    m = magnitude.astype(np.float64)
    below = np.searchsorted(middle, m, side="left")
    above = np.searchsorted(middle, m, side="right")
    return np.where(below % 2 == 0, below, above)


def fp8_blocks_decode(codes, scale) -> np.ndarray:
    """float32 [N, K] of E4M3 codes uint8 [N, K] with one f32 scale per 128 x 128 block; the last blocks may be partial."""
    codes = np.asarray(codes, dtype=np.uint8)
    scale = np.asarray(scale, dtype=np.float32)
    expected = tuple(-(-side // 128) for side in codes.shape)
    if scale.shape != expected:
        raise ValueError(f"codes {list(codes.shape)} need scales {list(expected)}, found {list(scale.shape)}")
    spread = scale.repeat(128, axis=0)[:codes.shape[0]].repeat(128, axis=1)[:, :codes.shape[1]]
    return E4M3_VALUES[codes] * spread


def nvfp4_checkpoint_decode(packed, scale, tensor_scale) -> np.ndarray:
    """float32 [N, K] of a checkpoint's NVFP4: packed uint8 [N, K/2] (low nibble = even k), E4M3 scale codes [N, K/16].

    `tensor_scale` is the f32 `weight_scale_2` that multiplies; some exporters store its reciprocal, which the caller inverts.
    """
    packed = np.asarray(packed, dtype=np.uint8)
    scale = np.asarray(scale, dtype=np.uint8)
    if packed.ndim != 2 or scale.shape != (packed.shape[0], packed.shape[1] // 8) or packed.shape[1] % 8:
        raise ValueError(f"packed {list(packed.shape)} and scales {list(scale.shape)} do not fit: expected [N, K/2] and [N, K/16]")
    codes = np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1).reshape(packed.shape[0], -1)
    return E2M1_VALUES[codes] * (E4M3_VALUES[scale] * np.float32(tensor_scale)).repeat(16, axis=1)
