"""The CPU as a device: the portable kernels' own build, launched by name over host memory with the protocol's rules.

Streams are in order at once: every call has finished when it returns.  `edge0verify.variants` has vectorised kernels beside these.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edge0verify.runtime.protocol import Argument, Buffer, Detected, Device, DeviceError, Pointer
from edge0verify.runtime.sources import native_file

LIBRARY = native_file("_phase") or Path(__file__).with_name("_phase.so")


def detect() -> Detected:
    """Always here where the package was built."""
    if not LIBRARY.is_file():
        return Detected("cpu", None, f"{LIBRARY.name} was not built")
    return Detected("cpu", CpuRuntime())


def cpu_name() -> str:
    """The processor's model as the system names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


class HostMemory:
    """Allocation, copy and memset over plain host memory; shared with the emulator of AMD code objects."""

    name = ""

    def __init__(self) -> None:
        self._arrays: dict[int, np.ndarray] = {}

    def _check(self, device: int) -> None:
        if device != 0:
            raise DeviceError("set device", 101, "invalid device", f"{self.name} has device 0 alone")

    def allocate(self, device: int, nbytes: int) -> Buffer:
        self._check(device)
        raw = np.empty(nbytes + 63, np.uint8)
        at = -raw.ctypes.data % 64
        pointer = raw.ctypes.data + at
        self._arrays[pointer] = raw
        return Buffer(pointer, nbytes, device, "host", raw)

    allocate_mapped = allocate_managed = allocate

    def managed_safe(self, device: int) -> bool:
        return True

    def pageable_access(self, device: int) -> bool:
        return True

    def host_atomics(self, device: int) -> bool:
        return True

    def free(self, buffer: Buffer) -> None:
        if self._arrays.pop(buffer.pointer, None) is None:
            raise ValueError("a buffer that was not allocated here, or freed twice")

    def copy(self, to: Buffer | np.ndarray, source: Buffer | np.ndarray, stream: Any = None) -> None:
        if source.nbytes > to.nbytes:
            raise ValueError(f"{source.nbytes} bytes into {to.nbytes}")
        for side in (to, source):
            if isinstance(side, np.ndarray) and not side.flags.c_contiguous:
                raise ValueError("arrays must be contiguous")
        address = [side.ctypes.data if isinstance(side, np.ndarray) else side.pointer for side in (to, source)]
        ctypes.memmove(*address, source.nbytes)

    def copy_peer(self, to: Buffer, source: Buffer, stream: Any = None) -> None:
        self.copy(to, source, stream)

    def memset(self, buffer: Buffer, value: int, width: int = 1, stream: Any = None, *, device: int | None = None) -> None:
        kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}.get(width)
        if kind is None or buffer.nbytes % width:
            raise ValueError(f"width {width} for {buffer.nbytes} bytes")
        buffer.array(kind)[:] = value

    def synchronise(self, device: int, stream: Any = None) -> None:
        self._check(device)

    def attributes(self, pointer: int) -> Pointer:
        for start, raw in self._arrays.items():
            if start <= pointer < start + raw.nbytes:
                return Pointer("host", 0, pointer, pointer)
        return Pointer("unregistered", None, None, pointer)

    def can_access_peer(self, device: int, peer: int) -> bool:
        return False

    def enable_peer(self, device: int, peer: int) -> None:
        raise DeviceError("enable peer access", 101, "invalid device", f"{self.name} has one device")

    disable_peer = enable_peer

    def stream(self, device: int) -> Any:
        self._check(device)
        return "in order"

    def event(self, device: int) -> list[float]:
        self._check(device)
        return [0.0]

    def record(self, event: list[float], stream: Any = None) -> None:
        event[0] = time.perf_counter()

    def wait(self, event: list[float], stream: Any = None) -> None:
        """Everything recorded has happened already."""

    def elapsed(self, start: list[float], end: list[float]) -> float:
        return (end[0] - start[0]) * 1e3


class CpuRuntime(HostMemory):
    """The portable kernels on this machine's processor."""

    name = "cpu"

    def __init__(self, library: Path = LIBRARY, threads: int | None = None) -> None:
        super().__init__()
        self._library = ctypes.CDLL(str(library))
        self._bytes = library.read_bytes()
        self._library.e0_phase_launch.restype = ctypes.c_int
        self.threads = threads or len(os.sched_getaffinity(0))

    def devices(self) -> tuple[Device, ...]:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return (
            Device(
                self.name, 0, cpu_name(), platform.machine(), memory, f"{platform.system()} {platform.release()}", os.cpu_count()
            ),
        )

    def compile(self, arch: str, source: str | None = None) -> bytes:
        """The library's own bytes: the CPU runs the kernels it was built with."""
        if source is not None:
            raise DeviceError("compile", 801, "not supported", "the CPU runs the kernels it was built with")
        return self._bytes

    def load(self, device: int, source: str | bytes | None = None) -> str:
        self._check(device)
        if source is not None and source != self._bytes:
            raise DeviceError("load", 801, "not supported", "the CPU runs the kernels it was built with")
        return "portable"

    def kernel(self, module: str, name: str) -> str:
        return name

    def launch(
        self, kernel: str, blocks: int, threads: int, args: Sequence[Argument], *, shared: int = 0, stream: Any = None
    ) -> None:
        plain = [
            ctypes.c_void_p(a.pointer if isinstance(a, Buffer) else None) if a is None or isinstance(a, Buffer) else a for a in args
        ]
        array = (ctypes.c_void_p * len(plain))(*[ctypes.addressof(a) for a in plain])
        code = self._library.e0_phase_launch(kernel.encode(), ctypes.c_int64(blocks), array, len(plain), self.threads)
        if code:
            raise DeviceError(f"launch {kernel}", code, {-1: "no such kernel", -2: "wrong number of arguments"}.get(code, "failed"))
