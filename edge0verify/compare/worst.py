"""The few elements of an entry that a reader should look at first."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from edge0verify.compare.causes import NUMBER
from edge0verify.compare.entry import Entry
from edge0verify.records import causes as names
from edge0verify.records.evidence import Evidence
from edge0verify.records.verdict import Worst

SURVEYED = 4096
"""Candidates whose size is looked at; more say nothing new and cost memory."""

_BAD = np.array([cause.name in names.FAILING or cause is names.LOOSE for cause in names.ORDER] + [False] * (256 - len(names.ORDER)))


def pick(evidence: Evidence, entry: Entry, comparator: ModuleType, labels: np.ndarray, k: int) -> tuple[Worst, ...]:
    """At most `k` elements: the first that break a contract and those furthest off; with none, the largest differences."""
    wrong = np.flatnonzero(_BAD[labels])
    chosen = wrong if wrong.size else np.flatnonzero(labels != NUMBER[names.EQUAL.name])
    if not chosen.size or k <= 0:
        return ()
    surveyed = chosen[np.unique(np.linspace(0, chosen.size - 1, min(chosen.size, SURVEYED)).astype(np.int64))]
    sizes = _sizes(evidence, entry, comparator, surveyed)
    by_size = surveyed[np.argsort(-sizes, kind="stable")]
    first = chosen[: (k + 1) // 2] if wrong.size else chosen[:0]
    order = list(dict.fromkeys([*map(int, first), *map(int, by_size)]))[:k]
    return tuple(_worst(evidence, entry, comparator, labels, flat) for flat in order)


def _sizes(evidence: Evidence, entry: Entry, comparator: ModuleType, flat: np.ndarray) -> np.ndarray:
    """How far apart the sides are at the given elements, NaN counting as furthest."""
    rows, columns = np.divmod(flat, entry.columns)
    with np.errstate(invalid="ignore"):
        a, b = (comparator.values(side, entry.unit, rows, columns) for side in (evidence.a, evidence.b))
        gaps = np.abs(a - b)
    return np.where(np.isnan(gaps), np.inf, gaps)


def _worst(evidence: Evidence, entry: Entry, comparator: ModuleType, labels: np.ndarray, flat: int) -> Worst:
    row, column = divmod(flat, entry.columns)
    rows = np.array([row])
    e = comparator.elements(evidence, rows)[entry.name]
    at_fault_is_b = e.b.keeps is not None and not e.b.keeps[0, column] and (e.a.keeps is None or bool(e.a.keeps[0, column]))
    span = comparator.limits(evidence, evidence.b if at_fault_is_b else evidence.a, rows)[entry.name]
    key = None if evidence.keys is None else tuple(int(part) for part in evidence.keys[row])
    return Worst(
        index=(row, column),
        key=key,
        a=comparator.shown(evidence.a, entry.unit, row, column),
        b=comparator.shown(evidence.b, entry.unit, row, column),
        bound=None if span is None else (_number(span[0][0, column]), _number(span[1][0, column])),
        cause=names.ORDER[labels.reshape(-1)[flat]].name,
    )


def _number(value) -> float | int:
    return int(value) if np.issubdtype(np.asarray(value).dtype, np.integer) else float(value)
