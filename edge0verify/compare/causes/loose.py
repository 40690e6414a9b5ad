"""The bound cannot tell: it is too wide for this element, or there is none."""

from __future__ import annotations

from edge0verify.compare.elements import Elements, Mask
from edge0verify.records import causes

CAUSE = causes.LOOSE


def plan(e: Elements) -> bool:
    return not e.judged or e.loose() is not None


def execute(e: Elements) -> Mask:
    loose = e.loose()
    return e.conforming() if loose is None or not e.judged else e.conforming() & loose
