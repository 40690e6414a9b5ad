"""Inputs for testing one kernel alone: fresh from a seed, and chosen to hurt.

Shapes reach past one tile, one lane loop and one super block, since kernels go wrong at the ends; contents hold exact ties,
zero blocks, outliers, bfloat16 values, scales near the end of float16, the code -128.  A seed and a case's name fix every byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from edge0verify.numerics import formats
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.contracts import contract
from edge0verify.numerics.quantise import quantise
from edge0verify.records.errors import InputError

FORMAT = {"D": "Q8_0", "U": "Q8_0", "A1": "Q3_K", "A2": "IQ4_NL"}
"""Weight format of a stage where none is named."""
SCALE_AT = {"Q8_0": 0, "Q4_0": 0, "IQ4_NL": 0, "Q3_K": 108}
"""Where the float16 scale of a block stands."""
_CODE_SIZE = {"Q8_0": 74.0, "Q4_0": 4.6, "IQ4_NL": 67.0, "Q3_K": 42.0}
"""Root mean square of random codes, for Q3_K times the 6-bit scales."""


@dataclass(frozen=True)
class Shape:
    """m weight rows, n tokens, k inner; for the expert stages also experts and slots (chosen per token)."""

    m: int
    n: int
    k: int
    experts: int = 1
    slots: int = 1

    def __str__(self) -> str:
        text = f"{self.m},{self.n},{self.k}"
        return text if self.experts == 1 and self.slots == 1 else f"{text} {self.slots} of {self.experts}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One test: a shape and what the inputs hold."""

    name: str
    shape: Shape
    inputs: str = "normal"
    weights: str = "normal"
    minus_128: bool = False
    """Activations hold the code -128 (only where the kernel is given its operands: A1, A2)."""
    random: bool = False
    """Rounding is random here, so the bias test applies; on ties or powers of two it would not be."""


@dataclass(frozen=True, eq=False)
class Weights:
    """A weight tensor as the oracle takes it: raw GGUF rows uint8 [(experts,) m, bytes]."""

    fmt: str
    shape: tuple[int, ...]
    raw: np.ndarray

    def values(self) -> np.ndarray:
        return formats.decode(self.fmt, self.raw)


@dataclass(frozen=True, eq=False, kw_only=True)
class Inputs:
    """What one case hands to a kernel. Fields that a stage does not read are None."""

    case: Case
    weights: tuple[Weights, ...]
    """One tensor; gate and up for A1."""
    x: np.ndarray
    """f32 [n, k]: ffn-in, d-xl or a-yl; for A2 [n*slots, k]: the rows that the operands are made from."""
    ids: np.ndarray | None = None
    route_weights: np.ndarray | None = None
    _operands: dict[str, Blocks] = field(default_factory=dict)

    def operands(self, quantiser: str) -> Blocks:
        """x by `quantiser`, with codes -128 planted where the case asks for them; made once, so that both sides share them.

        A1's `mmq` quantises d-xl itself, so what it is handed must be what it would make.
        """
        if quantiser not in self._operands:
            made = quantise(quantiser, self.x)
            if self.case.minus_128 and not (len(self.weights) == 2 and quantiser == "mmq"):
                made.codes[np.random.default_rng(128).random(made.codes.shape) < 0.3] = -128
            self._operands[quantiser] = made
        return self._operands[quantiser]


CONTENTS = (
    ("bf16-rounded", "bf16", "normal"),
    ("ties", "ties", "normal"),
    ("zero blocks", "zero blocks", "normal"),
    ("outliers", "outliers", "normal"),
    ("near f16 overflow", "near overflow", "tiny"),
    ("negative scales", "normal", "negative"),
    ("extreme scales", "normal", "extreme"),
    ("zero bytes", "normal", "zero bytes"),
)
"""(case, inputs, weights) of the adversarial contents; each runs on the shape one past a tile."""
STORE_TIES = ("ties in the store", "whole", "picks")
"""Of stage D, whose rows are known where it stores them: row values that lie exactly between two codes."""


def _contents(stage: str) -> tuple[tuple[str, str, str], ...]:
    return (*CONTENTS, STORE_TIES) if stage == "D" else CONTENTS


