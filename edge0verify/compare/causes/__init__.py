"""The table of causes: one module each, asked in the order of decision, the first that applies to an element wins.

A module holds `CAUSE`, a pure decision `plan(...) -> bool` (can it apply here at all?) and `execute(...)` (to which elements?).
Element causes look at one element at a time, run on chunks of rows and give a mask; rest causes look at the whole tensor, run once,
on what breaks a contract and is still without a cause, and give a `Finding`. `cascade` also renames conforming differences in rows
whose inputs differ; `biased` is said of a tensor, not of elements. A new cause is a module here and its place in a tuple.
"""

from __future__ import annotations

import numpy as np

from edge0verify.compare.causes import (
    by_design,
    cascade,
    equal,
    loose,
    nonfinite,
    operands,
    permuted,
    rounding,
    route_flip,
    stale,
    structured,
    tie,
    unexplained,
    unwritten,
)
from edge0verify.compare.causes.rest import Finding, Rest
from edge0verify.compare.elements import Elements
from edge0verify.records import causes as names

ELEMENT_CAUSES = (nonfinite, unwritten, by_design, equal, loose, operands, tie, rounding)
REST_CAUSES = (stale, permuted, structured, route_flip, cascade, unexplained)
NEEDS_CONTRACT = (structured, unexplained)
"""Rest causes that say a contract is broken: not asked where there is none."""

NUMBER = {cause.name: i for i, cause in enumerate(names.ORDER)}
"""Cause name -> the number that stands for it in a label array."""
OPEN = 255
"""Label of an element without a cause yet."""


def _check_order() -> None:
    """The tuples above must follow the order that records declares, or a verdict depends on who edited which."""
    order = [NUMBER[module.CAUSE.name] for module in (*ELEMENT_CAUSES, *REST_CAUSES)]
    if order != sorted(set(order)):
        raise AssertionError("causes are registered out of the order of decision, or twice")


_check_order()


def label_chunk(elements: Elements) -> np.ndarray:
    """uint8 [rows, columns]: each element's cause by `NUMBER`, or `OPEN` where a contract is broken."""
    labels = np.full(elements.same.shape, OPEN, np.uint8)
    for module in ELEMENT_CAUSES:
        left = labels == OPEN
        if not left.any():
            break
        if module.plan(elements):
            labels[left & module.execute(elements)] = NUMBER[module.CAUSE.name]
    return labels


def mark_inherited(labels: np.ndarray, elements: Elements, inherited: np.ndarray, remains: np.ndarray | None = None) -> None:
    """Name what differs and conforms `cascade` in the rows whose inputs differ (`inherited`, bool [rows]), but for what a replay
    on identical inputs leaves (`remains`, bool like labels); in place."""
    mask = cascade.inherits(elements, labels, inherited, NUMBER)
    labels[mask if remains is None else mask & ~remains] = NUMBER[cascade.CAUSE.name]


def label_rest(labels: np.ndarray, rest: Rest) -> dict[str, Finding]:
    """Give every `OPEN` element of `labels` (uint8 [n, m], changed in place) one of the rest causes; what each cause found.

    Elements that nothing judges (`rest.unjudged`) end as `loose` where no other rest cause claims them: nothing says that they
    break a contract.
    """
    found: dict[str, Finding] = {}
    left = rest.open
    for module in REST_CAUSES:
        if not left.any():
            break
        narrowed = rest.narrowed(left)
        if (rest.unjudged and module in NEEDS_CONTRACT) or not module.plan(narrowed):
            continue
        finding = module.execute(narrowed)
        mask = finding.mask & left
        if mask.any():
            labels[mask] = NUMBER[module.CAUSE.name]
            found[module.CAUSE.name] = finding
            left = left & ~mask
    if rest.unjudged:
        labels[left] = NUMBER[names.LOOSE.name]
    elif left.any():
        raise AssertionError("an element was left without a cause")
    return found


def count(labels: np.ndarray) -> dict[str, int]:
    """Elements per cause, in order of decision, causes without any left out. Adds up to the size of `labels`."""
    numbers = np.bincount(labels.ravel(), minlength=len(names.ORDER))
    return {cause.name: int(n) for cause, n in zip(names.ORDER, numbers) if n}
