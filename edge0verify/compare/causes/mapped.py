"""Elements that are all wrong in one way: the other sign, the reciprocal, a constant factor, rows at another distance, rows and
columns exchanged, or what follows from weights that are read wrongly."""

from __future__ import annotations

import numpy as np

from edge0verify.compare.causes.moved_blocks import FITS, SAMPLED, expected
from edge0verify.compare.causes.rest import Rest
from edge0verify.compare.elements import Mask

FEWEST = 32
"""Elements below which a constant factor may be chance."""
SHARE = 0.5
"""Share of the entry that must be wrong: of less, the place says more than the way."""


def find(rest: Rest, name: str) -> tuple[str, Mask] | None:
    """('all scales are the reciprocal of what they should be', bool [n, m] of them), or None."""
    broken = rest.broken(name)
    if np.count_nonzero(broken) < max(FEWEST, SHARE * broken.size):
        return None
    for whole in (_stride, _exchanged, _misread):
        text = whole(rest, name, broken)
        if text is not None:
            return text, broken
    sampled = expected(rest, name, broken)
    if sampled is None:
        return None
    rows, found, ideal, reach = sampled
    at = broken[rows] & (ideal != 0) & np.isfinite(found)
    if np.count_nonzero(at) < FEWEST:
        return None
    text = _map(found[at], ideal[at], reach[at])
    noun = {"row": "values", "code": "codes", "scale": "scales"}[rest.unit]
    return None if text is None else (f"{noun} {text}", broken)


def _map(x: np.ndarray, y: np.ndarray, reach: np.ndarray) -> str | None:
    """What turns what should be there, y, into what is there, x."""
    if _fits(x, -y, reach):
        return "have the other sign"
    if _fits(x, 1 / y, np.abs(reach / (y * y))):
        return "are the reciprocal of what they should be"
    factor = float(np.median(x / y))
    if factor and abs(factor - 1) > 1e-3 and _fits(x, factor * y, abs(factor) * reach):
        return f"are {factor:.6g} times what they should be"
    return None


def _fits(x: np.ndarray, y: np.ndarray, reach: np.ndarray) -> bool:
    # Twice the reach: what should be there is itself only known to within it.
    return bool((np.abs(x - y) <= 2 * reach).mean() >= FITS)


def _stride(rest: Rest, name: str, broken: Mask) -> str | None:
    """Rows written further apart, or nearer, than they are read: row r stands r*gap columns too far to the right."""
    side = rest.side(name)
    if rest.unit != "row" or side.t is None or side.bound is None or len(broken) < 4:
        return None
    found, t, bound = side.rows.astype(np.float64), side.t, side.bound
    m = t.shape[1]
    for gap in (g for width in range(1, m // 2) for g in (width, -width)):
        if _shifted(found, t, bound, 1, gap) and _shifted(found, t, bound, 2, gap) and _whole(found, t, bound, gap):
            return f"rows are written {m + gap} columns apart and read {m} apart"
    return None


def _exchanged(rest: Rest, name: str, broken: Mask) -> str | None:
    """Written [columns, rows] and read [rows, columns]."""
    side = rest.side(name)
    if rest.unit != "row" or side.t is None or side.bound is None or min(broken.shape) < 2:
        return None
    n, m = broken.shape
    rows = _sampled(np.arange(n))
    held = side.rows.reshape(m, n)[:, rows].T
    fits = np.abs(held - side.t[rows]) <= side.bound[rows]
    return "rows and columns are exchanged" if fits.mean() >= FITS else None


def _misread(rest: Rest, name: str, broken: Mask) -> str | None:
    """The mistake in the weights that these rows follow from, with the error it makes beside what the operands lose anyway."""
    side = rest.side(name)
    if side.misread is None or side.rows is None or side.t is None or side.bound is None or rest.unit not in ("row", "code"):
        return None
    rows = _sampled(np.flatnonzero(broken.any(axis=1)))
    found, t = side.rows[rows].astype(np.float64), side.t[rows]
    # The bound belongs to other terms than those that were added, which may be larger by far.
    reach = 4 * np.maximum(side.bound[rows], np.median(side.bound[rows]))
    for text, made in side.misread(rows):
        known = np.isfinite(made)
        made = np.where(known, made, 0)
        near = reach + 2.0**-20 * np.sqrt(np.mean(np.square(made)))
        if known.mean() > 0.5 and (np.abs(found - made) <= near)[known].mean() >= FITS:
            return text + _beside(rest, name, rows, found, t)
    return None


def _beside(rest: Rest, name: str, rows: np.ndarray, found: np.ndarray, t: np.ndarray) -> str:
    size = float(np.linalg.norm(t))
    if not size:
        return ""
    text = f" (relative L2 error {float(np.linalg.norm(found - t)) / size:.2g}"
    item = rest.evidence
    of_side = item.oracle_a if name == "a" else item.oracle_b
    oracle = item.oracle if of_side is None else of_side
    if oracle is not None:
        text += f", where quantising the activations makes {float(np.linalg.norm(t - oracle[rows])) / size:.2g}"
    return text + ")"


def _sampled(rows: np.ndarray) -> np.ndarray:
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), SAMPLED)).astype(np.int64))]


def _shifted(found: np.ndarray, t: np.ndarray, bound: np.ndarray, row: int, gap: int) -> bool:
    """Whether a row holds its own values `row*gap` columns further on (the first one stands right)."""
    by, m = row * gap, t.shape[1]
    if abs(by) + abs(gap) > m - 8:
        return True
    # Nearer rows: the next one was written over the end of this one.
    to, source = (slice(by, m), slice(0, m - by)) if by > 0 else (slice(0, m + by + gap), slice(-by, m + gap))
    return bool((np.abs(found[row, to] - t[row, source]) <= bound[row, source]).mean() >= FITS)


def _whole(found: np.ndarray, t: np.ndarray, bound: np.ndarray, gap: int) -> bool:
    """Whether rows all over the tensor, taken at the other distance, are what they should be."""
    n, m = t.shape
    flat, fits = found.reshape(-1), []
    for row in np.linspace(0, n - 1, min(n, 24)).astype(int).tolist():
        lo = row * (m + gap)
        if lo + m <= flat.size and gap > 0:
            fits.append((np.abs(flat[lo : lo + m] - t[row]) <= bound[row]).mean())
        elif gap < 0:   # the next row was written over the end of this one
            fits.append((np.abs(flat[lo : lo + m + gap] - t[row, : m + gap]) <= bound[row, : m + gap]).mean())
    return len(fits) >= 3 and float(np.mean(fits)) >= FITS
