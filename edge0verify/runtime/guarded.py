"""Guards in a device's memory: outputs between bytes of a pattern, inputs between bytes that are NaN as any float."""

from __future__ import annotations

from typing import Any

import numpy as np

from edge0verify.runtime.protocol import Buffer

GUARD = 256
"""Bytes on either side; a multiple of what vector loads ask for, so that guarded memory is aligned as any other."""
GUARD_BYTE, NAN_BYTE = 0xA5, 0xFF


class Guards:
    """Laid over DeviceOps or TunedOps.  `touched()` counts the guard bytes that were written up to the last release()."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._guarded: list[tuple[Buffer, int]] = []
        self._written = 0
        super().__init__(*args, **options)

    def _between(self, nbytes: int, byte: int) -> tuple[Buffer, Buffer]:
        whole = self.buffer(nbytes + 2 * GUARD)
        self.runtime.memset(whole, byte, 1, self.stream)
        return whole, whole.at(GUARD, nbytes)

    def _poisoned(self, count: int, kind: str) -> Buffer:
        width = {"f32": 4, "f16": 2, "codes": 1}[kind]
        whole, inner = self._between(count * width, GUARD_BYTE)
        self._poison(inner, kind)
        self._guarded.append((whole, count * width))
        return inner

    def upload(self, array: np.ndarray) -> Buffer:
        """Input bytes with NaN before and behind: a kernel that reads past an end shows it."""
        _, inner = self._between(array.nbytes, NAN_BYTE)
        self.runtime.synchronise(self.device, self.stream)
        self.runtime.copy(inner, np.ascontiguousarray(array))
        return inner

    def release(self) -> None:
        """Looks at every guard, then gives the buffers back."""
        for whole, nbytes in self._guarded:
            for at in (0, GUARD + nbytes):
                self._written += int((self.download(whole.at(at, GUARD), np.uint8, (GUARD,)) != GUARD_BYTE).sum())
        self._guarded.clear()
        super().release()

    def touched(self) -> int:
        """Guard bytes written since the last call."""
        written, self._written = self._written, 0
        return written
