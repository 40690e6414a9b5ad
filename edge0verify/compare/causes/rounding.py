"""Row values differ though both sides conform on operands that agree: another order of the same operations."""

from __future__ import annotations

from edge0verify.compare.elements import Elements, Mask
from edge0verify.records import causes

CAUSE = causes.ROUNDING


def plan(e: Elements) -> bool:
    return e.unit == "row"


def execute(e: Elements) -> Mask:
    return e.conforming()
