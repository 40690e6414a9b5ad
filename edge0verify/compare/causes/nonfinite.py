"""NaN or Inf where a number should be. The poison is not counted here: it says more, see `unwritten`."""

from __future__ import annotations

from edge0verify.compare.elements import Elements, Mask
from edge0verify.records import causes

CAUSE = causes.NONFINITE


def plan(e: Elements) -> bool:
    return bool(e.a.nonfinite.any() or e.b.nonfinite.any())


def execute(e: Elements) -> Mask:
    return e.a.nonfinite | e.b.nonfinite


def on_one_side(e: Elements) -> Mask:
    """A fault of that side; on both sides at once it may be the input's, which proves nothing."""
    return e.a.nonfinite ^ e.b.nonfinite
