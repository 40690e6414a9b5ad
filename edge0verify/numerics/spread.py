"""How far rounding alone moves a row value: the variance of y - t, operation by operation, for the bias test.

Each declared operation that rounds contributes ulp(result)^2/12, the variance of an error that is uniform over one gap, times
the square of whatever multiplies it further on.  The partial results are recomputed in float64 in the variant's own order.
Operations that cannot round (products of two float16 scales, sums with an idle lane) contribute nothing.
Source: the contract table in kernels/README.md; Higham and Mary, A new approach to probabilistic rounding error analysis (2019).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .blocks import BLOCK, Blocks
from .contracts import Contract
from .formats import Unpacked
from .oracle import block_dots
from .rounding import ulp

_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Of n rows by M values: t float64 [n, M], variance float64 [n, M], terms float64 [blocks, n, M] that add up to t."""

    t: np.ndarray
    variance: np.ndarray
    terms: np.ndarray


def rows_per_chunk(weights: Unpacked) -> int:
    """Rows whose terms take about 16 MiB: a good chunk for `row_spread`."""
    per_row = weights.q.shape[-2] * 8 * (weights.columns // BLOCK + 16)
    return max(1, _CHUNK_BYTES // per_row)


def row_spread(contract: Contract, weights: Unpacked, blocks: Blocks) -> Spread:
    """Spread of weights [M, K] on activations [n, K]; memory grows with n*M*K/32, so hand it chunks of rows."""
    n, m, nb = blocks.rows, weights.q.shape[0], weights.columns // BLOCK
    terms, variance = np.zeros((nb, n, m)), np.zeros((n, m))
    with np.errstate(invalid="ignore", over="ignore"):
        if contract.variant == "ref":
            for b, dots, scale in block_dots(weights, blocks, BLOCK):
                terms[b] = dots[0] * scale
            t = terms.sum(axis=0)
            _rounded(variance, t)
        else:
            order = _ORDERS[contract.variant, weights.sc is not None]
            t = order(terms, variance, weights, blocks)
    return Spread(t=t, variance=variance, terms=terms)


def _rounded(variance: np.ndarray, result: np.ndarray, factor=1.0) -> None:
    """Add the variance of one float32 rounding of `result`, multiplied by `factor` afterwards."""
    gap = ulp(result)
    gap *= factor
    gap *= gap
    gap *= 1 / 12
    variance += gap


def _rounded_if_inexact(variance: np.ndarray, result: np.ndarray, factor) -> None:
    """As `_rounded` for a result that is known exactly: no variance where float32 holds it."""
    _rounded(variance, result, np.where(result.astype(np.float32) == result, 0.0, factor))


def _scales(weights: Unpacked, blocks: Blocks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(dw [1, M], da [n, 1]) float64 of each 32-block."""
    per = weights.columns // weights.d.shape[-1] // BLOCK
    dw, da = weights.d.astype(np.float64), blocks.dot_scale().astype(np.float64)
    for b in range(weights.columns // BLOCK):
        yield dw[None, :, b // per], da[:, b, None]


def _butterfly(variance: np.ndarray, lanes: np.ndarray, width: int) -> np.ndarray:
    """Sum of the active lanes [active, n, M] of `width`, partners half the width apart first."""
    while width > 1:
        width //= 2
        if len(lanes) <= width:
            continue
        paired = len(lanes) - width
        lanes[:paired] += lanes[width:]
        for lane in lanes[:paired]:
            _rounded(variance, lane)
        lanes = lanes[:width]
    return lanes[0]


def _lanes(terms, variance, weights, blocks):
    """D, A2, U mmvq: one lane per 32-block modulo 32."""
    lanes = np.zeros((min(32, len(terms)), *variance.shape))
    for b, dots, scale in block_dots(weights, blocks, BLOCK):
        np.multiply(dots[0], scale, out=terms[b])
        _product(variance, dots[0], scale, blocks)
        lanes[b % 32] += terms[b]
        _rounded(variance, lanes[b % 32])
    return _butterfly(variance, lanes, 32)


def _product(variance, dots, scale, blocks):
    """f(dw*da), multiplied by the dot: exact when both scales are float16."""
    if blocks.d.dtype != np.float16:
        _rounded(variance, scale, dots)


def _serial_scaled(terms, variance, weights, blocks):
    """D, A2, U mmq: acc = fma(f(dw*da), C, acc)."""
    acc = np.zeros(variance.shape)
    for b, dots, scale in block_dots(weights, blocks, BLOCK):
        np.multiply(dots[0], scale, out=terms[b])
        _product(variance, dots[0], scale, blocks)
        acc += terms[b]
        _rounded(variance, acc)
    return acc


def _serial_dot_first(terms, variance, weights, blocks):
    """D, A2, U w11: acc = fma(f(C*dw), da, acc)."""
    acc = np.zeros(variance.shape)
    for (b, dots, scale), (dw, da) in zip(block_dots(weights, blocks, BLOCK), _scales(weights, blocks)):
        np.multiply(dots[0], scale, out=terms[b])
        _rounded_if_inexact(variance, dots[0] * dw, da)
        acc += terms[b]
        _rounded(variance, acc)
    return acc


def _q3_k_lanes(terms, variance, weights, blocks):
    """A1 mmvq: lane (half, group of 4) sums its four planes in s, then l = fma(d, s, l); butterfly over 16."""
    lanes, sums = np.zeros((16, *variance.shape)), None
    for (b, dots, scale), (dw, da) in zip(block_dots(weights, blocks, 4), _scales(weights, blocks)):
        np.multiply(dots.sum(axis=0), scale, out=terms[b])
        half, plane = b % 8 // 4, b % 4
        if plane == 0:
            sums = np.zeros((8, *variance.shape))
        for group in range(8):
            sums[group] += dots[group] * da
            if plane == 0:
                _rounded_if_inexact(variance, sums[group], dw)
            else:
                _rounded(variance, sums[group], dw)
            if plane == 3:
                lane = lanes[8 * half + group]
                lane += sums[group] * dw
                _rounded(variance, lane)
    return _butterfly(variance, lanes, 16)


def _q3_k_halves(terms, variance, weights, blocks):
    """A1 mmq: acc = fma(da, fma(C1, f(d*m1), f(C0*f(d*m0))), acc); d*m is exact, 11 bits by 6."""
    acc = np.zeros(variance.shape)
    for (b, dots, scale), (dw, da) in zip(block_dots(weights, blocks, 16), _scales(weights, blocks)):
        np.multiply(dots.sum(axis=0), scale, out=terms[b])
        first = dots[0] * dw
        _rounded_if_inexact(variance, first, da)
        first += dots[1] * dw
        _rounded(variance, first, da)
        acc += terms[b]
        _rounded(variance, acc)
    return acc


_ORDERS = {("mmvq", False): _lanes, ("mmq", False): _serial_scaled, ("w11", False): _serial_dot_first,
           ("mmvq", True): _q3_k_lanes, ("mmq", True): _q3_k_halves, ("w11", True): _serial_scaled}


def expert_sum_spread(contract: Contract, y: np.ndarray, weights: np.ndarray, ids: np.ndarray,
                      variance: np.ndarray | None = None) -> Spread:
    """Spread of a-yl [n, latent] from a-y [n*k, latent] (token-major), route weights f32 [n, k] and expert ids [n, k].

    `y` are the rows the variant summed, or their oracle with the `variance` of each; the terms are its experts in sum order.
    """
    n, k = ids.shape
    order = np.argsort(ids, axis=1, kind="stable") if contract.weighted_sum == "expert-id" else np.tile(np.arange(k), (n, 1))
    rows = np.arange(n)[:, None] * k + order
    w = np.take_along_axis(weights, order, axis=1).astype(np.float64).T[:, :, None]
    terms = y[rows.T].astype(np.float64) * w
    spread = np.zeros(terms.shape[1:])
    if variance is not None:
        spread += (variance[rows.T] * w * w).sum(axis=0)
    t = np.zeros(spread.shape)
    for term in terms:
        t += term
        if contract.weighted_sum != "f64":
            _rounded(spread, t)
    if contract.weighted_sum == "f64":
        _rounded(spread, t)
    return Spread(t=t, variance=spread, terms=terms)
