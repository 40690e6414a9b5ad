"""Legitimate changes: other kernels for the same numbers, other operands that a contract declares, another order of the same work.

None of them may raise an alarm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from edge0verify.compare.join import join
from edge0verify.engine import Engine
from edge0verify.model import encode, prompt
from edge0verify.numerics import formats
from edge0verify.numerics.blocks import BLOCK, Blocks
from edge0verify.numerics.quantise import quantise
from edge0verify.records.evidence import Evidence
from edge0verify.study.capture import REFERENCE
from edge0verify.study.capture import join as join_pieces
from edge0verify.study.selftest import scenes, trial
from edge0verify.study.selftest.scenes import Stage
from edge0verify.study.selftest.trial import Run
from edge0verify.study.selftest.types import Tensors

VARIANTS = ("ref", "mmvq", "mmq", "w11")
Made = tuple[list[Evidence], Run, Run]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One legitimate change of a stage."""

    name: str
    stage: str
    where: Callable[[], Stage]
    """The inputs that it is tried on."""
    make: Callable[[Stage], Made]
    """Evidence of both sides, and what ran."""
    quick: bool = False
    """Part of the reduced form."""
    shows: str = ""
    """A cause that explains some of the differences."""
    bits: bool = False
    """Nothing but the way of working changed: every bit must be the same."""


def _pair(a: str, b: str, stage: Stage) -> Made:
    sides = trial.kept(stage, a), trial.kept(stage, b)
    return trial.evidence_of(stage, *sides), *sides


_QUICK_PAIRS = {
    ("D", "mmvq", "mmq"),
    ("D", "ref", "mmq"),
    ("U", "mmvq", "mmq"),
    ("D", "mmvq", "w11"),
    ("U", "ref", "w11"),
    ("A", "mmvq", "w11"),
}


def _shows(a: str, b: str) -> str:
    """Variants on the same operands differ by rounding, others by their operands too."""
    return "operands" if "mmq" in (a, b) else "rounding"


def _pairs() -> Iterator[Change]:
    """Every two variants on the text, some on long rows; on odd inputs those whose operands differ most."""
    for stage in scenes.STAGES:
        for a, b in combinations(VARIANTS, 2):
            text = partial(scenes.text, stage)
            yield Change(
                name=f"{a} - {b}",
                stage=stage,
                where=text,
                make=partial(_pair, a, b),
                quick=(stage, a, b) in _QUICK_PAIRS,
                shows=_shows(a, b),
            )
        for a, b in (("ref", "mmvq"), ("mmvq", "mmq"), ("mmq", "w11")):
            yield Change(
                name=f"{a} - {b}",
                stage=stage,
                where=partial(scenes.long_rows, stage),
                make=partial(_pair, a, b),
                shows=_shows(a, b),
            )
        for kind in ("bf16", "zeros", "outliers"):
            odd = partial(scenes.long_rows, stage, kind)
            yield Change(name="mmvq - mmq", stage=stage, where=odd, make=partial(_pair, "mmvq", "mmq"))
    for stage in ("D", "U"):
        weights = partial(scenes.text, stage, "prose", "q4_0")
        yield Change(name="ref - mmvq, Q4_0 weights", stage=stage, where=weights, make=partial(_pair, "ref", "mmvq"))


def _against(stage: Stage, variant: str, other: Run) -> Made:
    own = trial.kept(stage, variant)
    return trial.evidence_of(stage, own, other), own, other


def _same_bits() -> Iterator[Change]:
    """Threads, instruction sets, batch widths and the mutant module without a fault: the same bits."""
    from edge0verify.variants import _kernels

    runs: dict[str, Callable[[Stage], Run]] = {"one thread": lambda s: trial.run(s, "w11", trial.product(threads=1))}
    for isa in _kernels.usable_isas():
        if isa != _kernels.isa():
            runs[f"instruction set {isa}"] = partial(_by_isa, isa)
    for width in (1, 8, 16):
        runs[f"batch width {width}"] = partial(_by_batches, width)
    runs["mutant module without a fault"] = lambda s: trial.planted(s, "w11", None)
    for stage in scenes.STAGES:
        for name, again in runs.items():
            quick = stage == "D" and name in ("one thread", "batch width 8")
            yield Change(
                name=name, stage=stage, where=partial(scenes.text, stage), make=partial(_again, again), bits=True, quick=quick
            )


def _again(again: Callable[[Stage], Run], stage: Stage) -> Made:
    return _against(stage, "w11", again(stage))


def _by_isa(isa: str, stage: Stage) -> Run:
    return trial.run(stage, "w11", trial.product(isa=isa))


def _by_batches(width: int, stage: Stage, variant: str = "w11") -> Run:
    """The run made of runs over `width` tokens at a time."""
    count = min(stage.tokens, 48 if width == 1 else stage.tokens)  # a token at a time costs as much as a tile
    parts = [trial.run(stage.part(np.arange(lo, min(lo + width, count))), variant) for lo in range(0, count, width)]
    tensors = {name: join_pieces([part.tensors[name] for part in parts]) for name in parts[0].tensors}
    whole = trial.kept(stage, variant).tensors
    for name, value in tensors.items():
        if count < stage.tokens:
            rows = np.arange(_rows(value), _rows(whole[name]))
            rest = whole[name].take(rows) if isinstance(value, Blocks) else whole[name][rows]
            tensors[name] = join_pieces([value, rest])
    return parts[0].with_tensors(tensors)


