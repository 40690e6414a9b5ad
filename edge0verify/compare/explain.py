"""Sentences: what is wrong with an entry, and where."""

from __future__ import annotations

import numpy as np

from edge0verify.compare.causes import NUMBER
from edge0verify.compare.entry import Entry, in_layer
from edge0verify.numerics.blocks import BLOCK
from edge0verify.records.verdict import Worst

LISTED = 6
"""Rows or columns that are listed one by one."""
NOUN = {"code": "codes", "scale": "scales", "sum": "block sums", "row": "values", "id": "ids"}


def span(indices: np.ndarray, whole: int, noun: str) -> str:
    """'row 3', 'rows 3..9', 'rows 3, 5 and 90', '9 rows in 3..90', 'all 64 rows'."""
    n, first, last = len(indices), int(indices[0]), int(indices[-1])
    if n == 1:
        return f"{noun} {first}"
    if n == whole:
        return f"all {whole} {noun}s"
    if last - first + 1 == n:
        return f"{noun}s {first}..{last}"
    if n <= LISTED:
        return f"{noun}s {', '.join(map(str, indices[:-1].tolist()))} and {last}"
    return f"{n} {noun}s in {first}..{last}"


def place(mask: np.ndarray, unit: str) -> str:
    """Which rows and columns a mask [n, m] covers; for scales and sums the columns are blocks."""
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    text = f"{span(rows, mask.shape[0], 'row')}, "
    if unit in ("scale", "sum"):
        return text + span(columns, mask.shape[1], "block")
    text += span(columns, mask.shape[1], "column")
    if unit == "code" and len(columns) < mask.shape[1]:
        blocks = np.unique(columns // BLOCK)
        text += f" ({span(blocks, mask.shape[1] // BLOCK, 'block')})"
    return text


def number(value: float | int | str) -> str:
    """A figure as text that tells neighbours apart."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def example(worst: tuple[Worst, ...], cause: str, key_names: tuple[str, ...]) -> str:
    """'; at row 3 column 7: a 12, b -90, allowed 11..12', or nothing."""
    found = next((w for w in worst if w.cause == cause), None)
    if found is None:
        return ""
    text = f"; at {list(found.index)}"
    if found.key is not None and key_names:
        text += " (" + ", ".join(f"{name} {part}" for name, part in zip(key_names, found.key)) + ")"
    text += f": a {number(found.a)}, b {number(found.b)}"
    if found.bound is not None:
        text += f", allowed {number(found.bound[0])}..{number(found.bound[1])}"
    return text


def which_side(kept_a: int | None, kept_b: int | None, n: int) -> str:
    """'b does not conform', 'neither a nor b conforms', or nothing where neither breaks anything."""
    broken = [name for name, kept in (("a", kept_a), ("b", kept_b)) if kept is not None and kept < n]
    if len(broken) == 2:
        return "neither a nor b conforms"
    return f"{broken[0]} does not conform" if broken else ""


def cause_sentence(
    layer: int | str,
    entry: Entry,
    labels: np.ndarray,
    cause: str,
    *,
    n: int,
    total: int,
    worst: tuple[Worst, ...],
    key_names: tuple[str, ...],
    side: str,
    note: str,
) -> str:
    """'layer 3 d-xlq: 512 of 1348608 codes structured (b does not conform: column 37), rows 0..511, column 37; at ...'.

    n of total elements have the cause, those of rows on one side only among them, which `labels` does not hold.
    """
    mask = labels == NUMBER[cause]
    text = f"{in_layer(layer)} {entry.name}: {n} of {total} {NOUN[entry.unit]} {cause}"
    if side or note:
        text += f" ({': '.join(part for part in (side, note) if part)})"
    if mask.any():
        text += f", {place(mask, entry.unit)}"
    return text + example(worst, cause, key_names)
