"""Inherited: the stage's inputs differ already, so the difference began in an earlier stage.

Told in two ways. Where each side conforms on its own inputs and those differ, the difference is found as `operands`, `tie` or
`rounding` first; that the operands came in differently, not through the variant, says where to look, so those labels give way to
this one, and no other does. And where a replay on identical inputs removes a difference that nothing else bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edge0verify.compare.causes.rest import Finding, Rest
from edge0verify.compare.elements import Elements, Mask
from edge0verify.records import causes

CAUSE = causes.CASCADE
GIVES_WAY = (causes.OPERANDS, causes.TIE, causes.ROUNDING)


def inherits(e: Elements, labels: np.ndarray, inherited: np.ndarray, numbers: Mapping[str, int]) -> Mask:
    """Where `labels` (uint8 [rows, columns]) give way, in the rows that `inherited` (bool [rows]) names."""
    if not inherited.any():
        return np.zeros(labels.shape, bool)
    return np.isin(labels, [numbers[cause.name] for cause in GIVES_WAY]) & inherited[:, None]


def plan(rest: Rest) -> bool:
    return rest.evidence.removed is not None or (rest.unit == "id" and rest.evidence.inherited is not None)


def execute(rest: Rest) -> Finding:
    """What the replay removes; and ids that each side chose by the rule from logits that came in different (beyond a near tie)."""
    mask = np.zeros(rest.open.shape, bool)
    if rest.evidence.removed is not None:
        mask |= rest.open & rest.evidence.removed[:, None]
    if rest.unit == "id" and rest.evidence.inherited is not None:
        mask |= rest.open & ~rest.broken("a") & ~rest.broken("b") & rest.evidence.inherited[:, None]
    return Finding(mask=mask)
