"""Blocks of columns that hold what another block of the same row should hold: swapped, shifted, or repeated with a period."""

from __future__ import annotations

import numpy as np

from edge0verify.compare import stored
from edge0verify.compare.causes.rest import Rest
from edge0verify.compare.elements import Mask
from edge0verify.numerics.conform import code_of_oracle

WIDTHS = (128, 64, 32, 16, 8)
SAMPLED = 24
"""Rows that are looked at; a block that moved did so in all of them."""
FITS = 0.97
"""Share of the sampled elements that must agree with the other block."""
MOST_BLOCKS = 512


def find(rest: Rest, name: str) -> tuple[str, Mask] | None:
    """('blocks 3 and 5 of 32 columns swapped', bool [n, m] of them), or None."""
    broken = rest.broken(name)
    sampled = expected(rest, name, broken)
    if rest.unit == "id" or sampled is None:
        return None
    rows, found, ideal, reach = sampled
    columns = broken.shape[1]
    noun = "block" if rest.unit in ("scale", "sum") else "column"
    for width in (1,) if rest.unit in ("scale", "sum") else WIDTHS:
        if columns % width or not 2 <= columns // width <= MOST_BLOCKS:
            continue
        origin = _origins(found, ideal, reach, broken[rows], width)
        if not origin:
            continue
        mask = np.zeros(broken.shape, bool)
        for block in origin:
            mask[:, block * width : (block + 1) * width] = True
        if np.count_nonzero(mask & broken) >= 0.9 * np.count_nonzero(broken):
            return _describe(origin, width, columns // width, noun), mask & broken
    return None


def expected(rest: Rest, name: str, broken: Mask):
    """(rows, what they hold, what they should hold, by how much that may be off), f64 [r, m], of some broken rows."""
    side = rest.side(name)
    rows = np.flatnonzero(broken.any(axis=1))
    if len(rows) < 2 or side.t is None or side.bound is None:
        return None
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), SAMPLED)).astype(np.int64))]
    t, bound = side.t[rows], side.bound[rows]
    if rest.unit == "row":
        return rows, side.rows[rows].astype(np.float64), t, bound
    if rest.unit not in ("code", "scale"):
        return None
    codes, d = code_of_oracle(t, stored.store_of(side))
    if rest.unit == "code":
        return rows, side.blocks.codes[rows].astype(np.float64), codes.astype(np.float64), np.ones(t.shape)
    d = d.astype(np.float64)
    return rows, side.blocks.d[rows].astype(np.float64), d, d * 2.0**-10


def _origins(found: np.ndarray, ideal: np.ndarray, reach: np.ndarray, broken: Mask, width: int) -> dict[int, int]:
    """Broken block -> the block whose content it holds in all sampled rows, where that content is another."""
    blocks = found.shape[1] // width
    cut = (len(found), blocks, width)
    x, y, r = found.reshape(cut), ideal.reshape(cut), reach.reshape(cut)
    origin = {}
    for block in np.flatnonzero(broken.reshape(cut).any(axis=(0, 2))).tolist():
        fits = (np.abs(x[:, block, None] - y) <= r).mean(axis=(0, 2))
        fits[block] = 0
        other = int(fits.argmax())
        spread = np.ptp(y[:, other]) > 4 * r[:, other].max()  # a constant block fits anywhere
        differs = (np.abs(y[:, block] - y[:, other]) > r[:, other]).mean() > 0.2
        if fits[other] >= FITS and spread and differs:
            origin[block] = other
    return origin


def _describe(origin: dict[int, int], width: int, blocks: int, noun: str) -> str:
    unit = "blocks" if noun == "block" else f"blocks of {width} columns"
    pairs = [(a, b) for a, b in origin.items() if a < b and origin.get(b) == a]
    if pairs and 2 * len(pairs) == len(origin):
        listed = ", ".join(f"{a} and {b}" for a, b in pairs[:4])
        return f"{unit} {listed}{' ...' if len(pairs) > 4 else ''} swapped"
    shifts = {(b - a) for a, b in origin.items()}
    if len(origin) > 1 and len(shifts) == 1:
        by = shifts.pop()
        whose = {1: "the next one's", -1: "the one's before"}.get(by, f"that of the one {abs(by)} {'on' if by > 0 else 'back'}")
        return f"each of {len(origin)} {unit} holds {whose} content"
    period = min(origin) if origin else 0
    if len(origin) > 1 and period and all(b == a % period for a, b in origin.items()):
        return f"{noun}s repeat with a period of {period * width}"
    listed = ", ".join(f"{a} that of {b}" for a, b in list(origin.items())[:4])
    return f"{unit} hold another's content: {listed}{' ...' if len(origin) > 4 else ''}"
