"""Evidence of small stages: real weights' formats, rows of every variant made by the transcription, faults put in by hand."""

from dataclasses import replace

import numpy as np

from edge0verify.numerics import oracle
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.quantise import quantise
from edge0verify.records.evidence import Evidence, Router, Side
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


def token_keys(n=SHAPE["n"]):
    """i32 [n, 3] keys of n tokens of one pass."""
    return np.stack([np.zeros(n), np.arange(n), np.ones(n)], axis=1).astype(np.int32)


def terms_of(variant):
    """terms(rows, width) -> f64 [K/width, r, m] of the side that `rows_side` gives."""
    s = scene("D", variant, **SHAPE)

    def terms(rows, width=32):
        return np.concatenate([dots * scale for _, dots, scale in oracle.block_dots(s.weights, s.blocks.take(rows), width)])

    return terms


def routed(n=40, experts=16, k=4, seed=5):
    """(logits f32 [n, experts], bound f64, ids i32 [n, k]) of a router."""
    logits = np.random.default_rng(seed).standard_normal((n, experts)).astype(np.float32)
    return logits, np.full(logits.shape, 1e-6), chosen_of(logits, k)


def chosen_of(logits, k=4):
    """The k largest logits of each row, ties to the lower id."""
    return np.argsort(-logits.astype(np.float64), axis=1, kind="stable")[:, :k].astype(np.int32)


def near_tie(gap, row=7, seed=5):
    """Evidence of a router whose two best logits of one row change places: they differ by `gap` on either side."""
    a, bound, _ = routed(seed=seed)
    best = np.argsort(-a[row])[:2]
    a[row, best[1]] = a[row, best[0]] - np.float32(gap)
    b = a.copy()
    b[row, best] = a[row, best[::-1]]
    sides = [Side(ids=chosen_of(logits)) for logits in (a, b)]
    return pair(*sides, tensor="route-ids", kind="ids", limit=16, router=Router(a=a, b=b, bound=bound))


def blocks_of_rows(y, t, bound, store="mmvq", known_rows=True):
    return Side(rows=y if known_rows else None, blocks=copied(quantise(store, y)), t=t, bound=bound, store=store)


def oracle_of(variant):
    s = scene("D", variant, **SHAPE)
    return oracle.own_oracle(s.contract, s.weights, s.blocks)
