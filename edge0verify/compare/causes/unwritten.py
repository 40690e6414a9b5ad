"""The output still holds the poison it was preset to. The same poison on both sides is a fault of both."""

from __future__ import annotations

from edge0verify.compare.elements import Elements, Mask
from edge0verify.records import causes

CAUSE = causes.UNWRITTEN


def plan(e: Elements) -> bool:
    return bool(e.a.poison.any() or e.b.poison.any())


def execute(e: Elements) -> Mask:
    return e.a.poison | e.b.poison
