"""One comparator per kind of tensor: it checks that the sides can be compared, and cuts them into elements.

A comparator offers `check(evidence)`, `size(side)`, `entries(evidence)`, `elements(evidence, rows)`, and to show single elements
`values(side, unit, rows, columns)`, `shown(side, unit, row, column)` and `limits(evidence, side, rows)`. A new kind is a module
here and a line in `COMPARATORS`.
"""

from __future__ import annotations

from types import ModuleType

from edge0verify.compare.comparators import blocks, ids, rows
from edge0verify.records.errors import InputError

COMPARATORS: dict[str, ModuleType] = {"rows": rows, "blocks": blocks, "ids": ids}


def find(kind: str) -> ModuleType:
    """The comparator of a kind of evidence."""
    if kind not in COMPARATORS:
        raise InputError(f"kind of evidence: expected one of {', '.join(COMPARATORS)}, found {kind!r}")
    return COMPARATORS[kind]
