"""What a dump holds, as data: manifest, arrays and statistics. The command `show` prints it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge0verify.dump.reader import PIECE_BYTES, ArrayInfo, Dump
from edge0verify.dump.sketch import join_moments, moments
from edge0verify.records.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class ArrayStatistics:
    """Statistics of one array; the figures are None where the file does not hold what they need, or nothing finite is there."""

    info: ArrayInfo
    finite: int | None
    nonfinite: int | None
    minimum: float | None
    maximum: float | None
    mean: float | None
    deviation: float | None
    """Standard deviation of the finite values."""
    code_extremes: dict[int, int] | None
    """Codes only: counts of the codes -128, -127, 0 and 127, the ones a broken quantiser piles up."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    path: str
    file_bytes: int
    manifest: Manifest
    arrays: tuple[ArrayStatistics, ...]
    missing: tuple[tuple[int | str, str], ...]
    """(layer, tensor) that the manifest promises and the file does not hold."""


def summarise(dump: Dump, *, statistics: bool = True) -> Summary:
    """Summary of an open dump in bounded memory. statistics: read the data too (which holds it against its hashes)."""
    order = sorted(dump.arrays.values(), key=_order)
    return Summary(
        path=str(dump.path),
        file_bytes=dump.path.stat().st_size,
        manifest=dump.manifest,
        arrays=tuple(_statistics(dump, info, statistics) for info in order),
        missing=tuple(dump.missing()),
    )


def _order(info: ArrayInfo) -> tuple:
    last = {None: -1, "mtp": 1 << 20, "head": 1 << 21}
    return (last.get(info.layer, info.layer), info.path)


def _statistics(dump: Dump, info: ArrayInfo, wanted: bool) -> ArrayStatistics:
    found, histogram = None, None
    if info.stored == "whole" and wanted:
        found = np.array([0, 0, 0, 0, np.inf, -np.inf])
        histogram = np.zeros(256, np.int64) if info.dtype == np.int8 else None
        rows = max(1, PIECE_BYTES // max(1, info.nbytes // max(1, info.shape[0])))
        for at in range(0, info.shape[0], rows):
            piece = dump.read_path(info.path, slice(at, at + rows))
            found = join_moments(found, moments(piece))
            if histogram is not None:
                histogram += np.bincount(piece.reshape(-1).view(np.uint8) ^ 0x80, minlength=256)
    elif info.stored == "sketch":
        sketch = dump.sketch(info.layer, info.tensor, info.part)
        found, histogram = sketch.moments, sketch.histogram
    finite = None if found is None else int(found[0])
    some = bool(finite)
    return ArrayStatistics(
        info=info,
        finite=finite,
        nonfinite=None if found is None else int(found[1]),
        minimum=float(found[4]) if some else None,
        maximum=float(found[5]) if some else None,
        mean=float(found[2]) if some else None,
        deviation=float(np.sqrt(found[3] / found[0])) if some else None,
        code_extremes=None if histogram is None else {code: int(histogram[code + 128]) for code in (-128, -127, 0, 127)},
    )
