"""Inputs for the contract tests: weights as raw GGUF rows, activations and routes, each made from a printed seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import ml_dtypes
import numpy as np

from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.quantise import quantise

BYTES = {"Q8_0": (32, 34, 0), "Q4_0": (32, 18, 0), "IQ4_NL": (32, 18, 0), "Q3_K": (256, 110, 108)}
"""Values and bytes of a block, and where its f16 scale stands."""


@dataclass(frozen=True)
class Shape:
    """Tokens n, weight rows m, inner dimension k; experts and slots for A1 and A2."""

    n: int
    m: int
    k: int
    experts: int = 1
    slots: int = 1


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything that one stage reads."""

    raw: np.ndarray
    """uint8 [rows, bytes], or [experts, rows, bytes]; gate for A1."""
    raw_up: np.ndarray | None
    x: np.ndarray
    """f32 rows: ffn-in, xl or yl; for A2 unused."""
    blocks: Blocks | None
    """xlq for A1, h for A2."""
    ids: np.ndarray | None
    weights: np.ndarray | None


def rng_of(*key) -> np.random.Generator:
    return np.random.default_rng([ord(c) for c in repr(key)])


def weights(rng, fmt: str, shape: tuple[int, ...], k: int, kind: str = "normal") -> np.ndarray:
    """Raw rows uint8 [*shape, row bytes]: random codes with scales by `kind`."""
    values, size, at = BYTES[fmt]
    raw = rng.integers(0, 256, (*shape, k // values, size), dtype=np.uint8)
    scale = rng.standard_normal(raw.shape[:-1]) * (1e-3 if fmt == "Q3_K" else 1e-2)
    if kind == "negative":
        scale = -np.abs(scale)
    elif kind == "extreme":
        scale = rng.choice([65504.0, -65504.0, 2.0**-24, -(2.0**-24), 0.0, -0.0, 1.0], raw.shape[:-1])
    elif kind == "zero bytes":
        raw[:] = 0                                       # Q3_K: code 0 under scale 0, the cell whose textbook sign overflows int8
    elif kind == "one bytes":
        raw[:] = 255
    elif kind == "-128 codes":
        raw[:] = 128
    raw[..., at:at + 2] = scale.astype(np.float16)[..., None].view(np.uint8)
    return raw.reshape(*shape, -1)


def activations(rng, n: int, k: int, kind: str = "normal") -> np.ndarray:
    """f32 [n, k]."""
    x = rng.standard_normal((n, k)).astype(np.float32)
    blocks = x.reshape(n, -1, 32)
    if kind == "bf16":
        x[:] = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    elif kind == "zero blocks":
        blocks[rng.random(blocks.shape[:2]) < 0.4] = 0.0
        blocks[0, 0] = -0.0
    elif kind == "ties":                                 # amax 127: the scale is 1 and halves are exact
        blocks[:] = rng.integers(-127, 127, blocks.shape) + 0.5
        blocks[..., 3] = 127.0
    elif kind == "range":                                # from underflowing scales to float16-overflowing ones
        blocks *= np.exp2(rng.integers(-149, 40, blocks.shape[:2])).astype(np.float32)[..., None]
    elif kind == "large sums":                           # beyond 65504
        blocks[:] = np.abs(blocks) * 1e4
    elif kind == "not finite":
        blocks[0, 0, 5] = np.nan
        blocks[-1, -1, 31] = np.inf
        blocks[n // 2, 0, 0] = -np.inf
    return x


def operand_blocks(rng, x: np.ndarray, quantiser: str, minus_128: bool) -> Blocks:
    b = quantise(quantiser, x)
    if minus_128:
        b.codes[rng.random(b.codes.shape) < 0.3] = -128
    return b


@lru_cache(maxsize=256)
def scene(
    stage: str, variant: str, fmt: str, shape: Shape, inputs: str = "normal", weight: str = "normal", codes: str = "normal"
) -> Scene:
    """The scene of that name: the same for each instruction set and runtime."""
    rng = rng_of(stage, fmt, shape, inputs, weight)
    if stage in ("D", "U", "linear"):
        raw = weights(rng, fmt, (shape.m,), shape.k, weight)
        return Scene(raw, None, activations(rng, shape.n, shape.k, inputs), None, None, None)
    ids = np.stack([rng.permutation(shape.experts)[:shape.slots] for _ in range(shape.n)]).astype(np.int32)
    if shape.n > 16:
        ids[:17, 0] = 0                                  # one pair past a tile of sixteen for expert 0
        for row in ids[:17]:
            row[1:] = 1 + np.arange(shape.slots - 1)
    route = rng.random((shape.n, shape.slots)).astype(np.float32)
    per_expert = (shape.experts, shape.m)
    raw = weights(rng, fmt, per_expert, shape.k, weight)
    if stage == "A1":
        x = activations(rng, shape.n, shape.k, inputs)
        raw_up = weights(rng, fmt, per_expert, shape.k, weight)
        return Scene(raw, raw_up, x, operand_blocks(rng, x, "mmvq", codes == "-128"), ids, None)
    x = activations(rng, shape.n * shape.slots, shape.k, inputs)
    h = operand_blocks(rng, x, "mmq" if variant == "mmq" else "mmvq", codes == "-128")
    return Scene(raw, None, x, h, ids, route)


SHAPES = {
    "D": {
        "one row, one block": Shape(1, 32, 32),
        "odd counts": Shape(5, 96, 224),
        "three super blocks": Shape(3, 32, 768),
        "33 blocks": Shape(2, 32, 33 * 32),
        "one past a tile": Shape(17, 160, 64),
    },
    "U": {
        "one row, one block": Shape(1, 1, 32),
        "odd counts": Shape(5, 19, 224),
        "three super blocks": Shape(3, 33, 768),
        "33 blocks": Shape(2, 17, 33 * 32),
        "67 blocks": Shape(1, 3, 67 * 32),
        "one past a tile": Shape(17, 129, 64),
    },
    "A1": {
        "one row, one block": Shape(1, 32, 256, 1, 1),
        "three super blocks": Shape(3, 32, 768, 3, 2),
        "five super blocks": Shape(1, 32, 1280, 2, 1),
        "one past a tile": Shape(18, 96, 256, 5, 3),
    },
    "A2": {
        "one row, one block": Shape(1, 1, 32, 1, 1),
        "odd counts": Shape(5, 19, 96, 3, 2),
        "33 blocks": Shape(2, 17, 33 * 32, 2, 2),
        "one past a tile": Shape(18, 33, 64, 5, 3),
    },
}
SHAPES["linear"] = SHAPES["U"]
INPUTS = ("bf16", "zero blocks", "ties", "range", "large sums", "not finite")
WEIGHTS = ("negative", "extreme", "zero bytes", "one bytes", "-128 codes")
