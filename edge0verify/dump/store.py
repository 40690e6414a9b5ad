"""How an array is laid down in the file while it arrives in pieces of rows.

Rows are collected until a chunk is full, so each chunk is written once, memory stays bounded, and a tensor smaller than one chunk
takes no more space than its bytes.
"""

from __future__ import annotations

import hashlib

import h5py
import numpy as np

from edge0verify.dump.sketch import Sketcher

CHUNK_BYTES = 1 << 18
LIBVER = ("v110", "v110")
"""File format whose own structures all carry checksums, so that a flipped byte outside the data is noticed too."""
STORED = ("float32", "float16", "float64", "int8", "int32", "int64", "uint64")
"""dtypes a dump may hold."""


class ArrayStream:
    """Appends rows to one dataset of `group`, hashing on the way; `close` sets its sha256."""

    def __init__(
        self, group: h5py.Group, name: str, columns: tuple[int, ...], dtype, *, compression: str | None, level: str
    ) -> None:
        self.columns, self.dtype, self.rows = tuple(columns), np.dtype(dtype).newbyteorder("<"), 0
        self._group, self._name, self._compression, self._level = group, name, compression, level
        self._hash = hashlib.sha256()
        self._sketch = Sketcher(self.columns, self.dtype)
        row_bytes = max(1, self._sketch.row_bytes)
        tile = self._sketch.tile_rows
        self._chunk = max(1, CHUNK_BYTES // row_bytes // tile) * tile
        self._buffer: np.ndarray | None = None
        self._held = 0
        self._dataset: h5py.Dataset | None = None

    def append(self, rows: np.ndarray) -> None:
        """The next rows [r, *columns]; the caller has checked shape and dtype."""
        rows = np.ascontiguousarray(rows, dtype=self.dtype)
        self.rows += len(rows)
        at = 0
        while at < len(rows):
            if self._held == 0 and len(rows) - at >= self._chunk:        # whole chunks need no copy
                whole = (len(rows) - at) // self._chunk * self._chunk
                self._emit(rows[at : at + whole])
                at += whole
                continue
            take = min(self._chunk - self._held, len(rows) - at)
            self._hold(rows[at : at + take])
            at += take
            if self._held == self._chunk:
                self._emit(self._buffer[: self._held])
                self._held = 0

    def close(self) -> None:
        if self._level in ("sketch", "hash"):
            self._close_reduced()
            return
        if self._dataset is None:                                         # smaller than a chunk: exactly its bytes
            data = self._buffer[: self._held] if self._held else np.empty((0, *self.columns), self.dtype)
            self._hash.update(np.ascontiguousarray(data))
            options = {"compression": self._compression, "chunks": data.shape} if self._compression and data.size else {}
            self._dataset = self._group.create_dataset(self._name, data=data, **options)
        elif self._held:
            self._emit(self._buffer[: self._held])
        self._dataset.attrs["sha256"] = np.bytes_(self._hash.hexdigest())
        self._buffer = None

    def _hold(self, rows: np.ndarray) -> None:
        need = self._held + len(rows)
        if self._buffer is None or len(self._buffer) < need:              # grows, so that a short tensor costs little memory
            size = min(self._chunk, max(need, 2 * (0 if self._buffer is None else len(self._buffer))))
            grown = np.empty((size, *self.columns), self.dtype)
            if self._held:
                grown[: self._held] = self._buffer[: self._held]
            self._buffer = grown
        self._buffer[self._held : need] = rows
        self._held = need

    def _emit(self, rows: np.ndarray) -> None:
        self._hash.update(rows)
        if self._level == "hash":
            return
        if self._level == "sketch":
            for at in range(0, len(rows), self._chunk):                   # one grid of pieces, whatever arrives
                self._sketch.update(rows[at : at + self._chunk])
            return
        if self._dataset is None:
            self._dataset = self._group.create_dataset(
                self._name,
                shape=(0, *self.columns),
                maxshape=(None, *self.columns),
                chunks=(self._chunk, *self.columns),
                dtype=self.dtype,
                compression=self._compression,
                shuffle=bool(self._compression),
            )
        at = self._dataset.shape[0]
        self._dataset.resize(at + len(rows), axis=0)
        self._dataset[at:] = rows

    def _close_reduced(self) -> None:
        if self._held:
            self._emit(self._buffer[: self._held])
        group = self._group.create_group(self._name)
        group.attrs["sha256"] = np.bytes_(self._hash.hexdigest())
        group.attrs["shape"] = np.array((self.rows, *self.columns), dtype=np.int64)
        group.attrs["dtype"] = np.bytes_(self.dtype.name)
        if self._level == "sketch":
            found = self._sketch.result(self._hash.hexdigest())
            group.attrs["tile_rows"] = found.tile_rows
            group.attrs["moments"] = found.moments
            group.create_dataset("tiles", data=found.tiles)
            if len(found.sample):
                group.create_dataset("sample", data=found.sample)
            if found.histogram is not None and self._sketch.row_bytes * self.rows >= 1 << 18:
                group.create_dataset("histogram", data=found.histogram)
        self._buffer = None
