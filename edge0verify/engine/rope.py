"""Rotary position embedding, half-split, with angles formed in float64."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np

from edge0verify.engine import _native


def inverse_frequencies(theta: float, dim: int) -> np.ndarray:
    """theta^(-2i/dim) for i = 0 .. dim/2-1, float64, each correctly rounded: 60 decimal digits, so that no libm decides a bit."""
    context = Context(prec=60)
    ln = context.ln(Decimal(theta))
    exponents = (context.divide(context.multiply(ln, Decimal(-2 * i)), Decimal(dim)) for i in range(dim // 2))
    return np.array([float(context.exp(e)) for e in exponents])


class RopeTable:
    """cos and sin of every position used so far, float32 [positions, dim/2], grown on demand."""

    def __init__(self, theta: float, dim: int) -> None:
        self._inv_freq = inverse_frequencies(theta, dim)
        self._cos = np.empty((0, dim // 2), np.float32)
        self._sin = np.empty((0, dim // 2), np.float32)

    def rows(self, first: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows first .. first+n-1 of both tables."""
        have = len(self._cos)
        if first + n > have:
            more = max(first + n, 2 * have, 256) - have
            cos, sin = np.empty((2, more, self._cos.shape[1]), np.float32)
            _native.rope_angles(have, self._inv_freq, cos, sin)
            self._cos, self._sin = np.concatenate([self._cos, cos]), np.concatenate([self._sin, sin])
        return self._cos[first : first + n], self._sin[first : first + n]


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, heads: int, threads: int) -> None:
    """Rotates x, float32 [n, heads*dim], in place: a' = f(f(a*cos) - f(b*sin)), b' = f(f(b*cos) + f(a*sin))."""
    _native.rope(x, cos, sin, heads, threads)
