"""Orders in which scales [rows, blocks] end up by mistake; each gives what would then stand in their places, or None."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def _transposed(s: np.ndarray) -> np.ndarray:
    """Stored [blocks, rows], read as [rows, blocks]."""
    return np.ascontiguousarray(s.T).reshape(s.shape)


def _untransposed(s: np.ndarray) -> np.ndarray:
    return s.reshape(s.shape[::-1]).T


def _tiles(s: np.ndarray) -> np.ndarray | None:
    """The order in which block-scaled matrix units read scales: tiles of 128 rows by 4, 32 x 4 x 4 inside, read as plain rows."""
    rows, blocks = s.shape
    if rows % 128 or blocks % 4:
        return None
    tiled = s.reshape(rows // 128, 4, 32, blocks // 4, 4)  # row = tile*128 + group*32 + lane
    return np.ascontiguousarray(tiled.transpose(0, 3, 2, 1, 4)).reshape(s.shape)


def _untiles(s: np.ndarray) -> np.ndarray | None:
    rows, blocks = s.shape
    if rows % 128 or blocks % 4:
        return None
    tiled = s.reshape(rows // 128, blocks // 4, 32, 4, 4)
    return np.ascontiguousarray(tiled.transpose(0, 3, 2, 1, 4)).reshape(s.shape)


def _pairs(s: np.ndarray) -> np.ndarray | None:
    return None if s.shape[1] % 2 else s.reshape(len(s), -1, 2)[:, :, ::-1].reshape(s.shape)


ORDERS: dict[str, Callable[[np.ndarray], np.ndarray | None]] = {
    "are those of the next block": lambda s: np.roll(s, -1, axis=1),
    "are those of the block before": lambda s: np.roll(s, 1, axis=1),
    "are those of the next row": lambda s: np.roll(s, -1, axis=0),
    "are those of the row before": lambda s: np.roll(s, 1, axis=0),
    "are exchanged in pairs": _pairs,
    "stand in reverse": lambda s: s[:, ::-1],
    "are stored by column and read by row": _transposed,
    "are stored by row and read by column": _untransposed,
    "are swizzled in tiles of 128 rows by 4 blocks and read as plain rows": _tiles,
    "are plain rows and read as tiles of 128 rows by 4 blocks": _untiles,
}
"""What is said of the scales -> the scales that would then be used."""
