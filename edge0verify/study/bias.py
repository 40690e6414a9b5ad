"""The bias test on a side's rows, compiled: what numerics.bias and numerics.spread define, at the speed of a whole prompt.

Tests hold the two against each other.  Long runs are judged on a sample of rows: the statistics grow with the square root of the
rows, so a fault that shows in a thousand rows needs no five thousand, and the sample is drawn at random from a fixed seed, so
that no stride of rows can hide between its members.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edge0verify.numerics.bias import Bias, BiasTest
from edge0verify.numerics.blocks import BLOCK, Blocks
from edge0verify.numerics.contracts import Contract
from edge0verify.study import _oracle
from edge0verify.study.oracle import WeightTensor, packed, thread_count

SAMPLE = 2048
"""Rows of a tensor that are tested at most (pairs for the expert stages)."""
_SEED = 20260101

_ORDERS = {
    ("mmvq", False): "lanes",
    ("mmq", False): "product-first",
    ("w11", False): "dot-first",
    ("mmvq", True): "q3k-lanes",
    ("mmq", True): "q3k-halves",
    ("w11", True): "product-first",
}
"""Order of operations by variant and whether the weights carry a scale per 16 values, as kernels/README.md has it."""


def sample(rows: int, limit: int = SAMPLE) -> np.ndarray | None:
    """int64 numbers of the rows to test, ascending and the same every time; None where all are."""
    if rows <= limit:
        return None
    return np.sort(np.random.default_rng(_SEED).choice(rows, limit, replace=False))


def rows_bias(
    contract: Contract,
    tensor: WeightTensor,
    blocks: Blocks,
    y: np.ndarray | None,
    *,
    experts: np.ndarray | None = None,
    limit: int = SAMPLE,
    threads: int | None = None,
) -> dict[str, Any] | None:
    """Bias test of rows y float32 [n, M] = weights [M, K] (or [experts, M, K]) times blocks [n, K], as plain values.

    Adds to `Bias.as_dict()`: `rows`, how many were tested, `of_rows`, how many there are; places name rows of y. None where
    the rows are not known.
    """
    if y is None:
        return None
    chosen = sample(len(y), limit)
    found = rows_test(contract, tensor, _take(blocks, chosen), _take(y, chosen), experts=_take(experts, chosen), threads=threads)
    return _described(found, chosen, len(y))


def rows_test(
    contract: Contract,
    tensor: WeightTensor,
    blocks: Blocks,
    y: np.ndarray,
    *,
    experts: np.ndarray | None = None,
    threads: int | None = None,
) -> Bias:
    """Bias of all the rows; arguments as in `rows_bias`. ValueError where shapes do not fit."""
    threads = thread_count(threads)
    weights = packed(tensor, threads)
    order = "f64" if contract.variant == "ref" else _ORDERS[contract.variant, tensor.fmt == "Q3_K"]
    test, sums = BiasTest(tensor.shape[-2], tensor.shape[-1] // BLOCK), _sums(tensor.shape[-1] // BLOCK, tensor.shape[-2])
    ids = None if experts is None else np.ascontiguousarray(experts, np.int32)
    codes, scales = np.ascontiguousarray(blocks.codes), np.ascontiguousarray(blocks.dot_scale())
    y = np.ascontiguousarray(y, np.float32)
    places = _oracle.spread_rows(weights, codes, scales, blocks.d.dtype == np.float16, order, ids, y, *sums, threads)
    test.add_sums(*sums, len(y), places)
    return test.result()


def expert_sum_bias(
    contract: Contract,
    y: np.ndarray | None,
    weights: np.ndarray,
    ids: np.ndarray,
    yl: np.ndarray | None,
    *,
    limit: int = SAMPLE,
    threads: int | None = None,
) -> dict[str, Any] | None:
    """Bias test of a-yl float32 [n, M] over the rows a-y float32 [n*k, M] that the variant summed; weights f32, ids i32 [n, k].

    None where either is not known."""
    if y is None or yl is None:
        return None
    n, k = ids.shape
    chosen = sample(n, limit)
    pairs = _take(y.reshape(n, k, -1), chosen).reshape(-1, y.shape[1])
    found = expert_sum_test(contract, pairs, _take(weights, chosen), _take(ids, chosen), _take(yl, chosen), threads=threads)
    return _described(found, chosen, n)


def expert_sum_test(
    contract: Contract, y: np.ndarray, weights: np.ndarray, ids: np.ndarray, yl: np.ndarray, *, threads: int | None = None
) -> Bias:
    """Bias of all rows of a-yl; arguments as in `expert_sum_bias`."""
    k = ids.shape[1]
    by_id = contract.weighted_sum == "expert-id"
    slots = np.argsort(ids, axis=1, kind="stable") if by_id else np.broadcast_to(np.arange(k), ids.shape)
    test, sums = BiasTest(yl.shape[1], k), _sums(k, yl.shape[1])
    arrays = (np.ascontiguousarray(v, t) for v, t in ((y, np.float32), (weights, np.float32), (slots, np.int32), (yl, np.float32)))
    once = contract.weighted_sum == "f64"
    places = _oracle.spread_experts(*arrays, once, *sums, threads=thread_count(threads))
    test.add_sums(*sums, len(yl), places)
    return test.result()


def _sums(terms: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(7), np.zeros((2, terms)), np.zeros((4, columns))


def _take(value, rows: np.ndarray | None):
    if rows is None or value is None:
        return value
    return value.take(rows) if isinstance(value, Blocks) else value[rows]


def _described(found: Bias, chosen: np.ndarray | None, rows: int) -> dict[str, Any]:
    plain = found.as_dict()
    if chosen is not None:
        plain["places"] = [[int(chosen[row]), column, z] for row, column, z in plain["places"]]
    return {**plain, "rows": rows if chosen is None else len(chosen), "of_rows": rows}
