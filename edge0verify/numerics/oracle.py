"""Float64 values from a variant's own operands, and the bounds that its roundings may reach.

t is accumulated from exact integer dots of 32 values, so a dot that cancels to 0 contributes no error; the matrix products below
multiply small integers in float32, whose every partial sum is below 2^24 and exact in any order.
Source: Higham, Accuracy and Stability of Numerical Algorithms, section 3.1 (gamma_n).
"""

from __future__ import annotations

import numpy as np

from .blocks import BLOCK, Blocks
from .contracts import Contract
from .formats import Unpacked
from .rounding import EPS, TINY

_CHUNK_VALUES = 1 << 19


def bound(n: int, s: np.ndarray) -> np.ndarray:
    """B = n*eps/(1-n*eps)*S + n*2^-149: how far n float32 roundings can move a sum whose terms' magnitudes add up to S."""
    gamma = n * EPS / (1 - n * EPS)
    out = np.multiply(s, gamma)
    out += n * TINY
    return out


def block_dots(weights: Unpacked, blocks: Blocks, granularity: int):
    """Yield (b, dots, scale): exact integer dots f32 [32/g, n, M] of the g-value parts of 32-block b, scale f64 [n, M] = dw*da.

    For Q3_K the dots carry (sc-32), constant over 16 values.  Weights q [M, K], activations [n, K].
    """
    q = weights.q if weights.sc is None else weights.q * np.repeat(weights.sc, 16, axis=-1).astype(np.int16)
    per = weights.columns // weights.d.shape[-1] // BLOCK  # 32-blocks that share one weight scale
    dw, da = weights.d.astype(np.float64), blocks.dot_scale().astype(np.float64)
    for b in range(weights.columns // BLOCK):
        span = slice(b * BLOCK, (b + 1) * BLOCK)
        w = q[:, span].astype(np.float32).reshape(q.shape[0], BLOCK // granularity, granularity)
        a = blocks.codes[:, span].astype(np.float32).reshape(blocks.rows, BLOCK // granularity, granularity)
        with np.errstate(invalid="ignore", over="ignore"):
            yield b, np.matmul(a.transpose(1, 0, 2), w.transpose(1, 2, 0)), da[:, b, None] * dw[None, :, b // per]


def own_oracle(contract: Contract, weights: Unpacked, blocks: Blocks) -> tuple[np.ndarray, np.ndarray]:
    """(t, S) float64 [n, M] of weights [M, K] on activations [n, K] at the contract's granularity."""
    if weights.columns != blocks.columns:
        raise ValueError(f"weights have {weights.columns} columns, activations {blocks.columns}")
    t = np.empty((blocks.rows, weights.q.shape[0]))
    s = np.empty_like(t)
    step = max(1, _CHUNK_VALUES * contract.granularity // (BLOCK * max(1, t.shape[1])))
    for lo in range(0, blocks.rows, step):
        rows = slice(lo, min(lo + step, blocks.rows))
        t_part, s_part = t[rows], s[rows]
        t_part[:], s_part[:] = 0, 0
        with np.errstate(invalid="ignore", over="ignore"):
            for _, dots, scale in block_dots(weights, blocks.take(rows), contract.granularity):
                t_part += dots.sum(axis=0) * scale
                s_part += np.abs(dots).sum(axis=0) * np.abs(scale)
    return t, s


def expert_oracle(contract: Contract, weights: Unpacked, blocks: Blocks, experts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(t, S) float64 [pairs, M] of expert weights [experts, M, K] on pair rows; `experts` int [pairs] names each row's expert."""
    t = np.empty((blocks.rows, weights.q.shape[1]))
    s = np.empty_like(t)
    for expert in np.unique(experts):
        at = np.flatnonzero(experts == expert)
        t[at], s[at] = own_oracle(contract, weights[expert], blocks.take(at))
    return t, s


def exp64(x) -> np.ndarray:
    """float64 exp within 2 ulp from additions and multiplications alone, so that no library decides its bits."""
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        k = np.rint(np.clip(x, -746.0, 710.0) * 1.4426950408889634)
        r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10
        p = np.full_like(r, 1.0 / 6227020800.0)
        for factorial in (479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0):
            p *= r
            p += 1.0 / factorial
        out = np.ldexp(np.ldexp(p, (k / 2).astype(np.int64)), (k - (k / 2).astype(np.int64)).astype(np.int64))
    out = np.where(x > 709.8, np.inf, np.where(x < -745.2, 0.0, out))
    return np.where(np.isnan(x), np.nan, out)


def silu(g: np.ndarray) -> np.ndarray:
    """float64 g / (1 + exp(-g))."""
    with np.errstate(over="ignore", invalid="ignore"):
        return g / (1.0 + exp64(-g))


def h_bound(g: np.ndarray, p: np.ndarray, bound_g: np.ndarray, bound_p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(H, bound of H) float64 of SwiGLU on gate g and up p with their bounds.

    |H' - H| <= 1.1*Bg*|p| + |silu(g)|*Bp + 1.1*Bg*Bp + 6*eps*|H|: silu's slope never exceeds 1.1, and the six roundings are
    those of E (within 1 ulp), the sum, the division and the product.
    """
    activated = silu(g)
    h = activated * p
    b = np.abs(p)
    b += bound_p
    b *= bound_g
    b *= 1.1
    b += np.abs(activated) * bound_p
    b += 6 * EPS * np.abs(h)
    return h, b


def expert_sum(t: np.ndarray, s: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(t, S) float64 [n, latent] of a-yl from those of a-y [n*k, latent] (token-major) and route weights f32 [n, k].

    The order of the sum does not matter here; its k roundings are added by `Contract.roundings(k=k)`.
    """
    n, k = weights.shape
    w = weights.astype(np.float64)
    by_slot_t, by_slot_s = t.reshape(n, k, -1), s.reshape(n, k, -1)
    total, size = np.zeros((n, by_slot_t.shape[2])), np.zeros((n, by_slot_t.shape[2]))
    for slot in range(k):
        total += w[:, slot, None] * by_slot_t[:, slot]
        size += np.abs(w[:, slot, None]) * by_slot_s[:, slot]
    return total, size
