"""What the causes that need a whole tensor see: the elements that no element cause claimed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge0verify.compare.elements import Mask
from edge0verify.records.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class Rest:
    """Elements of one entry that break a contract and have no cause yet."""

    evidence: Evidence
    """The whole tensor, both sides."""
    unit: str
    """'code', 'scale', 'sum', 'row' or 'id'."""
    open: Mask
    """bool [n, m] over the entry: still without a cause."""

    def rows(self) -> np.ndarray:
        """Indices of the rows that hold an open element."""
        return np.flatnonzero(self.open.any(axis=1))