def _rows(value: np.ndarray | Blocks) -> int:
    return value.rows if isinstance(value, Blocks) else len(value)


def _orders() -> Iterator[Change]:
    """The terms of a row added in another order, or with the product rounded before it is added."""
    orders = {
        "D": ("w11", ("descending", "halves", "pairwise", "product rounded")),
        "U": ("mmq", ("descending", "pairwise", "four sums")),
    }
    for stage, (variant, names) in orders.items():
        for order in names:
            made = partial(_other_order, variant, order)
            yield Change(
                name=f"sum {order}", stage=stage, where=partial(scenes.text, stage), make=made, quick=order == "descending"
            )


def _other_order(variant: str, order: str, stage: Stage) -> Made:
    return _against(stage, "mmvq", _reordered(stage, variant, order))


def _reordered(stage: Stage, variant: str, order: str) -> Run:
    """The run of `variant` with its f32 rows added up in another order, and stored again."""
    own = trial.kept(stage, variant)
    tensors: Tensors = dict(own.tensors)
    operand, rows, weight = ("d-hq", "d-xl", "latent_down.weight") if stage.stage == "D" else ("u-ylq", "u", "latent_up.weight")
    tensors[rows] = _sum(_terms(stage.model.tensor(weight), tensors[operand]), order)
    if stage.stage == "D":
        tensors["d-xlq"] = quantise(tensors["d-xlq"].quantiser, tensors[rows])
    return own.with_tensors(tensors)


def _terms(tensor, blocks: Blocks) -> tuple[np.ndarray, np.ndarray]:
    """Factors float32 [blocks, n, M] of each block's term: f(C*dw), and da [blocks, n, 1]."""
    unpacked = formats.unpack(tensor.fmt, tensor.raw)
    n, nb = blocks.codes.shape[0], blocks.codes.shape[1] // BLOCK
    w = unpacked.q.reshape(-1, nb, BLOCK).astype(np.float64)
    a = blocks.codes.reshape(n, nb, BLOCK).astype(np.float64)
    dots = np.einsum("nbk,mbk->bnm", a, w, optimize=True)  # exact: below 2^24
    left = dots.astype(np.float32) * unpacked.d.astype(np.float32).T[:, None, :]
    return left, blocks.dot_scale().T[:, :, None]


def _sum(terms: tuple[np.ndarray, np.ndarray], order: str) -> np.ndarray:
    left, da = terms
    nb = len(left)

    def serial(which) -> np.ndarray:
        acc = np.zeros(left.shape[1:], np.float32)
        for b in which:
            # The product of two float32 is exact in double: one rounding, as fma has it (twice in a few cases).
            acc = (left[b].astype(np.float64) * da[b] + acc).astype(np.float32)
        return acc

    if order == "descending":
        return serial(range(nb - 1, -1, -1))
    if order == "halves":
        return serial(range(nb // 2)) + serial(range(nb // 2, nb))
    if order == "four sums":
        a, b, c, d = (serial(range(i, nb, 4)) for i in range(4))
        return (a + b) + (c + d)
    products = [left[b] * da[b] for b in range(nb)]
    if order == "product rounded":
        acc = np.zeros(left.shape[1:], np.float32)
        for product in products:
            acc = acc + product
        return acc
    while len(products) > 1:
        products = [products[i] + products[i + 1] if i + 1 < len(products) else products[i] for i in range(0, len(products), 2)]
    return products[0]


def _order_of_rows() -> Iterator[Change]:
    """Rows in another order that carry their keys: joined by keys before anything is compared."""
    for stage in ("D", "U"):
        text = partial(scenes.text, stage)
        yield Change(name="rows in another order, keyed", stage=stage, where=text, make=_keyed, bits=True, quick=stage == "D")


def _keyed(stage: Stage) -> Made:
    order = np.random.default_rng(5).permutation(stage.tokens)
    own, other = trial.kept(stage, "w11"), trial.run(stage.part(order), "w11")
    way = join(stage.rows, stage.rows[order], source_a="a", source_b="b")
    a = {name: _taken(value, way.a) for name, value in own.tensors.items()}
    b = {name: _taken(value, way.b) for name, value in other.tensors.items()}
    sides = own.with_tensors(a), other.with_tensors(b)
    return trial.evidence_of(stage.part(way.a), *sides), *sides


def _taken(value: np.ndarray | Blocks, rows: np.ndarray) -> np.ndarray | Blocks:
    return value.take(rows) if isinstance(value, Blocks) else value[rows]


def _chunks() -> Iterator[Change]:
    """The prompt taken in other chunks: the stage reads the same bits and writes the same bits."""
    for size in (16, 100):
        text = partial(scenes.text, "D")
        yield Change(name=f"prefill in chunks of {size}", stage="D", where=text, make=partial(_chunked, size), bits=True)


def _chunked(size: int, stage: Stage) -> Made:
    pieces: list[np.ndarray] = []

    def tap(layer, name, pos0, value):
        if layer == scenes.LAYER and name == "ffn-in":
            pieces.append(value)

    engine = Engine(scenes.model(), variants=dict(REFERENCE), threads=scenes.THREADS, chunk=size)
    engine.prefill(encode(prompt("prose"))[: scenes.TOKENS], tap=tap, names=frozenset({"ffn-in"}))
    again = replace(stage, inputs={"ffn-in": np.concatenate(pieces)})
    return _against(stage, "w11", trial.run(again, "w11"))


CHANGES: tuple[Change, ...] = (*_pairs(), *_same_bits(), *_orders(), *_order_of_rows(), *_chunks())
