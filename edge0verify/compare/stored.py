"""Blocks that a variant stored, against what its contract lets it store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge0verify.numerics import conform
from edge0verify.numerics.blocks import BLOCK, Blocks, same_floats
from edge0verify.numerics.quantise import F16_SCALE, quantise
from edge0verify.numerics.rounding import EPS, to_f16
from edge0verify.records.evidence import Side

Span = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Allowed:
    """What one side may store in some rows: by enclosure, by a declared quantiser of known rows, or both; else None."""

    exact: Blocks | None
    scale: Span | None
    """f64 [n, m/32], the f32 scale before it is stored."""
    code: Span | None
    """int16 [n, m]."""
    wide: np.ndarray | None
    """bool [n, m]: the enclosure is `loose`, and the known rows do not prove the element either."""


def store_of(side: Side) -> str:
    """Name of the side's store quantiser."""
    assert side.blocks is not None
    return side.store or side.blocks.quantiser


def allowed(side: Side, part: slice | np.ndarray) -> Allowed:
    """What `side` may hold in rows `part`."""
    store = store_of(side)
    exact = side.exact.take(part) if side.exact is not None else None
    if exact is None and side.rows is not None:
        exact = quantise(store, side.rows[part])
    if side.t is None or side.bound is None:
        return Allowed(exact, None, None, None)
    t, bound = side.t[part], side.bound[part]
    lo, hi = conform.enclose_scale(t, bound, store)
    code = conform.code_interval(t, bound, lo, hi, store)
    wide = conform.loose_codes(*code, lo)
    if exact is not None and side.rows is not None and wide.any():
        # Rows within their bound, stored by the declared quantiser bit for bit: nothing is left for the enclosure to tell.
        proven = conform.rows_conform(side.rows[part], t, bound).reshape(len(t), -1, BLOCK).all(axis=2)
        wide = wide & ~np.repeat(proven, BLOCK, axis=1)
    return Allowed(exact, (lo, hi), code, wide)


def codes_keep(blocks: Blocks, may: Allowed) -> np.ndarray | None:
    """bool [n, m], or None where nothing says what the codes may be."""
    keeps = None
    if may.code is not None:
        keeps = (blocks.codes >= may.code[0]) & (blocks.codes <= may.code[1])
    if may.exact is not None:
        same = blocks.codes == may.exact.codes
        keeps = same if keeps is None else keeps & same
    return keeps


def scales_keep(side: Side, blocks: Blocks, may: Allowed) -> np.ndarray | None:
    """bool [n, m/32], or None. A scale of another width than the contract stores never conforms."""
    if may.exact is None and may.scale is None:
        return None
    if (blocks.d.dtype == np.float16) != F16_SCALE[store_of(side)]:
        return np.zeros(blocks.d.shape, bool)
    keeps = None if may.scale is None else conform.scales_conform(blocks.d, *may.scale)
    if may.exact is not None:
        same = same_scales(blocks.d, may.exact.d)
        keeps = same if keeps is None else keeps & same
    return keeps


def sum_span(side: Side, part: slice | np.ndarray, may: Allowed) -> Span | None:
    """Lowest and highest block sum, f64 [n, m/32] before it is stored as f16: for rows that are not known."""
    if side.t is None or side.bound is None:
        return None
    assert side.blocks is not None and may.scale is not None
    if store_of(side) == "mmvq":
        t = side.t[part].reshape(*may.scale[0].shape, BLOCK)
        bound = side.bound[part].reshape(t.shape)
        # Five butterfly steps over values that are each off by at most their bound.
        reach = bound.sum(axis=2) + 5 * EPS / (1 - 5 * EPS) * (np.abs(t) + bound).sum(axis=2)
        centre = t.sum(axis=2)
        return centre - reach, centre + reach
    total = side.blocks.codes[part].reshape(*may.scale[0].shape, BLOCK).sum(axis=2, dtype=np.int64).astype(np.float64)
    ends = np.stack([total * may.scale[0], total * may.scale[1]])
    reach = EPS * np.abs(ends).max(axis=0)
    return ends.min(axis=0) - reach, ends.max(axis=0) + reach


def sums_keep(side: Side, part: slice | np.ndarray, may: Allowed) -> np.ndarray | None:
    """bool [n, m/32], or None. Bit for bit where the rows are known; s is never judged by ulp."""
    assert side.blocks is not None and side.blocks.s is not None
    s = side.blocks.s[part]
    if may.exact is not None and may.exact.s is not None:
        return same_floats(s, may.exact.s)
    span = sum_span(side, part, may)
    if span is None:
        return None
    with np.errstate(invalid="ignore"):
        return (s >= to_f16(span[0])) & (s <= to_f16(span[1]))


def same_scales(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Same bits; an f16 and an f32 scale are compared as the f32 that the dot uses."""
    if a.dtype == b.dtype:
        return same_floats(a, b)
    return same_floats(a.astype(np.float32), b.astype(np.float32))