def sweep(stage: str, fmt: str) -> tuple[Case, ...]:
    """The default cases of a stage ('D', 'A1', 'A2', 'U') on weights of `fmt`."""
    shapes = _SHAPES[stage]
    cases = [Case(name=name, shape=shape) for name, shape in shapes.items()]
    cases += [Case(name=name, shape=shapes["one past a tile"], inputs=x, weights=w) for name, x, w in _contents(stage)]
    minus = stage in ("A1", "A2")
    cases.append(Case(name="-128 codes", shape=shapes["one past a tile"], weights="-128 codes", minus_128=minus))
    cases.append(Case(name="many values", shape=_MANY[stage], random=True))
    cases.append(Case(name="many bf16 values", shape=_MANY[stage], inputs="bf16", random=True))
    return tuple(cases)


def of_shape(stage: str, shape: Shape) -> tuple[Case, ...]:
    """The cases for one shape that the user named."""
    cases = [Case(name="normal", shape=shape, random=True)]
    cases += [Case(name=name, shape=shape, inputs=x, weights=w) for name, x, w in _contents(stage)]
    return (*cases, Case(name="-128 codes", shape=shape, weights="-128 codes", minus_128=stage in ("A1", "A2")))


_SHAPES = {
    "D": {
        "one token": Shape(32, 1, 32),
        "poisoned tails": Shape(96, 5, 7 * 32),
        "3 super blocks": Shape(32, 3, 768),
        "33 blocks": Shape(32, 2, 33 * 32),
        "one past a tile": Shape(160, 17, 64),
    },
    "U": {
        "one token": Shape(1, 1, 32),
        "poisoned tails": Shape(19, 5, 7 * 32),
        "3 super blocks": Shape(33, 3, 768),
        "33 blocks": Shape(17, 2, 33 * 32),
        "one past a tile": Shape(129, 17, 64),
    },
    "A1": {
        "one token": Shape(32, 1, 256, 1, 1),
        "poisoned tails": Shape(96, 5, 256, 4, 3),
        "3 super blocks": Shape(32, 3, 768, 3, 2),
        "33 blocks": Shape(32, 2, 5 * 256, 2, 2),
        "one past a tile": Shape(96, 18, 256, 5, 3),
    },
    "A2": {
        "one token": Shape(1, 1, 32, 1, 1),
        "poisoned tails": Shape(19, 5, 7 * 32, 4, 3),
        "3 super blocks": Shape(33, 3, 768, 3, 2),
        "33 blocks": Shape(17, 2, 33 * 32, 2, 2),
        "one past a tile": Shape(33, 18, 64, 5, 3),
    },
}
_SHAPES["A1"]["40 blocks"] = _SHAPES["A1"].pop("33 blocks")  # Q3_K rows come in 256s; 40 is the first count past a lane loop of 32
_MANY = {"D": Shape(96, 128, 384), "U": Shape(97, 128, 384), "A1": Shape(96, 64, 512, 4, 2), "A2": Shape(97, 128, 384, 4, 2)}
"""At least 10^4 values of every row tensor, so that the bias test speaks."""


def check(stage: str, fmt: str, shape: Shape) -> None:
    """InputError where a stage cannot have such a shape."""
    need = formats.FORMATS[fmt].values
    if shape.k < need or shape.k % need:
        raise InputError(f"--shape: {fmt} rows come in blocks of {need}: expected K a multiple of {need}, found {shape.k}")
    if contract(stage, "mmvq").store is not None and shape.m % 32:
        raise InputError(f"--shape: stage {stage} stores blocks of 32: expected M a multiple of 32, found {shape.m}")
    if min(shape.m, shape.n, shape.experts, shape.slots) < 1 or shape.slots > shape.experts:
        raise InputError(f"--shape: expected counts of at least 1 and no more chosen than there are experts, found {shape}")


def make(stage: str, fmt: str, case: Case, seed: int) -> Inputs:
    """The inputs of a case: the same bytes for the same seed, name and shape."""
    check(stage, fmt, case.shape)
    s = case.shape
    rng = np.random.default_rng([seed, *map(ord, f"{stage} {fmt} {case.name} {s}")])
    if stage in ("D", "U"):
        x = _rows(rng, s.n, s.k, case.inputs)
        return Inputs(case=case, weights=(_weights(rng, fmt, (s.m,), s.k, case.weights, x),), x=x)
    ids = np.stack([rng.permutation(s.experts)[: s.slots] for _ in range(s.n)]).astype(np.int32)
    if s.n > 17 and s.slots > 1:  # one pair past a tile of sixteen for expert 0
        ids[:17] = np.arange(s.slots)
    route = rng.dirichlet(np.ones(s.slots), s.n).astype(np.float32)
    count = 2 if stage == "A1" else 1
    x = _rows(rng, s.n if stage == "A1" else s.n * s.slots, s.k, case.inputs)
    weights = tuple(_weights(rng, fmt, (s.experts, s.m), s.k, case.weights, x) for _ in range(count))
    return Inputs(case=case, weights=weights, x=x, ids=ids, route_weights=route)


