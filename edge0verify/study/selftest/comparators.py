"""The comparators broken on purpose: a suite whose comparator cannot fail must fail its own test.

Each entry replaces one function of the suite by one that is wrong in a way that such code has been wrong before, and is undone
afterwards. A broken comparator that judges every trial of the battery right is one that nobody would notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from edge0verify.compare import causes, stored, tensors
from edge0verify.compare.causes import biased, equal, nonfinite, operands, permuted, stale, structured, unwritten
from edge0verify.compare.comparators import blocks, rows
from edge0verify.numerics import conform
from edge0verify.records.causes import FAILING
from edge0verify.records.evidence import Engagement
from edge0verify.records.status import PASS

Replace = Callable[[Any], Any]


@dataclass(frozen=True)
class Broken:
    """One function of the suite and what takes its place."""

    name: str
    """What the comparator does wrong: 'takes every row for conforming'."""
    owner: ModuleType | type
    attribute: str
    wrong: Replace
    """Given the right function, the wrong one."""
    by: str
    """The trials that should notice, with '; ' between: tried first, the rest of the battery after them."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The suite with this fault in it."""
        right = self.owner.__dict__[self.attribute]
        wrong = self.wrong(right.fget if isinstance(right, property) else right)
        setattr(self.owner, self.attribute, property(wrong) if isinstance(right, property) else wrong)
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, right)


def _all_like(value: bool) -> Replace:
    return lambda right: lambda first, *more, **named: np.full(np.asarray(first).shape, value)


def _never(right):
    return lambda *given, **named: False


def _nothing(right):
    return lambda *given, **named: []


def _one_side(right):
    """Looks at the side it is called for first and takes the other for right."""
    calls = []

    def judge(side, part):
        calls.append(side)
        found = right(side, part)
        if len(calls) % 2:
            return found
        fine = np.zeros(found.nonfinite.shape, bool)
        return rows.Judged(nonfinite=fine, poison=fine, keeps=~fine)

    return judge


def _wider(right):
    def interval(*given):
        low, high = right(*given)
        return low - 1, high + 1

    return interval


def _tolerant(right):
    """np.isclose with its defaults in place of the bound."""
    return lambda y, t, bound: np.isclose(y, t)


def _codes_alone(right):
    return lambda evidence: right(evidence)[:1]


def _first_rows(right):
    """Compares the first full tile of rows and says so of all."""

    def keeps(y, t, bound):
        found = right(y, t, bound)
        found[16:] = True
        return found

    return keeps


def _every_code(right):
    return lambda stored_blocks, may: np.ones(stored_blocks.codes.shape, bool)


def _every_scale(right):
    return lambda side, stored_blocks, may: np.ones(stored_blocks.d.shape, bool)


def _every_sum(right):
    return lambda side, part, may: np.ones(side.blocks.d[part].shape, bool)


def _flags(right):
    return lambda evidence, limits, **named: [biased.Biased("b", "mean of z: t = 99.0", {"bias_t": 99.0})]


def _always_pass(right):
    def decide(facts, policy):
        return PASS, []

    return decide


def _no_conforming(right):
    return lambda e: e.same


def _no_failing_counts(right):
    return lambda labels: {cause: n for cause, n in right(labels).items() if cause not in FAILING} or {"equal": labels.size}


_BY_ROWS = "exponent-bits; column-block-zero; two-rows-swapped"

BROKEN: tuple[Broken, ...] = (
    Broken("says equal always", equal, "execute", lambda right: lambda e: np.ones(e.same.shape, bool), "next-block-scale D w11"),
    Broken("takes equal bits for right", equal, "execute", _no_conforming, "next-block-scale D w11 both sides"),
    Broken("passes whatever it finds", tensors, "decide", _always_pass, "next-block-scale D w11"),
    Broken("takes every row for conforming", rows, "rows_conform", _all_like(True), _BY_ROWS),
    Broken("takes no row for conforming", rows, "rows_conform", _all_like(False), "mmvq - w11"),
    Broken("judges rows by np.isclose", rows, "rows_conform", _tolerant, "mmvq - mmq"),
    Broken(
        "judges the first tile of rows alone", rows, "rows_conform", _first_rows, "stale-row; two-rows-swapped; stale-every-16th"
    ),
    Broken("judges one side alone", rows, "judge", _one_side, _BY_ROWS),
    Broken("ignores scales and sums", blocks, "entries", _codes_alone, "store-next-scale D w11"),
    Broken("takes every code for conforming", stored, "codes_keep", _every_code, "codes-off-by-one"),
    Broken("takes every scale for conforming", stored, "scales_keep", _every_scale, "store-next-scale D w11"),
    Broken("takes every sum for conforming", stored, "sums_keep", _every_sum, "sum-of-codes D w11"),
    Broken("forgives codes off by one", conform, "code_interval", _wider, "one-code"),
    Broken("ignores NaN", nonfinite, "plan", _never, "nan-value; sum-overflow; last-row-nan D w11"),
    Broken("ignores poison", unwritten, "plan", _never, "half-tile-unwritten; scales-unwritten; skip-last-partial-tile D w11"),
    Broken("never calls rows stale", stale, "plan", _never, "stale-token D w11; stale-row; stale-every-16th"),
    Broken("never calls rows permuted", permuted, "plan", _never, "two-rows-swapped; rows-rotated; rows-shuffled"),
    Broken("finds no structure", structured, "plan", _never, "weight-row-shifted D w11; column-block-zero; lanes-once D mmvq"),
    Broken("explains nothing by operands", operands, "plan", _never, "mmvq - mmq; ref - mmq"),
    Broken("explains everything by operands", operands, "execute", lambda right: lambda e: np.ones(e.same.shape, bool), "one-code"),
    Broken("has a bias test that never flags", biased, "execute", _nothing, "activation-scale-ulp D w11"),
    Broken("has a bias test that always flags", biased, "execute", _flags, "mmvq - w11"),
    Broken("drops failing causes from its counts", causes, "count", _no_failing_counts, "next-block-scale D w11"),
    Broken("takes every kernel for engaged", Engagement, "engaged", lambda right: lambda self: True, "kernel never launched"),
    Broken("takes no kernel for engaged", Engagement, "engaged", lambda right: lambda self: False, "mmvq - w11"),
)
