"""Raw byte layouts of other engines' buffers. The user declares one; nothing is guessed from the bytes.

All little endian, rows in order. `q8_1` is ggml's block of 32 values (36 bytes: d f16, s f16, 32 codes); `q8_1_mmq` its block of
128 values (144 bytes: four f32 scales, then 4 x 32 codes), which ggml's own buffers keep block column by block column.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.rounding import bf16_decode
from edge0verify.records.errors import InputError

PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class Layout:
    """How one unit of bytes holds `values` values."""

    name: str
    dtype: np.dtype
    values: int

    @property
    def blocks(self) -> bool:
        return self.values > 1


LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("f32", np.dtype("<f4"), 1),
        Layout("f16", np.dtype("<f2"), 1),
        Layout("bf16", np.dtype("<u2"), 1),
        Layout("i32", np.dtype("<i4"), 1),
        Layout("q8_1", np.dtype([("d", "<f2"), ("s", "<f2"), ("codes", "i1", (32,))]), 32),
        Layout("q8_1_mmq", np.dtype([("d", "<f4", (4,)), ("codes", "i1", (128,))]), 128),
    )
}
_QUANTISER = {"q8_1": "mmvq", "q8_1_mmq": "mmq"}


def find_layout(name: str | None) -> Layout:
    """The layout of that name; InputError naming the known ones otherwise."""
    if name not in LAYOUTS:
        raise InputError(f"layout: expected one of {', '.join(LAYOUTS)}, found {name}")
    return LAYOUTS[name]


def units_per_row(layout: Layout, cols: int, *, source: str) -> int:
    """Units that hold one row of `cols` values; InputError where they do not divide it."""
    if cols < 1 or cols % layout.values:
        raise InputError(f"{source}: layout {layout.name}: expected columns in a multiple of {layout.values}, found {cols}")
    return cols // layout.values


def check_size(source: str, layout: Layout, rows: int, cols: int, found: int) -> None:
    """InputError naming expected and found bytes where `found` bytes are not rows x cols of the layout."""
    if rows < 1:
        raise InputError(f"{source}: expected at least one row, found {rows}")
    expected = rows * units_per_row(layout, cols, source=source) * layout.dtype.itemsize
    if found != expected:
        raise InputError(f"{source}: layout {layout.name}, {rows} x {cols}: expected {expected} bytes, found {found}")


def decode(raw: np.ndarray, layout: Layout, *, quantiser: str | None, source: str, first_row: int = 0) -> np.ndarray | Blocks:
    """Rows from units [rows, units] of the layout's dtype.

    f16 and bf16 rows are widened to f32, exactly. InputError for a scale or sum that is not finite, naming row and block.
    """
    if layout.name == "bf16":
        return bf16_decode(raw)
    if not layout.blocks:
        return raw.astype(np.float32) if layout.name == "f16" else raw.astype(raw.dtype.newbyteorder("="))
    rows = raw.shape[0]
    d = raw["d"].reshape(rows, -1)
    s = raw["s"].reshape(rows, -1) if layout.name == "q8_1" else None
    for name, scales in (("d", d), ("s", s)):
        if scales is not None and not np.isfinite(scales).all():
            row, block = (int(i) for i in np.argwhere(~np.isfinite(scales))[0])
            where = f"row {first_row + row}, block {block}"
            raise InputError(f"{source}: layout {layout.name}: expected finite {name}, found {scales[row, block]} in {where}")
    codes = np.ascontiguousarray(raw["codes"].reshape(rows, -1))
    s = None if s is None else np.ascontiguousarray(s)
    return Blocks(codes, np.ascontiguousarray(d), s, quantiser or _QUANTISER[layout.name])


def read_raw(
    path: str | os.PathLike,
    *,
    layout: str,
    rows: int,
    cols: int,
    by_column: bool = False,
    quantiser: str | None = None,
) -> Iterator[np.ndarray | Blocks]:
    """Rows of a raw file in pieces of about 4 MiB.

    by_column: units lie column by column, all rows of the first unit first (ggml's order of q8_1_mmq). InputError for a file that
    cannot be read or whose size is not rows x cols.
    """
    path, kind = Path(path), find_layout(layout)
    if not path.is_file():
        raise InputError(f"{path}: expected a raw file, found none")
    check_size(str(path), kind, rows, cols, path.stat().st_size)
    units = units_per_row(kind, cols, source=str(path))
    data = np.memmap(path, dtype=kind.dtype, mode="r", shape=(units, rows) if by_column else (rows, units))
    data = data.T if by_column else data
    step = max(1, PIECE_BYTES // (units * kind.dtype.itemsize))
    for at in range(0, rows, step):
        piece = np.ascontiguousarray(data[at : at + step])
        yield decode(piece, kind, quantiser=quantiser, source=str(path), first_row=at)
