"""Evidence of small stages: real weights' formats, rows of every variant made by the transcription, faults put in by hand."""

from dataclasses import replace

import numpy as np

from edge0verify.numerics import oracle
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.quantise import quantise
from edge0verify.records.evidence import Evidence, Side
from tests.numerics.scenes import scene

SHAPE = {"n": 97, "m": 64, "k": 1056}
"""97 rows (one past a tile of 96), two blocks stored, 33 blocks of 32 inside."""


def rows_side(variant, stage="D", **shape):
    """f32 rows of a variant beside its own oracle and bound."""
    s = scene(stage, variant, **(shape or SHAPE))
    t, bound = s.oracle
    return Side(rows=s.y.copy(), t=t, bound=bound)


def blocks_side(variant, *, known_rows=True, **shape):
    """What D stores of those rows; with `known_rows` the rows are part of the evidence."""
    s = scene("D", variant, **(shape or SHAPE))
    t, bound = s.oracle
    stored = copied(quantise(s.contract.store, s.y))
    return Side(rows=s.y.copy() if known_rows else None, blocks=stored, t=t, bound=bound, store=s.contract.store)


def operand_side(variant):
    """The operands of D, which must be the declared quantiser of rows that are known."""
    s = scene("D", variant, **SHAPE)
    x = np.random.default_rng(1).standard_normal((SHAPE["n"], SHAPE["k"])).astype(np.float32)
    return Side(blocks=copied(s.blocks), exact=quantise(s.contract.operand, x), store=s.contract.operand)


def stage_oracle():
    """f64 rows from activations that are not quantised."""
    s = scene("D", "mmvq", **SHAPE)
    x = np.random.default_rng(1).standard_normal((SHAPE["n"], SHAPE["k"])).astype(np.float32)
    weights = s.weights.q.astype(np.float64) * np.repeat(s.weights.d.astype(np.float64), 32, axis=1)
    return x.astype(np.float64) @ weights.T


def copied(blocks):
    return Blocks(blocks.codes.copy(), blocks.d.copy(), None if blocks.s is None else blocks.s.copy(), blocks.quantiser)


def pair(a, b, *, tensor="d-xl", kind="rows", **more):
    return Evidence(layer=3, stage="D", tensor=tensor, kind=kind, a=a, b=b, **more)


def blocks_pair(a, b, **more):
    return pair(a, b, tensor="d-xlq", kind="blocks", **more)


def edited(side, *, rows=None, codes=None, d=None, s=None):
    """A copy of a side after functions that change its arrays in place."""
    changed = replace(
        side,
        rows=None if side.rows is None else side.rows.copy(),
        blocks=None if side.blocks is None else copied(side.blocks),
    )
    for function, array in (
        (rows, changed.rows),
        (codes, changed.blocks and changed.blocks.codes),
        (d, changed.blocks and changed.blocks.d),
        (s, changed.blocks and changed.blocks.s),
    ):
        if function is not None:
            function(array)
    return changed


def at(index, value):
    """Set one place."""

    def change(array):
        array[index] = value

    return change


def blocks_of_rows(y, t, bound, store="mmvq", known_rows=True):
    return Side(rows=y if known_rows else None, blocks=copied(quantise(store, y)), t=t, bound=bound, store=store)


def oracle_of(variant):
    s = scene("D", variant, **SHAPE)
    return oracle.own_oracle(s.contract, s.weights, s.blocks)
