"""One chunk of one compared entry, as the causes see it: masks over its elements, and nothing about where they came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Mask = np.ndarray
"""bool [rows, columns]"""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One side's elements against its own contract."""

    nonfinite: Mask
    """NaN or Inf, poison apart."""
    poison: Mask
    """Still what the output was preset to."""
    keeps: Mask | None
    """Conforms; None where there is nothing to judge it by."""
    loose: Mask | None = None
    """The bound is too wide to tell: other values would have conformed too, and this is not the oracle's own."""


@dataclass(frozen=True, kw_only=True)
class Elements:
    """Both sides of one chunk. `values_*` are f64 for metrics; `raw_*` f16 or f32 where distance in ulps makes sense."""

    unit: str
    """'code', 'scale', 'sum', 'row' or 'id'."""
    same: Mask
    """Same bits, any NaN being the same as any other."""
    a: Judged
    b: Judged
    values_a: np.ndarray
    values_b: np.ndarray
    raw_a: np.ndarray | None = None
    raw_b: np.ndarray | None = None
    code_gap: np.ndarray | None = None
    """int, |code a - code b|."""
    apart: Callable[[], Mask] | None = None
    """Where the two own oracles give different results; None where both have the same operands."""
    declared: bool | Mask = False
    """A flag declares that this tensor differs: all of it, or the rows of a bool [rows, 1]."""

    @property
    def judged(self) -> bool:
        """Whether both sides could be judged."""
        return self.a.keeps is not None and self.b.keeps is not None

    def conforming(self) -> Mask:
        """Where neither side is known to break its contract."""
        kept = [side.keeps for side in (self.a, self.b) if side.keeps is not None]
        if not kept:
            return np.ones(self.same.shape, bool)
        return kept[0] if len(kept) == 1 else kept[0] & kept[1]

    def loose(self) -> Mask | None:
        """Where the bound of either side cannot tell; None for nowhere."""
        masks = [side.loose for side in (self.a, self.b) if side.loose is not None]
        if not masks:
            return None
        return masks[0] if len(masks) == 1 else masks[0] | masks[1]
