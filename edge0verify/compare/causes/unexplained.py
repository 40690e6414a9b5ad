"""What is left: a side does not conform, and no other cause claims the element."""

from __future__ import annotations

import numpy as np

from edge0verify.compare.causes.rest import SIDES, Finding, Rest
from edge0verify.compare.comparators.ids import valid
from edge0verify.records import causes

CAUSE = causes.UNEXPLAINED
_SAMPLED = 4096


def plan(rest: Rest) -> bool:
    return True


def execute(rest: Rest) -> Finding:
    hints = [hint for name in SIDES if (hint := (_ids(rest, name) if rest.unit == "id" else _factor(rest, name)))]
    return Finding(mask=rest.open, note="; ".join(hints))


def _ids(rest: Rest, name: str) -> str:
    """Rows whose ids no router may choose."""
    ids = rest.side(name).ids
    wrong = np.flatnonzero(~valid(ids, rest.evidence.limit).all(axis=1))
    if not wrong.size:
        return ""
    shown = ", ".join(map(str, wrong[:6].tolist())) + (f" and {wrong.size - 6} more" if wrong.size > 6 else "")
    return f"ids of {name} repeat or are out of range in row{'s' if wrong.size > 1 else ''} {shown}"


def _factor(rest: Rest, name: str) -> str:
    """A factor that turns the oracle into the rows, for the reader: -1 is a sign, 2 a scale."""
    side, broken = rest.side(name), rest.broken(name)
    if rest.unit != "row" or side.t is None or np.count_nonzero(broken) < 32:
        return ""
    at = np.flatnonzero(broken)
    at = at[np.unique(np.linspace(0, at.size - 1, min(at.size, _SAMPLED)).astype(np.int64))]
    y, t = side.rows.reshape(-1)[at].astype(np.float64), side.t.reshape(-1)[at]
    square = float(np.dot(t, t))
    if not square > 0:
        return ""
    factor = float(np.dot(y, t)) / square
    left = float(np.linalg.norm(y - factor * t)) / np.sqrt(square)
    if abs(factor - 1) < 1e-3 or left > 1e-4 * max(abs(factor), 1):
        return ""
    return f"{name} is {factor:.6g} times what it should be there"
