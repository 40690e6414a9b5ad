"""One weight tensor as it is stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge0verify.numerics import formats


@dataclass(frozen=True, eq=False)
class Tensor:
    """A weight tensor.

    `shape` is the logical one, row major, the dot's length last.  `raw` is uint8 [..., rows, bytes per row] for a block format,
    float32 of `shape` for F32, and uint16 (the bits) of `shape` for BF16.  It is a read-only view; copy it to change it.
    """

    name: str
    fmt: str
    shape: tuple[int, ...]
    raw: np.ndarray

    @property
    def quantised(self) -> bool:
        """Whether the weights are blocks of integer codes."""
        return self.fmt not in ("F32", "BF16")

    def values(self) -> np.ndarray:
        """The weights decoded: float32 of `shape`."""
        if self.fmt == "F32":
            return self.raw
        if self.fmt == "BF16":
            return (self.raw.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(formats.decode(self.fmt, self.raw), np.float32).reshape(self.shape)
