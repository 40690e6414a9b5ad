"""Memory of simulated devices: one arena per device and one of mapped host memory, each at one address in every process."""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import os
import random
from dataclasses import dataclass, field

from edge0verify.runtime.protocol import DeviceError

PROT_READ_WRITE, MAP_SHARED_FIXED_NOREPLACE = 3, 0x1 | 0x100000
PUNCH_HOLE_KEEP_SIZE = 0x3
LOWEST, HIGHEST, STEP = 0x2000_0000_0000, 0x3000_0000_0000, 1 << 32
ALIGN = 256
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


@dataclass
class Arena:
    """Pages behind a file descriptor and what is allocated in them; first fit, neighbours joined when freed."""

    fd: int
    base: int
    size: int
    holes: list[tuple[int, int]] = field(default_factory=list)
    used: dict[int, int] = field(default_factory=dict)
    mapped: bool = False
    """Whether it is mapped in this process."""

    @classmethod
    def make(cls, size: int, base: int, skip: int = 0) -> Arena:
        """skip: bytes at the start that are never handed out, so that addresses differ from run to run."""
        fd = os.memfd_create("edge0verify-sim")
        os.ftruncate(fd, size)
        return cls(fd, base, size, [(base + skip, size - skip)])

    def allocate(self, nbytes: int) -> int:
        need = max(-(-nbytes // ALIGN), 1) * ALIGN
        for at, (start, size) in enumerate(self.holes):
            if size >= need:
                self.holes[at : at + 1] = [(start + need, size - need)] if size > need else []
                self.used[start] = need
                return start
        raise DeviceError("allocate", 2, "out of memory", f"{nbytes} bytes of {self.size}")

    def free(self, start: int) -> None:
        size = self.used.pop(start)
        # Whole pages go back to the system, and read as zero when they are handed out again.
        first, last = -(-(start - self.base) // 4096) * 4096, (start + size - self.base) // 4096 * 4096
        if last > first:
            _libc.fallocate(self.fd, PUNCH_HOLE_KEEP_SIZE, first, last - first)
        at = bisect.bisect(self.holes, (start, size))
        self.holes.insert(at, (start, size))
        if at + 1 < len(self.holes) and start + size == self.holes[at + 1][0]:
            self.holes[at : at + 2] = [(start, size + self.holes[at + 1][1])]
        if at and sum(self.holes[at - 1]) == start:
            self.holes[at - 1 : at + 1] = [(self.holes[at - 1][0], self.holes[at - 1][1] + self.holes[at][1])]

    def holds(self, pointer: int) -> bool:
        return self.base <= pointer < self.base + self.size

    def allocation(self, pointer: int) -> tuple[int, int] | None:
        """(start, bytes) of the allocation that a pointer lies in."""
        return next(((start, size) for start, size in self.used.items() if start <= pointer < start + size), None)

    def close(self) -> None:
        """Gives pages and addresses back; views of mapped memory end with it, as they do with a real driver."""
        if self.mapped:
            _libc.munmap(self.base, self.size)
            self.mapped = False
        with contextlib.suppress(OSError):
            os.close(self.fd)


def make_arenas(count: int, size: int, host_size: int, rng: random.Random) -> list[Arena]:
    """`count` device arenas and, last, the host's, which is mapped here at the address that all processes use."""
    slots = rng.sample(range((HIGHEST - LOWEST) // STEP), count + 16)
    room = (STEP - max(size, host_size)) // (2 << 20)
    bases = [LOWEST + slot * STEP + rng.randrange(room) * (2 << 20) for slot in slots]
    arenas = [Arena.make(size, base, rng.randrange(256) * 4096) for base in bases[:count]]
    host = Arena.make(host_size, 0)
    for base in bases[count:]:
        got = _libc.mmap(base, host_size, PROT_READ_WRITE, MAP_SHARED_FIXED_NOREPLACE, host.fd, 0)
        if got == base:
            host.base, host.holes, host.mapped = base, [(base, host_size)], True
            return [*arenas, host]
    for arena in [*arenas, host]:
        arena.close()
    raise DeviceError("start", 2, "out of memory", "no free address range for mapped host memory")
