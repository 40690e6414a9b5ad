"""The limits that turn counts into a status."""

from __future__ import annotations

from dataclasses import dataclass

LOOSE_SHARE = 1e-3
"""Measured on the embedded model: 0. Above this share the bounds say too little to call the rest a pass."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Limits of one comparison."""

    loose_share: float = LOOSE_SHARE
    """Largest share of `loose` elements in one entry that is not INCONCLUSIVE."""
    allow_foreign: bool = False
    """Whether a side whose engine counts no launches may pass."""
    worst: int = 5
    """Elements shown per entry."""


DEFAULT = Policy()
