"""Kernels whose outputs lie between guard bytes and whose inputs lie between NaNs."""

from __future__ import annotations

import numpy as np

from edge0verify.variants.device_kernels import DeviceKernels, kernels_on
from edge0verify.variants.kernels import Kernels

GUARD = 256
"""Bytes on either side."""
GUARD_BYTE = 0xA5


class GuardedKernels(Kernels):
    """Every output at an address that is aligned to nothing but the element, guard bytes on either side."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._buffers: list[np.ndarray] = []

    def poisoned(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        fresh = super().poisoned(shape, dtype)
        lead = GUARD + fresh.itemsize
        buffer = np.full(lead + fresh.nbytes + GUARD, GUARD_BYTE, np.uint8)
        buffer[lead : lead + fresh.nbytes] = fresh.reshape(-1).view(np.uint8)
        self._buffers.append(buffer)
        return buffer[lead : lead + fresh.nbytes].view(dtype).reshape(shape)

    def touched(self) -> int:
        """Guard bytes written since the last call."""
        edges = [np.concatenate([b[:GUARD], b[-GUARD:]]) for b in self._buffers]
        self._buffers.clear()
        return sum(int((edge != GUARD_BYTE).sum()) for edge in edges)


class GuardedDeviceKernels(DeviceKernels):
    """The same for a device: guards lie in its own memory and are looked at when a call ends."""

    @classmethod
    def on(cls, device: str) -> GuardedDeviceKernels:
        """The kernels of 'cuda:0'; raises Absent with the reason where it is not here."""
        kernels = kernels_on(device, guarded=True)
        kernels.__class__ = cls
        return kernels

    def touched(self) -> int:
        """Guard bytes written since the last call."""
        return self.ops.touched()


def between_nans(x: np.ndarray) -> np.ndarray:
    """The same float32 rows inside a buffer of NaN: a kernel that reads past their end shows it."""
    buffer = np.full(x.size + 2 * GUARD, np.nan, np.float32)
    inner = buffer[GUARD : GUARD + x.size].reshape(x.shape)
    inner[:] = x
    return inner
