"""Own oracles, compiled: the float64 value of a stage's output from a variant's own operands, and the bound its contract declares.

This is `numerics.oracle` at the speed that a whole prompt needs (tests hold the two against each other); the code behind it shares
nothing with the kernels under test.  Contracts, magnitudes and bounds: numerics.contracts and kernels/README.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np

from edge0verify.numerics import formats
from edge0verify.numerics.blocks import BLOCK, Blocks
from edge0verify.numerics.contracts import Contract
from edge0verify.study import _oracle


class WeightTensor(Protocol):
    """What is needed of a weight tensor; `model.Tensor` is one."""

    fmt: str
    shape: tuple[int, ...]
    raw: np.ndarray

    def values(self) -> np.ndarray: ...


@dataclass(frozen=True)
class OwnOracle:
    """t float64 [rows, M], the sums of magnitudes s, and the bound of |y - t|."""

    t: np.ndarray
    s: np.ndarray
    bound: np.ndarray


_PACKED: WeakKeyDictionary = WeakKeyDictionary()
_PACKED_VALUES: WeakKeyDictionary = WeakKeyDictionary()


def own_oracle(contract: Contract, tensor: WeightTensor, blocks: Blocks, *, experts: np.ndarray | None = None,
               threads: int | None = None) -> OwnOracle:
    """Value, magnitudes and bound of each row of a product; arguments as in `own_sums`."""
    t, s = own_sums(contract, tensor, blocks, experts=experts, threads=threads)
    return OwnOracle(t, s, bound_of(contract, tensor, s))


def own_sums(contract: Contract, tensor: WeightTensor, blocks: Blocks, *, experts: np.ndarray | None = None,
             threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(t, s), float64 [rows, M]: the product of quantised weights and quantised rows, and the sum of its terms' magnitudes.

    Terms are the integer dots of `contract.granularity` values times both scales.  tensor: quantised [M, K], or [experts, M, K]
    with `experts` int [rows] naming each row's.  ValueError where shapes do not fit or the weights are not quantised.
    """
    weights = packed(tensor, thread_count(threads))
    n, m = blocks.codes.shape[0], tensor.shape[-2]
    t, s = np.empty((n, m)), np.empty((n, m))
    codes, scales = np.ascontiguousarray(blocks.codes), np.ascontiguousarray(blocks.dot_scale())
    _oracle.rows(weights, codes, scales, contract.granularity, _ids(experts), t, s, thread_count(threads))
    return t, s


def bound_of(contract: Contract, tensor: WeightTensor, s: np.ndarray, *, k: int = 0) -> np.ndarray:
    """float64 like s: the largest |y - t| that the contract's roundings can cause.

    n*eps/(1-n*eps)*S + n*2^-149 with eps = 2^-24 and n the roundings on the longest path; k > 0 adds those of the expert sum.
    """
    columns = tensor.shape[-1]
    n = contract.roundings(nb=columns // 32, super_blocks=-(-columns // 256), k=k)
    unit = n * 2.0**-24
    bound = np.multiply(s, unit / (1 - unit))
    bound += n * 2.0**-149
    return bound


def float_rows(tensor: WeightTensor, x: np.ndarray, *, experts: np.ndarray | None = None, threads: int | None = None) -> np.ndarray:
    """float64 [rows, M]: decoded weights times unquantised rows x (float32 or float64 [rows, K]); the oracle of both sides.

    Sums run over K in ascending order, in double.  `experts` as in `own_sums`.
    """
    x = np.ascontiguousarray(x)
    out = np.empty((x.shape[0], tensor.shape[-2]))
    _oracle.float_rows(_packed_values(tensor, thread_count(threads)), x, _ids(experts), out, thread_count(threads))
    return out


Terms = Callable[[np.ndarray, int], np.ndarray]


def block_terms(tensor: WeightTensor, blocks: Blocks, *, experts: np.ndarray | None = None) -> Terms:
    """A function of row numbers int [r] and a width: float64 [K/width, r, M], what each `width` values along K add to the own
    oracle of those rows.

    Formed only when called: it is asked for where something is wrong, and for a sample of rows.
    """

    def terms(rows: np.ndarray, width: int = BLOCK) -> np.ndarray:
        x = blocks.take(rows).values().reshape(len(rows), -1, width).transpose(1, 0, 2)
        w = tensor.values().astype(np.float64)
        w = w.reshape(*w.shape[:-1], -1, width)
        if experts is None:
            return x @ w.transpose(1, 2, 0)
        out = np.empty((len(x), len(rows), w.shape[1]))
        for expert in np.unique(experts[rows]):
            here = experts[rows] == expert
            out[:, here] = x[:, here] @ w[expert].transpose(1, 2, 0)
        return out

    return terms


def swiglu(gate: np.ndarray, gate_bound: np.ndarray, up: np.ndarray, up_bound: np.ndarray, *,
           threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(t, bound) of H = silu(gate)*up, float64 of the inputs' shape, from both factors' values and bounds.

    bound = 1.1*Bg*|p| + |silu(g)|*Bp + 1.1*Bg*Bp + 6*eps*|H|: 1.1 is above the steepest slope of silu, 6*eps the roundings.
    """
    t, bound = np.empty(gate.shape), np.empty(gate.shape)
    factors = [np.ascontiguousarray(v, np.float64) for v in (gate, up, gate_bound, up_bound)]
    _oracle.swiglu(*factors, t, bound, thread_count(threads))
    return t, bound


def swiglu_value(gate: np.ndarray, up: np.ndarray, *, threads: int | None = None) -> np.ndarray:
    """silu(gate)*up in float64."""
    zero = np.zeros(gate.shape)
    return swiglu(gate, zero, up, zero, threads=threads)[0]


def expert_sum(contract: Contract, tensor: WeightTensor, t: np.ndarray, s: np.ndarray, weights: np.ndarray, *,
               threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(t, bound) of a-yl, float64 [tokens, latent], from the pairs' t and s (token-major) and the route weights f32 [tokens, k]."""
    n, k = weights.shape
    out_t, out_s = np.empty((n, t.shape[1])), np.empty((n, t.shape[1]))
    _oracle.expert_sum(t, s, np.ascontiguousarray(weights, np.float32), out_t, out_s, thread_count(threads))
    return out_t, bound_of(contract, tensor, out_s, k=k)


def packed(tensor: WeightTensor, threads: int) -> _oracle.Weights:
    """The tensor as the compiled oracle takes it, decoded once for as long as the tensor lives."""
    if tensor not in _PACKED:
        u = formats.unpack(tensor.fmt, tensor.raw)
        sub = None if u.sc is None else np.ascontiguousarray(u.sc)
        _PACKED[tensor] = _oracle.Weights(np.ascontiguousarray(u.q), np.ascontiguousarray(u.d), sub, threads=threads)
    return _PACKED[tensor]


def _packed_values(tensor: WeightTensor, threads: int) -> _oracle.FloatWeights:
    if tensor not in _PACKED_VALUES:
        _PACKED_VALUES[tensor] = _oracle.FloatWeights(np.ascontiguousarray(tensor.values(), np.float32), threads=threads)
    return _PACKED_VALUES[tensor]


def _ids(experts: np.ndarray | None) -> np.ndarray | None:
    return None if experts is None else np.ascontiguousarray(experts, np.int32)


def thread_count(threads: int | None) -> int:
    """The number asked for, or the processors this process may use."""
    return threads or len(os.sched_getaffinity(0))
