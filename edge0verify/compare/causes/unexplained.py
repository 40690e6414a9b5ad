"""What is left: a side does not conform, and no other cause claims the element."""

from __future__ import annotations

import numpy as np

from edge0verify.compare.causes.rest import SIDES, Finding, Rest
from edge0verify.dump.ids import valid
from edge0verify.records import causes

CAUSE = causes.UNEXPLAINED


def plan(rest: Rest) -> bool:
    return True


def execute(rest: Rest) -> Finding:
    hints = [_ids(rest, name) for name in SIDES] if rest.unit == "id" else []
    return Finding(mask=rest.open, note="; ".join(hint for hint in hints if hint))


def _ids(rest: Rest, name: str) -> str:
    """Rows whose ids no router may choose."""
    ids = rest.side(name).ids
    wrong = np.flatnonzero(~valid(ids, rest.evidence.limit).all(axis=1))
    if not wrong.size:
        return ""
    shown = ", ".join(map(str, wrong[:6].tolist())) + (f" and {wrong.size - 6} more" if wrong.size > 6 else "")
    return f"ids of {name} repeat or are out of range in row{'s' if wrong.size > 1 else ''} {shown}"
