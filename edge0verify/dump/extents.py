"""Where the bytes of an HDF5 dataset lie in its file, so that they can be read by several threads without HDF5's lock."""

from __future__ import annotations

import math
from dataclasses import dataclass

import h5py
import numpy as np


@dataclass(frozen=True)
class Extents:
    """A dataset as pieces of its file: bytes first[i] to first[i + 1] of it lie at offset[i]."""

    filename: str
    first: list[int]
    offset: list[int]


def extents(dataset: h5py.Dataset) -> Extents | None:
    """Pieces in the order of the rows, or None where the bytes do not lie plainly in one local file (compressed, checksummed,
    split across columns, never written, or of another byte order)."""
    file = dataset.file
    if file.mode != "r":                                       # what was written may not have reached the file yet
        return None
    if file.driver != "sec2" or file.userblock_size or dataset.external or dataset.is_virtual or not dataset.size:
        return None
    if dataset.dtype.byteorder == ">" or not dataset.dtype.isnative:
        return None
    total = dataset.size * dataset.dtype.itemsize
    if dataset.chunks is None:
        at = dataset.id.get_offset()
        return None if at is None else Extents(file.filename, [0, total], [at])
    if dataset.chunks[1:] != dataset.shape[1:] or dataset.id.get_create_plist().get_nfilters():
        return None
    rows = dataset.chunks[0]
    count = -(-dataset.shape[0] // rows)
    offset = np.full(count, -1, np.int64)

    def place(info) -> None:
        if info.chunk_offset[0] // rows < count:
            offset[info.chunk_offset[0] // rows] = info.byte_offset

    dataset.id.chunk_iter(place)
    if (offset < 0).any():
        return None
    chunk_bytes = math.prod(dataset.chunks) * dataset.dtype.itemsize
    return Extents(file.filename, [*range(0, count * chunk_bytes, chunk_bytes), total], offset.tolist())
