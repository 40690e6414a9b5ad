"""Where a row came from: another row with the same bits, or one whose oracle it keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edge0verify.compare import comparators
from edge0verify.compare.causes.rest import Rest
from edge0verify.compare.elements import Mask
from edge0verify.records.evidence import Evidence, Side

WIDTH = 8
"""Columns that are matched together: as narrow as the narrowest tile."""
COMMON = 4
"""A chunk of bits that more rows than this hold (zeros, say) tells nothing about where a row came from."""
WINDOW = 1 << 26
"""Elements whose rows are searched for each other; of more, rows are searched for near their own place, window by window."""
SAMPLED = 256
"""Rows that are searched for by value before all of them are."""
_MULTIPLIERS = np.random.default_rng(7).integers(1, 2**63, WIDTH, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def chunk_keys(bits: np.ndarray) -> np.ndarray:
    """uint64 [n, ceil(m/8)]: a hash of every 8 columns of unsigned integers [n, m]."""
    n, m = bits.shape
    out = np.zeros((n, -(-m // WIDTH)), np.uint64)
    with np.errstate(over="ignore"):
        for j in range(min(WIDTH, m)):
            part = bits[:, j::WIDTH].astype(np.uint64)
            part += np.uint64(1)
            part *= _MULTIPLIERS[j]
            out[:, : part.shape[1]] += part
        out ^= out >> np.uint64(29)
        out *= np.uint64(0xBF58476D1CE4E5B9)
    return out


def row_keys(bits: np.ndarray) -> np.ndarray:
    """uint64 [n]: a hash of each row."""
    n, m = bits.shape
    weights = np.random.default_rng(11).integers(1, 2**63, -(-m // WIDTH), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    out, step = np.empty(n, np.uint64), max(1, WINDOW // max(1, m))
    with np.errstate(over="ignore"):
        for lo in range(0, n, step):
            out[lo : lo + step] = (chunk_keys(bits[lo : lo + step]) * weights).sum(axis=1, dtype=np.uint64)
    return out


def by_bits(found: np.ndarray, broken: Mask, source: np.ndarray, usable: Mask | None) -> np.ndarray:
    """int64 [n]: the row of `source` whose bits a row of `found` holds in its broken columns, -1 for none.

    found [n, m], source [k, m]: unsigned integers. Only elements of source that are `usable` (bool [k, m]; None: all) count.
    Columns are matched eight at a time, and the row that most of them name wins.
    """
    step = max(1, WINDOW // max(1, found.shape[1]))
    if len(found) <= step:
        return _by_bits(found, broken, source, usable)
    parts = []
    for lo in range(0, len(found), step):
        part = slice(lo, lo + step)
        origin = _by_bits(found[part], broken[part], source[part], None if usable is None else usable[part])
        parts.append(np.where(origin >= 0, origin + lo, -1))
    return np.concatenate(parts)


def _by_bits(found: np.ndarray, broken: Mask, source: np.ndarray, usable: Mask | None) -> np.ndarray:
    """`by_bits` of rows that fit one window."""
    n, chunks = len(found), -(-found.shape[1] // WIDTH)
    wanted = _per_chunk(broken, any_of=True)
    good = None if usable is None else _per_chunk(usable, any_of=False)
    mine, theirs = chunk_keys(found), chunk_keys(source)
    rows, sources = [], []
    for c in range(chunks):
        asking = np.flatnonzero(wanted[:, c])
        offered = np.arange(len(source)) if good is None else np.flatnonzero(good[:, c])
        if not asking.size or not offered.size:
            continue
        offered = offered[np.argsort(theirs[offered, c], kind="stable")]
        keys = theirs[offered, c]
        first = np.searchsorted(keys, mine[asking, c], "left")
        count = np.searchsorted(keys, mine[asking, c], "right") - first
        hit = (count > 0) & (count <= COMMON)
        rows.append(asking[hit])
        sources.append(offered[first[hit]])
    origin = np.full(n, -1, np.int64)
    if rows:
        pairs, votes = np.unique(np.stack([np.concatenate(rows), np.concatenate(sources)], axis=1), axis=0, return_counts=True)
        best = pairs[np.lexsort((votes, pairs[:, 0]))]  # the last of each row has most votes
        origin[best[:, 0]] = best[:, 1]
    return origin


def _per_chunk(mask: Mask, *, any_of: bool) -> Mask:
    starts = np.arange(0, mask.shape[1], WIDTH)
    return (np.logical_or if any_of else np.logical_and).reduceat(mask, starts, axis=1)


def same_bits(found: np.ndarray, source: np.ndarray, origin: np.ndarray) -> Mask:
    """bool like found: the bits of the row that `origin` names; False in rows without one."""
    mask = np.zeros(found.shape, bool)
    rows = np.flatnonzero(origin >= 0)
    mask[rows] = found[rows] == source[origin[rows]]
    return mask


def values(side: Side) -> np.ndarray:
    """f64 [n, m] of f32 rows or stored blocks."""
    return side.rows.astype(np.float64) if side.blocks is None and side.rows is not None else side.blocks.values()


def nearest(found: np.ndarray, source: np.ndarray, own: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """(index int64 [r], distance f64 [r]): the row of source [k, m] nearest to each row of found [r, m], own[i] left out.

    Distance squared, relative to the row of source. By matrix products over at most 256 columns.
    """
    columns = np.unique(np.linspace(0, found.shape[1] - 1, min(found.shape[1], 256)).astype(np.int64))
    x, y = (np.nan_to_num(v[:, columns], nan=0.0, posinf=0.0, neginf=0.0) for v in (found, source))
    with np.errstate(over="ignore"):
        size = np.einsum("km,km->k", y, y)
    index, distance = np.empty(len(x), np.int64), np.empty(len(x))
    step = max(1, (1 << 22) // max(1, len(y)))
    with np.errstate(all="ignore"):
        for lo in range(0, len(x), step):
            part = slice(lo, min(lo + step, len(x)))
            gap = size[None, :] - 2 * (x[part] @ y.T)
            gap += np.einsum("rm,rm->r", x[part], x[part])[:, None]
            if own is not None:
                inside = np.flatnonzero(own[part] >= 0)
                gap[inside, own[part][inside]] = np.inf
            index[part] = gap.argmin(axis=1)
            at = np.arange(gap.shape[0])
            distance[part] = np.maximum(gap[at, index[part]], 0) / size[index[part]]
    return index, distance


def keeps_row_of(rest: Rest, name: str, rows: np.ndarray, origin: np.ndarray) -> Mask:
    """bool [r, m]: elements of one side's `rows` that would keep the contract of row `origin`, by oracle and bound."""
    side = rest.side(name)
    assert side.t is not None and side.bound is not None
    moved = Side(
        rows=None if side.rows is None or side.blocks is not None else side.rows[rows],
        blocks=None if side.blocks is None else side.blocks.take(rows),
        t=side.t[origin],
        bound=side.bound[origin],
        store=side.store,
    )
    other = Evidence(layer=rest.evidence.layer, tensor=rest.evidence.tensor, kind=rest.evidence.kind, a=moved, b=replace(moved))
    judged = comparators.find(other.kind).elements(other, slice(None)).get(rest.entry.name)
    if judged is None or judged.a.keeps is None:
        return np.zeros((len(rows), rest.entry.columns), bool)
    # A row whose bound cannot tell is kept by anything.
    return judged.a.keeps if judged.a.loose is None else judged.a.keeps & ~judged.a.loose


def by_oracle(rest: Rest, name: str) -> np.ndarray:
    """int64 [n]: the other row whose oracle a broken row of side `name` keeps within its bound, -1 for none.

    A sample of the broken rows is tried first; all of them only where some of it fit.
    """
    side, broken = rest.side(name), rest.broken(name)
    origin = np.full(len(broken), -1, np.int64)
    if side.t is None or side.bound is None or rest.unit not in ("row", "code"):
        return origin
    rows = np.flatnonzero(broken.sum(axis=1) * 4 >= broken.shape[1])  # a row of another token is wrong in many columns
    sample = rows if len(rows) <= SAMPLED else rows[np.linspace(0, len(rows) - 1, SAMPLED).astype(np.int64)]
    for tried in (sample, rows):
        if not tried.size:
            return origin
        index, _ = nearest(values(side)[tried], side.t, tried)
        fits = (keeps_row_of(rest, name, tried, index) | ~broken[tried]).all(axis=1)
        origin[tried[fits]] = index[fits]
        if len(tried) == len(rows) or not fits.any():
            return origin
    return origin
