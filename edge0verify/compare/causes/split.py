"""A part of the sum over the inner dimension is missing or counted twice: a k-split that was not joined as it should be.

Whole blocks of 32 are fitted first, any set of them. A split of an odd number of blocks cuts one in the middle; such a part is one
stretch of the inner dimension, and of those all are tried, down to stretches that begin at a multiple of four values.
"""

from __future__ import annotations

import numpy as np

from edge0verify.compare.causes.rest import Rest
from edge0verify.compare.elements import Mask
from edge0verify.numerics.blocks import BLOCK

SAMPLED_ROWS = 64
SAMPLED = 6000
"""Elements that the parts are fitted to."""
FITS = 0.95
"""Share of the sampled elements that the parts must explain within their bounds."""
WIDTHS = (BLOCK, 16, 8, 4)
"""Values that the ends of a stretch may be a multiple of, tried in turn."""
MOST_PARTS = 512
TRIED = 12
"""Elements by which stretches are chosen, all but one of them; of all that are sampled, the share `FITS` must then agree."""
FEWEST = 8
"""Elements that something must be fitted to."""
TIMES = (-1, 1, -2)
"""Missing, counted twice, of the wrong sign."""


def find(rest: Rest, name: str) -> tuple[str, Mask] | None:
    """('K blocks 16..32 of 33 are missing from the sum', bool [n, m] of what they explain), or None."""
    side, broken = rest.side(name), rest.broken(name)
    if side.terms is None or side.rows is None or side.t is None or side.bound is None or rest.unit not in ("row", "code"):
        return None
    rows = np.flatnonzero(broken.any(axis=1))
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), SAMPLED_ROWS)).astype(np.int64))]
    at = np.flatnonzero(broken[rows].reshape(-1))
    at = at[np.unique(np.linspace(0, len(at) - 1, min(len(at), SAMPLED)).astype(np.int64))]
    wanted = (side.rows[rows].astype(np.float64) - side.t[rows]).reshape(-1)[at]
    # What is left is rounding, whose bound a sum of other terms may pass a little.
    reach = 2 * side.bound[rows].reshape(-1)[at]
    if len(at) < FEWEST or not np.isfinite(wanted).all():
        return None

    def parts(width: int) -> np.ndarray:
        """f64 [elements, parts] of `width` values each."""
        terms = side.terms(rows, width)
        return terms.reshape(len(terms), -1)[:, at].T

    whole = parts(BLOCK)
    found = _blocks(whole, wanted, reach)
    for width in WIDTHS:
        if found is not None or whole.shape[1] * BLOCK > width * MOST_PARTS:
            break
        found = _stretch(whole if width == BLOCK else parts(width), wanted, reach, width)
    return None if found is None else (found, broken.copy())


def _blocks(parts: np.ndarray, wanted: np.ndarray, reach: np.ndarray) -> str | None:
    """Any set of blocks, each with a whole factor."""
    if parts.shape[1] < 2 or len(wanted) < parts.shape[1] + 8 or not np.isfinite(parts).all():
        return None
    fitted, *_ = np.linalg.lstsq(parts, wanted, rcond=None)
    times = np.rint(fitted)
    if not times.any() or np.abs(times).max() > 3 or np.abs(fitted - times).max() > 0.2:
        return None
    explained = np.abs(wanted - parts @ times) <= reach
    return None if explained.mean() < FITS else _describe(times)


def _stretch(parts: np.ndarray, wanted: np.ndarray, reach: np.ndarray, width: int) -> str | None:
    """One stretch of the inner dimension that begins and ends at multiples of `width` values."""
    if not np.isfinite(parts).all():
        return None
    upto = np.concatenate([np.zeros((len(parts), 1)), np.cumsum(parts, axis=1)], axis=1)
    tried = np.unique(np.linspace(0, len(wanted) - 1, TRIED).astype(np.int64))
    ends = upto.shape[1]
    for factor in TIMES:
        votes = np.zeros((ends, ends), np.int8)
        for i in tried.tolist():
            votes += np.abs(wanted[i] - factor * (upto[i][None, :] - upto[i][:, None])) <= reach[i]
        for first, end in np.argwhere(np.triu(votes >= len(tried) - 1, 1))[:4].tolist():
            if (np.abs(wanted - factor * (upto[:, end] - upto[:, first])) <= reach).mean() >= FITS:
                verb = _VERBS.get(factor, "are counted 2 times")
                unit, n = ("K blocks", 1) if width == BLOCK else ("values", width)
                along = "" if width == BLOCK else " along K"
                return f"{unit} {first * n}..{end * n - 1} of {(ends - 1) * n}{along} {verb}"
    return None


_VERBS = {-1: "are missing from the sum", -2: "have the wrong sign"}


def _describe(times: np.ndarray) -> str:
    said = []
    for factor in sorted(set(times[times != 0].tolist())):
        blocks = np.flatnonzero(times == factor)
        run = blocks[-1] - blocks[0] + 1 == len(blocks)
        which = f"{blocks[0]}..{blocks[-1]}" if run and len(blocks) > 1 else ", ".join(map(str, blocks[:6].tolist()))
        what = _VERBS.get(int(factor), f"are counted {int(factor) + 1} times")
        if len(blocks) == 1:
            what = what.replace("are ", "is ", 1).replace("have ", "has ", 1)
        said.append(f"K block{'s' if len(blocks) > 1 else ''} {which} of {len(times)} {what}")
    return ", ".join(said)
