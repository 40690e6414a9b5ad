"""Codes, scales or block sums differ though both sides conform on operands that agree: a value near a border."""

from __future__ import annotations

from edge0verify.compare.elements import Elements, Mask
from edge0verify.records import causes

CAUSE = causes.TIE


def plan(e: Elements) -> bool:
    return e.unit in ("code", "scale", "sum")


def execute(e: Elements) -> Mask:
    return e.conforming()
