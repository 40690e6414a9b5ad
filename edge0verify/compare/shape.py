"""Which rule a set of places follows: one index, a tile, the tail after the last full tile, a stride, a period."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

TILES = (8, 16, 32, 64, 128, 256)
"""Widths of tiles that kernels are written in."""
LONGEST_PERIOD = 256
FILLED = 0.5
"""Share of a rule's places that must be in the set: some conform by chance though the rule holds."""
SURE = 20.0
"""How unlikely (natural log) it must be that scattered places follow a rule by chance: one in 5e8."""


@dataclass(frozen=True)
class Line:
    """A rule for indices along one side of a tensor."""

    kind: str
    """'all', 'one', 'tile', 'tail', 'range', 'stride' or 'period'."""
    text: str
    """'column 37', 'columns 64..95, a tile of 32'."""
    inside: np.ndarray
    """bool [size]: where the rule holds."""

    @property
    def restricts(self) -> bool:
        return self.kind != "all"


def _indices(first: int, last: int, noun: str) -> str:
    return f"{noun} {first}" if first == last else f"{noun}s {first}..{last}"


def _between(size: int, first: int, stop: int) -> np.ndarray:
    inside = np.zeros(size, bool)
    inside[first:stop] = True
    return inside


def line(places: np.ndarray, noun: str) -> Line | None:
    """The tightest rule that holds all of `places` (bool [size], at least one) and is filled by them, or None."""
    size, found = len(places), np.flatnonzero(places)
    first, last = int(found[0]), int(found[-1])
    if size == 1:
        return Line("all", f"the only {noun}", places)
    if first == last:
        return Line("one", f"{noun} {first}", places)
    whole = Line("all", f"all {noun}s", np.ones(size, bool))
    rules = [rule for rule in (_period(places, noun), _tail(size, first, noun), _tile(size, first, last, noun)) if rule is not None]
    rules += [Line("range", _indices(first, last, noun), _between(size, first, last + 1)), whole]
    filled = [rule for rule in rules if len(found) >= FILLED * np.count_nonzero(rule.inside)]
    # Of rules that hold about the same places the one that says more about the kernel: a tail or a tile rather than a range.
    smallest = min((np.count_nonzero(rule.inside) for rule in filled), default=0)
    best = next((rule for rule in filled if np.count_nonzero(rule.inside) <= 1.15 * smallest), None)
    if best is not None and best.kind == "range" and _reaches(first, size - 1 - last, len(found) / (last - first + 1), size):
        return whole
    return best


def _reaches(before: int, after: int, filled: float, size: int) -> bool:
    """Whether a range that is `filled` so far ends short of both ends by no more than chance leaves out."""
    return before + after <= 0.1 * size and all((1 - filled) ** gap > 0.01 for gap in (before, after) if gap)


def _tail(size: int, first: int, noun: str) -> Line | None:
    """The tail after the last full tile: of the tiles whose tail holds `first`, the one with the shortest tail."""
    tails = [(size - size // tile * tile, tile) for tile in TILES if size % tile and size // tile * tile <= first and size > tile]
    if not tails:
        return None
    length, tile = min(tails, key=lambda t: (t[0], -t[1]))
    start = size - length
    text = f"{_indices(start, size - 1, noun)}, the tail after the last full tile of {tile}"
    return Line("tail", text, _between(size, start, size))


def _tile(size: int, first: int, last: int, noun: str) -> Line | None:
    for tile in TILES:
        if first // tile == last // tile and tile < size:
            start, stop = first // tile * tile, min(first // tile * tile + tile, size)
            return Line("tile", f"{_indices(start, stop - 1, noun)}, a tile of {tile}", _between(size, start, stop))
    return None


def _period(places: np.ndarray, noun: str) -> Line | None:
    """`noun` number r (or a few of them) of every p, the same everywhere; the shortest period that fits clearly."""
    size, found = len(places), np.flatnonzero(places)
    for period in range(2, min(LONGEST_PERIOD, size // 3) + 1):
        residues = np.unique(found % period)
        if 2 * len(residues) > period:
            continue
        inside = np.isin(np.arange(size) % period, residues)
        gain = len(found) * math.log(period / len(residues)) - len(residues) * math.log(period) - math.log(LONGEST_PERIOD)
        if len(found) >= 0.6 * np.count_nonzero(inside) and gain > 7:
            if len(residues) == 1:
                return Line("stride", f"every {period}th {noun} from {int(residues[0])}", inside)
            return Line("period", f"{_some(residues, noun)} of every {period}", inside)
    return None


def _some(residues: np.ndarray, noun: str) -> str:
    first, last = int(residues[0]), int(residues[-1])
    if last - first + 1 == len(residues):
        return _indices(first, last, noun)
    listed = ", ".join(map(str, residues[:6].tolist()))
    return f"{noun}s {listed}{' ...' if len(residues) > 6 else ''}"


@dataclass(frozen=True)
class Area:
    """A rule for places of a tensor."""

    text: str
    mask: np.ndarray
    """bool [n, m]"""
    kinds: tuple[str, str]
    """Rules of rows and columns."""


def area(mask: np.ndarray, *, row: str = "row", column: str = "column") -> Area | None:
    """The rule that all places of `mask` (bool [n, m]) follow, rows and columns apart; None where chance explains it as well."""
    n, m = mask.shape
    count = int(np.count_nonzero(mask))
    rows, columns = line(mask.any(axis=1), row), line(mask.any(axis=0), column)
    if rows is not None and columns is not None and (rows.restricts or columns.restricts):
        covered = int(np.count_nonzero(rows.inside)) * int(np.count_nonzero(columns.inside))
        if count >= 0.25 * covered and covered < n * m and count * math.log(n * m / covered) > SURE:
            parts = [rule.text for rule in (columns, rows) if rule.restricts]
            return Area(" of ".join(parts), rows.inside[:, None] & columns.inside[None, :], (rows.kind, columns.kind))
    return _flat(mask) or _densest(mask, row, column)


def _densest(mask: np.ndarray, row: str, column: str) -> Area | None:
    """A rule for the few columns, or else rows, that are mostly wrong: the rest may be another fault."""
    for axis in (0, 1):
        share = mask.mean(axis=axis)
        dense = share >= FILLED
        # They must stand out: in a tensor that is wrong all over, the densest columns are but the end of the scatter.
        if 0 < np.count_nonzero(dense) < 0.5 * len(dense) and share[~dense].max() < 0.5 * share[dense].min():
            part = mask & (dense[None, :] if axis == 0 else dense[:, None])
            if np.count_nonzero(part) < np.count_nonzero(mask):
                found = area(part, row=row, column=column)
                if found is not None:
                    return found
    return None


def _flat(mask: np.ndarray) -> Area | None:
    """A stride that runs on over the ends of rows."""
    found = np.flatnonzero(mask)
    if len(found) < 8:
        return None
    step = int(np.gcd.reduce(np.diff(found)))
    first = int(found[0]) % step if step else 0
    if step < 2 or len(found) * step < 0.6 * (mask.size - first) or len(found) * math.log(step) <= SURE:
        return None
    inside = np.zeros(mask.size, bool)
    inside[first::step] = True
    return Area(f"every {step}th element in memory from {first}", inside.reshape(mask.shape), ("stride", "stride"))
