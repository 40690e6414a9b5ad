"""What a sketch keeps of a tensor: enough to say whether a later one differs, and in which rows.

Per tensor a 64-bit hash of every tile of rows, one whole row of 512, moments, and a histogram of codes: about 0.6 % of the data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

TILE_BYTES = 2048
"""A tile is the fewest whole rows that hold at least this many bytes."""
SAMPLE_EVERY, SAMPLE_AT = 512, 256
"""Row r is kept when r mod 512 = 256: a tensor of few rows, which is dumped whole anyway, keeps none."""
MOMENTS = ("finite", "nonfinite", "mean", "m2", "min", "max")
"""Columns of `Sketch.moments`: counts, mean, sum of squared distances from it, and extremes of the finite values."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """Reduced form of one array [rows, m]."""

    shape: tuple[int, ...]
    dtype: np.dtype
    sha256: str
    tile_rows: int
    tiles: np.ndarray
    """uint64 [ceil(rows / tile_rows)]."""
    sample_rows: np.ndarray
    """int64 [k] row numbers of `sample`."""
    sample: np.ndarray
    """[k, m] those rows."""
    moments: np.ndarray
    """float64 [6], see MOMENTS."""
    histogram: np.ndarray | None
    """int64 [256] counts of codes -128..127; int8 arrays only."""


@dataclass(frozen=True)
class SketchDiff:
    """What a sketch says about another array of the same shape."""

    tiles: np.ndarray
    """int64 [d] numbers of the tiles whose bytes differ."""
    tile_rows: int
    rows: int

    @property
    def equal(self) -> bool:
        return self.tiles.size == 0

    def spans(self) -> list[tuple[int, int]]:
        """Row ranges [first, last + 1) of the differing tiles."""
        return [(int(t) * self.tile_rows, min((int(t) + 1) * self.tile_rows, self.rows)) for t in self.tiles]


def tile_rows(row_bytes: int) -> int:
    """Rows of one tile."""
    return max(1, -(-TILE_BYTES // max(1, row_bytes)))


def tile_hash(data: bytes | memoryview | np.ndarray) -> int:
    """64-bit BLAKE2b of a tile's bytes."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


@dataclass
class Sketcher:
    """Builds a Sketch from row pieces given in order; pieces are whole tiles except the last."""

    columns: tuple[int, ...]
    dtype: np.dtype
    _tiles: list[int] = field(default_factory=list)
    _sample_rows: list[int] = field(default_factory=list)
    _sample: list[np.ndarray] = field(default_factory=list)
    _rows: int = 0

    def __post_init__(self) -> None:
        self.dtype = np.dtype(self.dtype)
        self.row_bytes = self.dtype.itemsize * int(np.prod(self.columns, dtype=np.int64))
        self.tile_rows = tile_rows(self.row_bytes)
        self._histogram = np.zeros(256, np.int64) if self.dtype == np.int8 else None
        self._moments = np.array([0, 0, 0, 0, np.inf, -np.inf])

    def update(self, rows: np.ndarray) -> None:
        """The next rows [r, *columns], C-contiguous."""
        data = memoryview(np.ascontiguousarray(rows)).cast("B") if rows.size else memoryview(b"")
        step = self.tile_rows * self.row_bytes
        self._tiles += [tile_hash(data[at : at + step]) for at in range(0, len(data), step)]
        first = self._rows + (SAMPLE_AT - self._rows) % SAMPLE_EVERY
        picked = np.arange(first, self._rows + len(rows), SAMPLE_EVERY)
        self._sample_rows += picked.tolist()
        self._sample += [rows[r - self._rows].copy() for r in picked]
        self._rows += len(rows)
        if self._histogram is not None:
            self._histogram += np.bincount(rows.reshape(-1).view(np.uint8) ^ 0x80, minlength=256)
        self._moments = join_moments(self._moments, moments(rows))

    def result(self, sha256: str) -> Sketch:
        sample = np.array(self._sample, dtype=self.dtype).reshape(len(self._sample), *self.columns)
        return Sketch(
            shape=(self._rows, *self.columns),
            dtype=self.dtype,
            sha256=sha256,
            tile_rows=self.tile_rows,
            tiles=np.array(self._tiles, dtype=np.uint64),
            sample_rows=np.array(self._sample_rows, dtype=np.int64),
            sample=sample,
            moments=self._moments,
            histogram=self._histogram,
        )


def moments(rows: np.ndarray) -> np.ndarray:
    """float64 [6] of an array, see MOMENTS."""
    x = rows.reshape(-1).astype(np.float64)
    x, total = x[np.isfinite(x)], x.size
    if not x.size:
        return np.array([0, total, 0, 0, np.inf, -np.inf], dtype=np.float64)
    mean = x.mean()
    return np.array([x.size, total - x.size, mean, np.square(x - mean).sum(), x.min(), x.max()])


def join_moments(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Moments of two arrays put together (Chan, Golub and LeVeque, 1983)."""
    n = a[0] + b[0]
    gap = b[2] - a[2]
    mean = a[2] + gap * b[0] / n if n else 0.0
    m2 = a[3] + b[3] + (gap * gap * a[0] * b[0] / n if n else 0.0)
    return np.array([n, a[1] + b[1], mean, m2, min(a[4], b[4]), max(a[5], b[5])])


def sketch_array(x: np.ndarray) -> Sketch:
    """Sketch of a whole array [rows, ...]."""
    x = np.ascontiguousarray(x)
    run = Sketcher(x.shape[1:], x.dtype)
    step = max(1, (1 << 18) // max(1, run.row_bytes) // run.tile_rows) * run.tile_rows
    for at in range(0, len(x), step):
        run.update(x[at : at + step])
    return run.result(hashlib.sha256(x).hexdigest())


def compare_sketch(sketch: Sketch, x: np.ndarray) -> SketchDiff:
    """Tiles of `x` whose bytes are not those that were sketched. ValueError for another shape or dtype."""
    if tuple(x.shape) != tuple(sketch.shape) or x.dtype != sketch.dtype:
        raise ValueError(f"expected {sketch.dtype} {tuple(sketch.shape)}, found {x.dtype} {tuple(x.shape)}")
    return compare_sketches(sketch, sketch_array(x))


def compare_sketches(a: Sketch, b: Sketch) -> SketchDiff:
    """Tiles that differ between two sketches of one shape and dtype; ValueError otherwise."""
    if tuple(a.shape) != tuple(b.shape) or a.dtype != b.dtype:
        raise ValueError(f"expected {a.dtype} {tuple(a.shape)}, found {b.dtype} {tuple(b.shape)}")
    return SketchDiff(tiles=np.flatnonzero(a.tiles != b.tiles), tile_rows=a.tile_rows, rows=a.shape[0])