def _weights(rng: np.random.Generator, fmt: str, rows: tuple[int, ...], k: int, kind: str, x: np.ndarray) -> Weights:
    """Random codes under scales that make products with x of size 1 or 2 for any K: what A1 stores must fit float16."""
    f = formats.FORMATS[fmt]
    raw = rng.integers(0, 256, (*rows, k // f.values, f.bytes), dtype=np.uint8)
    typical = 1 / (_CODE_SIZE[fmt] * float(np.sqrt(np.mean(np.square(x, dtype=np.float64)))) * np.sqrt(k))
    scale = rng.standard_normal(raw.shape[:-1]) * typical
    if kind == "negative":
        scale = -np.abs(scale)
    elif kind == "tiny":
        scale = rng.choice([2.0**-24, -(2.0**-24)], raw.shape[:-1])
        if fmt == "Q3_K":  # all 6-bit scales 33 and most blocks 0: the smallest product there is
            raw[..., 96:104], raw[..., 104:108] = 0x11, 0xAA
            scale[rng.random(scale.shape) > f.values / k] = 0
    elif kind == "extreme":
        large = 2.0 ** np.floor(np.log2(typical))
        scale = rng.choice([large, -large, large / 1024, 2.0**-24, -(2.0**-24), 0.0, -0.0], raw.shape[:-1])
    elif kind == "zero bytes":
        raw[:] = 0  # Q3_K: code 0 under scale 0, the cell whose textbook sign overflows int8
    elif kind == "-128 codes":
        raw[:] = 128
    elif kind == "picks":
        scale = _pick_one_value(fmt, raw)
    at = SCALE_AT[fmt]
    raw[..., at : at + 2] = scale.astype(np.float16)[..., None].view(np.uint8)
    return Weights(fmt, (*rows, k), raw.reshape(*rows, -1))


def _pick_one_value(fmt: str, raw: np.ndarray) -> np.ndarray:
    """Rows of Q8_0 or Q4_0 that are one value of their input each: half of it, and the whole 127 once in every 32 rows, which makes
    the scale of what is stored 1. Returns the scales."""
    m, blocks = raw.shape[:2]
    raw[..., 2:] = 0 if fmt == "Q8_0" else 0x88
    for row in range(m):
        whole = row % 32 == 3
        at = 3 + 32 * (row // 32 % blocks) if whole else (7 * row + 1) % (32 * blocks)
        block, value = at // 32, at % 32
        if fmt == "Q8_0":
            raw[row, block, 2 + value] = 1
        else:
            raw[row, block, 2 + value % 16] += 1 if value < 16 else 16
    return np.broadcast_to(np.where(np.arange(m) % 32 == 3, 1.0, 0.5)[:, None], (m, blocks))


def _rows(rng: np.random.Generator, n: int, k: int, kind: str) -> np.ndarray:
    x = rng.standard_normal((n, k)).astype(np.float32)
    blocks = x.reshape(n, -1, 32)
    if kind == "bf16":
        x[:] = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    elif kind == "ties":  # amax 127: the scale is 1 and halves are exact
        blocks[:] = rng.integers(-127, 127, blocks.shape) + 0.5
        blocks[..., 3] = 127.0
    elif kind == "whole":  # amax 127 again, and every value is its own code
        blocks[:] = rng.integers(-126, 127, blocks.shape)
        blocks[..., 3] = 127.0
    elif kind == "zero blocks":
        blocks[rng.random(blocks.shape[:2]) < 0.4] = 0.0
        blocks[0, 0] = -0.0
    elif kind == "outliers":
        blocks[rng.random(blocks.shape) < 0.01] *= 40
    elif kind == "near overflow":  # block scales in 0.9 .. 1 times float16's largest
        half = blocks[..., :16]
        half *= 65504 * 127 * rng.uniform(0.9, 1.0, blocks.shape[:2])[..., None] / np.abs(half).max(-1, keepdims=True)
        blocks[..., 16:] = -half  # so that block sums do not overflow
    return x
