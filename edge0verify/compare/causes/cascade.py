"""Inherited: each side conforms on its own inputs, and those differ already.

Such a difference is found as `operands`, `tie` or `rounding` first: the operands do differ, and conformance was judged. That the
operands came in differently, not through the variant, says where to look; so those labels give way to this one, and no other does.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edge0verify.compare.elements import Elements, Mask
from edge0verify.records import causes

CAUSE = causes.CASCADE
GIVES_WAY = (causes.OPERANDS, causes.TIE, causes.ROUNDING)


def execute(e: Elements, labels: np.ndarray, inherited: np.ndarray, numbers: Mapping[str, int], still_open: int) -> Mask:
    """Where `labels` (uint8 [rows, columns]) give way, in the rows that `inherited` (bool [rows]) names."""
    if not inherited.any():
        return np.zeros(labels.shape, bool)
    given = np.isin(labels, [numbers[cause.name] for cause in GIVES_WAY])
    if e.unit == "id" and e.judged:                       # ids that differ have no cause of their own among those that conform
        given |= (labels == still_open) & e.conforming()
    return given & inherited[:, None]
