"""The stages as launches on device buffers: what DeviceKernels wraps in copies, and what a captured graph is made of."""

from __future__ import annotations

from edge0verify.runtime.ops import DeviceBlocks, DeviceOps, DeviceWeights
from edge0verify.runtime.protocol import Buffer
from edge0verify.variants.registry import Variant

SUMS = {"mmq": "expert-id", "ref": "f64"}


def product(ops: DeviceOps, v: Variant, weights: DeviceWeights, x: Buffer, n: int) -> tuple[DeviceBlocks, Buffer]:
    """D and U without their store: x f32 [n, K] quantised as `v` declares, and rows f32 [n, M]."""
    operand = ops.quantise(v.rules.operand, x, n, weights.k)
    return operand, ops.rows(v.name, weights, operand, key=v.key(weights.fmt))


def half_products(
    ops: DeviceOps, v: Variant, gate: DeviceWeights, up: DeviceWeights, operand: DeviceBlocks, ids: Buffer, pairs: int, slots: int
) -> tuple[Buffer, Buffer, DeviceBlocks]:
    """A1: gate and up rows f32 [pairs, ff] of each chosen expert, and their stored SwiGLU."""
    g = ops.rows(v.name, gate, operand, n=pairs, ids=ids, div=slots, key=v.key(gate.fmt))
    u = ops.rows(v.name, up, operand, n=pairs, ids=ids, div=slots)
    h, _ = ops.swiglu(v.rules.store, g, u, pairs, gate.rows)
    return g, u, h


def expert_rows(
    ops: DeviceOps, v: Variant, down: DeviceWeights, h: DeviceBlocks, ids: Buffer, weights: Buffer, tokens: int, k: int
) -> tuple[Buffer, Buffer]:
    """A2: rows f32 [tokens * k, latent] of each pair, and their weighted sum f32 [tokens, latent]."""
    y = ops.rows(v.name, down, h, n=tokens * k, ids=ids, key=v.key(down.fmt))
    return y, ops.expert_sum(SUMS.get(v.name, "route"), y, weights, ids, tokens=tokens, k=k, width=down.rows)
