"""A flag of the engine declares that this tensor differs."""

from __future__ import annotations

import numpy as np

from edge0verify.compare.elements import Elements, Mask
from edge0verify.records import causes

CAUSE = causes.BY_DESIGN


def plan(e: Elements) -> bool:
    return bool(np.any(e.declared))


def execute(e: Elements) -> Mask:
    return ~e.same & e.declared
