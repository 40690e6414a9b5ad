"""The row of another token, of the other run, or of what the buffer held before.

Columns are matched by their bits, eight at a time, so that a tile that kept old values is found as well as a whole row; where no
bits match, by oracle: a row that breaks its own bound and keeps that of another token, column for column, is that token's.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edge0verify.compare.causes import match
from edge0verify.compare.causes.rest import SIDES, Finding, Rest, bits, holds
from edge0verify.compare.elements import Mask
from edge0verify.records import causes
from edge0verify.records.evidence import Side

CAUSE = causes.STALE
HERE = ("this run", "the other run", "this run, by oracle")
"""Sources whose rows are the same tokens' as here."""
FEWEST = 4
"""Matching elements below which a row says nothing."""


def plan(rest: Rest) -> bool:
    return rest.unit != "id"


def execute(rest: Rest) -> Finding:
    mask = np.zeros(rest.open.shape, bool)
    notes: list[str] = []
    for name in SIDES:
        broken = rest.broken(name)
        if not broken.any():
            continue
        for what, origin, part in _origins(rest, name, broken):
            fresh = part & ~mask
            if fresh.any():
                rows = np.flatnonzero(fresh.any(axis=1))
                notes.append(_note(name, what, rows, origin[rows]))
                mask |= part
    return Finding(mask=mask, note="; ".join(dict.fromkeys(notes)))


def _origins(rest: Rest, name: str, broken: Mask) -> Iterator[tuple[str, np.ndarray, Mask]]:
    """(where from, source row of each row, elements) for every place that rows of one side came from."""
    side, other = rest.side(name), rest.side("b" if name == "a" else "a")
    found = bits(side, rest.unit)
    sources = [("this run", side, ~rest.open)]
    if rest.keyed and holds(other, rest.unit):
        sources.append(("the other run", other, ~rest.open))
    sources += _before(rest, name)
    known = rest.memory.setdefault("stale rows", {})
    for what, source, usable in sources:
        theirs = bits(source, rest.unit)
        if theirs.shape[1] != found.shape[1] or theirs.dtype != found.dtype:
            continue
        if rest.unit in ("scale", "sum") and (name, what) in known:
            # A handful of scales repeats by chance; the codes of the row have told where it came from.
            origin = known[name, what]
        elif rest.entry.columns < match.WIDTH:
            continue
        else:
            origin = match.by_bits(found, broken, theirs, usable)
        part = broken & match.same_bits(found, theirs, origin)
        if usable is not None:
            part &= origin[:, None] != np.arange(len(origin))[:, None]
        part &= _tells(found, part, broken, origin, certain=(name, what) in known)[:, None]
        if part.any():
            known.setdefault((name, what), np.where(part.any(axis=1), origin, -1))
            yield what, origin, part
            broken = broken & ~part
    if not rest.keyed:
        return
    origin = known.get((name, "oracle"))
    if origin is None:
        origin = match.by_oracle(rest.narrowed(broken), name)
    rows = np.flatnonzero(origin >= 0)
    if rows.size:
        known[name, "oracle"] = origin
        part = np.zeros(broken.shape, bool)
        part[rows] = match.keeps_row_of(rest, name, rows, origin[rows])
        yield "this run, by oracle", origin, part & broken


def _before(rest: Rest, name: str) -> list[tuple[str, Side, None]]:
    """What the side's buffer held before, read once for all entries of the tensor."""
    side, key = rest.side(name), ("held before", name)
    if key not in rest.memory:
        rest.memory[key] = side.previous() if side.previous is not None else None
    found = rest.memory[key]
    return [(*found, None)] if found is not None and holds(found[1], rest.unit) else []


def _tells(found: np.ndarray, part: Mask, broken: Mask, origin: np.ndarray, *, certain: bool) -> np.ndarray:
    """bool [n]: rows whose match cannot be chance: enough elements, most of what is broken, and not all of one value."""
    hits = part.sum(axis=1)
    enough = (hits > 0) & (certain | (hits >= FEWEST)) & (hits * 2 >= broken.sum(axis=1)) & (origin >= 0)
    if certain:
        return enough
    for row in np.flatnonzero(enough):
        if len(np.unique(found[row, part[row]])) < min(3, hits[row]):
            enough[row] = False
    return enough


def _note(name: str, what: str, rows: np.ndarray, origin: np.ndarray) -> str:
    shift = origin - rows
    text = f"{name} holds rows of {what}"
    if what in HERE and len(rows) > 1 and (shift == shift[0]).all():
        return text + f", each from {abs(int(shift[0]))} rows {'above' if shift[0] < 0 else 'below'}"
    shown = ", ".join(f"row {int(r)} that of {int(o)}" for r, o in zip(rows[:3], origin[:3]))
    return text + f": {shown}" + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")
