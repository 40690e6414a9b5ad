"""Same bits, and conforming. Equal faults on both sides are not equal results."""

from __future__ import annotations

from edge0verify.compare.elements import Elements, Mask
from edge0verify.records import causes

CAUSE = causes.EQUAL


def plan(e: Elements) -> bool:
    return True


def execute(e: Elements) -> Mask:
    mask = e.same & e.conforming()
    loose = e.loose()
    return mask if loose is None else mask & ~loose
