"""A rule of the kernel's loops fits: blocks in each other's places, a part of the sum, or a tile, tail, stride, column, block.

Rules of values come first, since they say more: blocks that hold what another block should hold, and a result that lacks part of
its sum over the inner dimension or has it twice. Then rules of place, each accepted only where scattered faults would follow it
once in 10^8. At most three rules are named; what none of them claims stays unexplained.
"""

from __future__ import annotations

import numpy as np

from edge0verify.compare import shape
from edge0verify.compare.causes import mapped, moved_blocks, split
from edge0verify.compare.causes.rest import SIDES, Finding, Rest, bits
from edge0verify.compare.elements import Mask
from edge0verify.records import causes

CAUSE = causes.STRUCTURED
MOST = 3
"""Rules named per side."""
FEWEST = 8
"""Elements below which no rule is looked for."""
_COLUMN = {"scale": "block", "sum": "block", "id": "slot"}


def plan(rest: Rest) -> bool:
    return any(rest.judged(name) for name in SIDES) and np.count_nonzero(rest.open) >= 4


def execute(rest: Rest) -> Finding:
    mask = np.zeros(rest.open.shape, bool)
    notes: dict[str, str] = {}
    for name in SIDES:
        left = rest.broken(name)
        for rule in (moved_blocks.find, split.find, mapped.find, _place, _place, _place):
            if np.count_nonzero(left) < 4 or notes.get(name, "").count(";") >= MOST - 1:
                break
            found = rule(rest.narrowed(left), name)
            if found is None:
                continue
            text, part = found
            notes[name] = f"{notes[name]}; {text}" if name in notes else text
            mask |= part & left
            left = left & ~part
    same = len(notes) == 2 and len(set(notes.values())) == 1
    note = f"a and b: {notes['a']}" if same else ". ".join(f"{name}: {text}" for name, text in notes.items())
    return Finding(mask=mask, note=note)


def _place(rest: Rest, name: str) -> tuple[str, Mask] | None:
    """A rule of place for what is broken on one side, with the first wrong place and what stands there."""
    broken = rest.broken(name)
    found = shape.area(broken, column=_COLUMN.get(rest.unit, "column"))
    if found is None:
        return None
    text = found.text
    if "tail" in found.kinds:
        axis = 0 if found.kinds[1] == "tail" else 1
        noun = _COLUMN.get(rest.unit, "column") if axis == 0 else "row"
        text += f", first wrong {noun} {int(np.flatnonzero(broken.any(axis=axis))[0])}"
    held = np.unique(bits(rest.side(name), rest.unit)[broken]) if rest.unit != "id" else ()
    if len(held) == 1:
        text += ", all zero" if held[0] == 0 else ", all of one value"
    return text, found.mask
