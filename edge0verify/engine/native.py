"""The engine's compiled kernels as functions that allocate their results.

Results do not depend on `threads`, on the instruction set, or on how many rows are given at once.
"""

from __future__ import annotations

import os

import numpy as np

from edge0verify.engine import _native

Dense = _native.Dense
KvCache = _native.KvCache
isas, usable_isas, isa, set_isa = _native.isas, _native.usable_isas, _native.isa, _native.set_isa


def default_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def rmsnorm(x: np.ndarray, weight: np.ndarray, eps: float, threads: int) -> np.ndarray:
    """f32(x * r * weight) in float64, r = 1/sqrt(mean(x^2) + eps): float32 [n, h] -> float32 [n, h]."""
    y = np.empty_like(x)
    _native.rmsnorm(x, weight, y, eps, threads)
    return y


def dense(weights: Dense, x: np.ndarray, threads: int) -> np.ndarray:
    """Rows times one matrix, serial fma over K: float32 [n, K] -> float32 [n, M]."""
    out = np.empty((len(x), weights.rows), np.float32)
    weights.run_all(x, out, threads)
    return out


def dense_experts(weights: Dense, x: np.ndarray, experts: np.ndarray, rows: np.ndarray, threads: int) -> np.ndarray:
    """out[i] = weights[experts[i]] @ x[rows[i]]: x float32 [*, K], experts and rows int32 [n] -> float32 [n, M]."""
    out = np.empty((len(rows), weights.rows), np.float32)
    weights.run(x, experts, rows, out, threads)
    return out


def swiglu(gate: np.ndarray, up: np.ndarray, threads: int) -> np.ndarray:
    """f(f(g / f(1 + E(-g))) * u), float32 of the given shape."""
    h = np.empty_like(gate)
    _native.swiglu(gate, up, h, threads)
    return h


def weighted_sum(y: np.ndarray, weights: np.ndarray, threads: int) -> np.ndarray:
    """acc = fma(weight, y, acc) in route order: y float32 [n*k, m], weights float32 [n, k] -> float32 [n, m]."""
    out = np.empty((len(weights), y.shape[1]), np.float32)
    _native.weighted_sum(y, weights, out, threads)
    return out


def route(logits: np.ndarray, k: int, threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Expert ids int32 [n, k] (largest logit first, ties to the lower id) and their renormalised weights float32 [n, k]."""
    ids = np.empty((len(logits), k), np.int32)
    weights = np.empty((len(logits), k), np.float32)
    _native.route(logits, ids, weights, threads)
    return ids, weights


def top_logprobs(logits: np.ndarray, k: int, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The k likeliest ids (int32 [n, k], ties to the lower id) and their log-softmax values (float32 [n, k])."""
    ids = np.empty((len(logits), k), np.int32)
    logprobs = np.empty((len(logits), k), np.float32)
    _native.top_logprobs(logits, ids, logprobs, threads)
    return ids, logprobs


def add(x: np.ndarray, y: np.ndarray, threads: int) -> None:
    """x += y in float32, in place."""
    _native.add(x, y, threads)


def attention(q: np.ndarray, cache: KvCache, heads: int, scale: float, threads: int) -> np.ndarray:
    """Causal attention of the last len(q) positions of `cache`: q float32 [n, heads*dim], rotated -> float32 of that shape."""
    out = np.empty_like(q)
    _native.attention(q, cache, out, heads, scale, threads)
    return out
