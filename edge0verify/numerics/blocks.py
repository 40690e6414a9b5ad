"""Activations quantised in blocks of 32: the operands and stored outputs of the kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BLOCK = 32
POISON_CODE = np.int8(-128)
"""Codes are preset to this before a kernel runs; no quantiser ever writes it."""
POISON_F32_BITS = 0x7FC0E0E0
POISON_F16_BITS = 0x7EE0


def poison_f32(shape) -> np.ndarray:
    """float32 array holding the one NaN that marks memory no kernel has written."""
    return np.full(shape, POISON_F32_BITS, dtype=np.uint32).view(np.float32)


def poison_f16(shape) -> np.ndarray:
    """float16 counterpart of `poison_f32`."""
    return np.full(shape, POISON_F16_BITS, dtype=np.uint16).view(np.float16)


@dataclass(frozen=True)
class Blocks:
    """Rows quantised in blocks of 32 values.

    codes int8 [rows, n]; d float16 or float32 [rows, n/32] as the quantiser stores it; s float16 [rows, n/32] or None;
    quantiser one of 'ggml-ref', 'mmvq', 'mmq', 'ggml-x86'.
    """

    codes: np.ndarray
    d: np.ndarray
    s: np.ndarray | None
    quantiser: str

    @property
    def rows(self) -> int:
        return self.codes.shape[0]

    @property
    def columns(self) -> int:
        return self.codes.shape[1]

    def take(self, rows) -> Blocks:
        """The blocks of the given rows (slice or index array)."""
        return Blocks(self.codes[rows], self.d[rows], None if self.s is None else self.s[rows], self.quantiser)

    def dot_scale(self) -> np.ndarray:
        """float32 [rows, n/32]: the scale a dot product multiplies by (the stored one, f16 widened)."""
        return self.d.astype(np.float32)

    def values(self) -> np.ndarray:
        """float64 [rows, n]: d*code, exact."""
        rows, n = self.codes.shape
        with np.errstate(invalid="ignore"):
            out = self.codes.reshape(rows, n // BLOCK, BLOCK) * self.d.astype(np.float64)[:, :, None]
        return out.reshape(rows, n)

    def same_bits(self, other: Blocks) -> bool:
        """Equal codes, scales and sums; NaNs compare as NaN whatever their payload."""
        def alike(a, b):
            if a is None or b is None:
                return a is b
            return a.dtype == b.dtype and a.shape == b.shape and bool(same_floats(a, b).all())

        return (self.codes.shape == other.codes.shape and bool((self.codes == other.codes).all())
                and alike(self.d, other.d) and alike(self.s, other.s))


def same_floats(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two float arrays hold the same bits, every NaN counting as the same; -0 and +0 differ."""
    word = {2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
    same = np.ascontiguousarray(a).view(word) == np.ascontiguousarray(b).view(word)
    return same | (np.isnan(a) & np.isnan(b))
