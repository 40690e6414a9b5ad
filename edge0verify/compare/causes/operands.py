"""Both sides conform, and the float64 oracles of their operands already give different results."""

from __future__ import annotations

from edge0verify.compare.elements import Elements, Mask
from edge0verify.records import causes

CAUSE = causes.OPERANDS


def plan(e: Elements) -> bool:
    return e.apart is not None and not bool(e.same.all())


def execute(e: Elements) -> Mask:
    assert e.apart is not None
    return e.conforming() & e.apart()
