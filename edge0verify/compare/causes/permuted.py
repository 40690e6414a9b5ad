"""The right rows in another order. Only for rows without keys: keyed rows are joined by them, and order says nothing.

Exact first, by a hash of the whole row with everything stored in it; then rows that found no partner, by the nearest row that is
left, which must keep the bound where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge0verify.compare.causes import match
from edge0verify.compare.causes.rest import SIDES, Finding, Rest, bits, holds
from edge0verify.records import causes
from edge0verify.records.evidence import Side

CAUSE = causes.PERMUTED
LIMIT = 8192
"""Rows that are searched for by value; more would take minutes."""
NEAR = 1e-3
"""Squared relative distance of a row from its partner: rounding and requantising stay below."""
NEARER = 0.1
"""A partner must be at least so much nearer (squared) than the row in the same place."""


@dataclass(frozen=True)
class Order:
    """b's row i is a's row source[i]; -1 where no row of a is."""

    source: np.ndarray
    exact: int
    """Moved rows whose partner has the same bits."""

    @property
    def moved(self) -> np.ndarray:
        """Rows that are not where they belong."""
        return np.flatnonzero((self.source >= 0) & (self.source != np.arange(len(self.source))))


def plan(rest: Rest) -> bool:
    return not rest.keyed and rest.unit != "id" and len(rest.open) > 1


def execute(rest: Rest) -> Finding:
    if "order" not in rest.memory:
        rest.memory["order"] = find(rest)
    order: Order = rest.memory["order"]
    mask = np.zeros(rest.open.shape, bool)
    moved = order.moved
    if len(moved) < 2:
        return Finding(mask=mask)
    mask[moved] = True
    return Finding(mask=mask & rest.open, note=describe(order), figures={"rows": float(len(moved))})


def find(rest: Rest) -> Order:
    """The order of b's rows among a's."""
    keys = [_whole_rows(rest.side(name)) for name in SIDES]
    source = np.full(len(rest.open), -1, np.int64)
    source[keys[0] == keys[1]] = np.flatnonzero(keys[0] == keys[1])
    left_a, left_b = (np.flatnonzero(source < 0) for _ in SIDES)
    a, b = left_a[np.argsort(keys[0][left_a], kind="stable")], left_b[np.argsort(keys[1][left_b], kind="stable")]
    source[b] = _pair_up(keys[0][a], keys[1][b], a)
    exact = int(np.count_nonzero((source >= 0) & (source != np.arange(len(source)))))
    return Order(_by_value(rest, source), exact)


def _whole_rows(side: Side) -> np.ndarray:
    """uint64 [n]: a hash of everything a row stores."""
    units = ["row"] if side.blocks is None else [unit for unit in ("code", "scale", "sum") if holds(side, unit)]
    with np.errstate(over="ignore"):
        keys = np.zeros(len(bits(side, units[0])), np.uint64)
        for unit in units:
            keys = keys * np.uint64(0x9E3779B97F4A7C15) + match.row_keys(bits(side, unit))
    return keys


def _pair_up(keys_a: np.ndarray, keys_b: np.ndarray, rows_a: np.ndarray) -> np.ndarray:
    """For each of the sorted keys_b the row of a with that key, equal ones in turn; -1 for none."""
    first = np.searchsorted(keys_a, keys_b, "left")
    turn = np.arange(len(keys_b)) - np.searchsorted(keys_b, keys_b, "left")
    at = first + turn
    inside = at < np.searchsorted(keys_a, keys_b, "right")
    found = np.full(len(keys_b), -1, np.int64)
    found[inside] = rows_a[at[inside]]
    return found


def _by_value(rest: Rest, source: np.ndarray) -> np.ndarray:
    """Fill in partners for rows that have none, where one row of a is near and the one in the same place is not."""
    rows = np.flatnonzero((source < 0) & rest.open.any(axis=1))
    free = np.setdiff1d(np.flatnonzero(np.ones(len(source), bool)), source[source >= 0])
    if len(rows) < 2 or len(free) < 2 or max(len(rows), len(free)) > LIMIT:
        return source
    a, b = (np.nan_to_num(match.values(rest.side(name))) for name in SIDES)
    index, distance = match.nearest(b[rows], a[free], None)
    origin = free[index]
    with np.errstate(all="ignore"):
        gap = b[rows] - a[rows]
        size = np.maximum(np.einsum("rm,rm->r", a[rows], a[rows]), np.finfo(np.float64).tiny)
        here = np.einsum("rm,rm->r", gap, gap) / size
    good = (origin != rows) & (distance <= NEAR) & (distance <= NEARER * here)
    _, first = np.unique(np.where(good, origin, -1 - rows), return_index=True)
    once = np.zeros(len(rows), bool)
    once[first] = True
    good &= once
    at = np.flatnonzero(good)
    bounded = all(rest.side(name).t is not None and rest.side(name).bound is not None for name in SIDES)
    if at.size and bounded and rest.unit in ("row", "code"):
        # b's row keeps the contract of the place it came from, or a's that of the place it should be in.
        right = match.keeps_row_of(rest, "b", rows[at], origin[at]).all(axis=1)
        good[at] = right | match.keeps_row_of(rest, "a", origin[at], rows[at]).all(axis=1)
    out = source.copy()
    out[rows[good]] = origin[good]
    return out


def statistics(order: Order) -> dict[str, float]:
    """Cycles, runs and locality of the moved rows.

    {rows, exact, cycles, longest_cycle, runs, longest_run, median_shift, largest_shift}; a run is a stretch of rows that moved
    together. Cycles are counted where every moved row's place was taken by another moved one.
    """
    moved, source = order.moved, order.source
    shift = np.abs(source[moved] - moved)
    together = (np.diff(moved) == 1) & (np.diff(source[moved]) == 1)
    lengths = np.diff(np.concatenate([[-1], np.flatnonzero(~together), [len(moved) - 1]]))
    cycles = _cycles(moved, source)
    return {
        "rows": len(moved),
        "exact": order.exact,
        "cycles": len(cycles),
        "longest_cycle": max(cycles, default=0),
        "runs": len(lengths),
        "longest_run": int(lengths.max()),
        "median_shift": float(np.median(shift)),
        "largest_shift": int(shift.max()),
    }


def _cycles(moved: np.ndarray, source: np.ndarray) -> list[int]:
    """Lengths of the cycles; none where the moved rows do not map onto each other."""
    if not np.array_equal(np.sort(source[moved]), moved):
        return []
    seen, lengths = set(), []
    for start in moved.tolist():
        length, at = 0, start
        while at not in seen:
            seen.add(at)
            at, length = int(source[at]), length + 1
        if length:
            lengths.append(length)
    return lengths


def describe(order: Order) -> str:
    s = statistics(order)
    n = len(order.source)
    text = f"{s['rows']} of {n} rows stand elsewhere ({s['exact']} bit for bit), "
    if s["cycles"]:
        text += f"{s['cycles']} cycle{'s' if s['cycles'] != 1 else ''}, the longest of {s['longest_cycle']}, "
    text += f"{s['runs']} run{'s' if s['runs'] != 1 else ''}, the longest of {s['longest_run']}, "
    return text + f"moved by {s['median_shift']:g} rows in the median, {s['largest_shift']} at most"
