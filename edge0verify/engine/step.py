"""Results of the forward pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Step:
    """What one forward over n tokens gives.

    logits_last float32 [vocab] of the last token; top8_ids int32 [8] and top8_logprobs float32 [8] of it; logits float32
    [n, vocab] or None; hidden float32 [n, hidden], the residual stream before the final norm; rows int32 [n, 3]: pass, position,
    accepted (1 until a verify window takes tokens back).
    """

    logits_last: np.ndarray
    top8_ids: np.ndarray
    top8_logprobs: np.ndarray
    logits: np.ndarray | None
    hidden: np.ndarray
    rows: np.ndarray


def row_keys(pass_index: int, first: int, n: int) -> np.ndarray:
    """Keys of n tokens from position `first` on: int32 [n, 3] of (pass, position, accepted = 1)."""
    return np.stack([np.full(n, pass_index), np.arange(first, first + n), np.ones(n)], axis=1).astype(np.int32)
