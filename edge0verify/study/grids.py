"""What a comparison looks like from afar: each tensor reduced to at most 64 by 64 bins while it is judged.

Bins are powers of two, so that tile lines fall on their edges; a grid takes a few KB, however long the prompt is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge0verify.numerics.blocks import same_floats
from edge0verify.records.evidence import Evidence, Side
from edge0verify.records.verdict import LayerResult

BINS = 64
"""Bins along an axis at most."""
LINES = 16
"""Tile lines along an axis at most."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One tensor of one layer, n rows by m columns, in bins of `step` (rows, columns); arrays are float64 [bins, bins]."""

    layer: int | str
    tensor: str
    kind: str
    """'rows' or 'blocks'."""
    shape: tuple[int, int]
    step: tuple[int, int]
    tile: tuple[int, int]
    """Rows and columns between the lines to draw: multiples of 16 and of 32."""
    differing: np.ndarray
    """Share of elements whose bits (codes, for blocks) differ."""
    over: tuple[np.ndarray | None, np.ndarray | None]
    """Of a and b, kind 'rows': largest |y - t|/B; NaN where a value is not finite; None where no bound is known."""
    farthest: np.ndarray | None
    """Kind 'blocks': largest |code a - code b|."""
    histogram: dict[int, int] | None
    """Kind 'blocks': codes by code a - code b."""
    result: LayerResult
    """The tensor's entry of the verdict."""

    @property
    def worst(self) -> tuple[float | None, float | None]:
        """Largest |y - t|/B of a and of b over the whole tensor; infinite where a value is not finite."""
        return tuple(None if o is None else float(np.where(np.isnan(o), np.inf, o).max()) for o in self.over)


class Grids:
    """Collects a grid of each tensor that passes by. Hand `add` to `compare_variants` as `observe`."""

    def __init__(self) -> None:
        self.grids: list[Grid] = []

    def add(self, item: Evidence, results: Sequence[LayerResult]) -> None:
        """Keep a grid of `item`; ids and tensors that a side lacks have none."""
        if item.kind not in ("rows", "blocks") or not (item.a.present(item.kind) and item.b.present(item.kind)):
            return
        result = next((r for r in results if r.tensor == item.tensor), None)
        if result is not None and result.n:
            self.grids.append(grid(item, result))


def grid(item: Evidence, result: LayerResult) -> Grid:
    """The grid of one tensor."""
    a, b = (s.rows if item.kind == "rows" else s.blocks.codes for s in (item.a, item.b))
    shape = a.shape
    step = tuple(_step(n) for n in shape)
    bins = tuple(-(-n // s) for n, s in zip(shape, step))
    differing, farthest = np.empty(bins), np.zeros(bins)
    over = [None if item.kind != "rows" or s.bound is None else np.empty(bins) for s in (item.a, item.b)]
    counts = np.zeros(511, np.int64)
    edges = np.arange(0, shape[1], step[1])
    for at in range(bins[0]):
        rows = slice(at * step[0], min((at + 1) * step[0], shape[0]))
        if item.kind == "rows":
            unlike = ~same_floats(a[rows], b[rows])
            for o, side in zip(over, (item.a, item.b)):
                if o is not None:
                    o[at] = np.maximum.reduceat(_over(side, rows).max(axis=0), edges)
        else:
            gap = a[rows].astype(np.int16) - b[rows]
            unlike = gap != 0
            counts += np.bincount(gap.reshape(-1) + 255, minlength=511)
            farthest[at] = np.maximum.reduceat(np.abs(gap).max(axis=0), edges)
        differing[at] = np.add.reduceat(unlike.sum(axis=0), edges)
    sizes = np.outer(_lengths(shape[0], step[0]), _lengths(shape[1], step[1]))
    blocks = item.kind == "blocks"
    return Grid(
        layer=item.layer,
        tensor=item.tensor,
        kind=item.kind,
        shape=shape,
        step=step,
        tile=(_tile(shape[0], 16), _tile(shape[1], 32)),
        differing=differing / sizes,
        over=tuple(over),
        farthest=farthest if blocks else None,
        histogram={int(i) - 255: int(counts[i]) for i in np.flatnonzero(counts)} if blocks else None,
        result=result,
    )


def _over(side: Side, rows: slice) -> np.ndarray:
    """|y - t|/B, NaN where y is not finite; no error over no bound is 0."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.abs(side.rows[rows] - side.t[rows])
        return np.where(error == 0, 0.0, error / side.bound[rows])


def _step(n: int) -> int:
    """Smallest power of two that leaves at most 64 bins."""
    step = 1
    while -(-n // step) > BINS:
        step *= 2
    return step


def _tile(n: int, least: int) -> int:
    """Smallest power of two times `least` that leaves at most 16 lines."""
    tile = least
    while n // tile > LINES:
        tile *= 2
    return tile


def _lengths(n: int, step: int) -> np.ndarray:
    return np.diff(np.append(np.arange(0, n, step), n))
