"""Byte patterns that a kernel and the host compute alike, where they are written, and how they are compared."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4, 68, KIB, 16 * KIB, 252 * KIB, 4 * MIB, 64 * MIB)
PAD = 4096
"""Room beside the largest pattern for offsets, in bytes."""


def pattern(seed: int, nbytes: int) -> np.ndarray:
    """uint8 [nbytes]: byte i is byte i % 4 of a hash of seed + i / 4, as kernels/probe/memory.h computes it."""
    x = np.arange(-(-nbytes // 4), dtype=np.uint32)
    x += np.uint32(seed & 0xFFFFFFFF)
    x *= np.uint32(2654435761)
    x ^= x >> np.uint32(15)
    x *= np.uint32(2246822519)
    x ^= x >> np.uint32(13)
    return x.astype("<u4", copy=False).view(np.uint8)[:nbytes]


@dataclass(frozen=True)
class Place:
    """One transfer: so many bytes, from this offset to that one."""

    nbytes: int
    source: int
    to: int


def places(sizes: tuple[int, ...], rng: np.random.Generator) -> list[Place]:
    """Each size at odd offsets; the last one also at offset 0, where it is timed."""
    odd = [Place(n, *(int(v) | 1 for v in rng.integers(0, PAD - 1, 2))) for n in sizes]
    return [*odd, Place(sizes[-1], 0, 0)]


@dataclass(frozen=True)
class Difference:
    """Where bytes are not what was written: how many, the first, and both checksums."""

    nbytes: int
    offset: int
    wrong: int
    first: int
    expected_crc: int
    found_crc: int

    def __str__(self) -> str:
        return (
            f"{self.wrong} of {self.nbytes} bytes wrong from byte {self.first} on (offset {self.offset}, "
            f"crc32 {self.found_crc:08x}, expected {self.expected_crc:08x})"
        )


def difference(expected: np.ndarray, found: np.ndarray, offset: int = 0) -> Difference | None:
    """None where both uint8 arrays are equal."""
    if np.array_equal(expected, found):
        return None
    wrong = np.flatnonzero(expected != found)
    return Difference(len(expected), offset, len(wrong), int(wrong[0]), zlib.crc32(expected), zlib.crc32(found))
