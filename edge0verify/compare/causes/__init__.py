"""The table of causes: one module each, asked in the order of decision, the first that applies to an element wins.

A module holds `CAUSE`, a pure decision `plan(...) -> bool` (can it apply here at all?) and `execute(...) -> mask` (to which
elements?). Element causes look at one element at a time and run on chunks of rows; rest causes look at the whole tensor and
run once, on what breaks a contract and is still without a cause. `cascade` stands beside the tuples: it renames conforming
differences in rows whose inputs differ. A new cause is a module here and its place in a tuple.
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
    rounding,
    tie,
    unexplained,
    unwritten,
)
from edge0verify.compare.causes.rest import Rest
from edge0verify.compare.elements import Elements
from edge0verify.records import causes as names

ELEMENT_CAUSES = (nonfinite, unwritten, by_design, equal, loose, operands, tie, rounding)
REST_CAUSES = (unexplained,)

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


def mark_inherited(labels: np.ndarray, elements: Elements, inherited: np.ndarray) -> None:
    """Name what differs and conforms `cascade` in the rows whose inputs differ (`inherited`, bool [rows]); in place."""
    labels[cascade.execute(elements, labels, inherited, NUMBER, OPEN)] = NUMBER[cascade.CAUSE.name]


def label_rest(labels: np.ndarray, rest: Rest) -> None:
    """Give every `OPEN` element of `labels` (uint8 [n, m], changed in place) one of the rest causes."""
    for module in REST_CAUSES:
        left = labels == OPEN
        if not left.any():
            return
        narrowed = Rest(evidence=rest.evidence, unit=rest.unit, open=left)
        if module.plan(narrowed):
            labels[left & module.execute(narrowed)] = NUMBER[module.CAUSE.name]
    if (labels == OPEN).any():
        raise AssertionError("an element was left without a cause")


def count(labels: np.ndarray) -> dict[str, int]:
    """Elements per cause, in order of decision, causes without any left out. Adds up to the size of `labels`."""
    numbers = np.bincount(labels.ravel(), minlength=len(names.ORDER))
    return {cause.name: int(n) for cause, n in zip(names.ORDER, numbers) if n}
