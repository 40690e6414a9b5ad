"""A part of the sum over the inner dimension is missing or counted twice: a k-split that was not joined as it should be."""

from __future__ import annotations

import numpy as np

from edge0verify.compare.causes.rest import Rest
from edge0verify.compare.elements import Mask

SAMPLED_ROWS = 64
SAMPLED = 6000
"""Elements that the parts are fitted to."""
FITS = 0.95
"""Share of the sampled elements that the parts must explain within their bounds."""


def find(rest: Rest, name: str) -> tuple[str, Mask] | None:
    """('K blocks 16..32 of 33 are missing from the sum', bool [n, m] of what they explain), or None."""
    side, broken = rest.side(name), rest.broken(name)
    if side.terms is None or side.rows is None or side.t is None or side.bound is None or rest.unit not in ("row", "code"):
        return None
    rows = np.flatnonzero(broken.any(axis=1))
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), SAMPLED_ROWS)).astype(np.int64))]
    terms = side.terms(rows)
    if len(terms) < 2:
        return None
    error = side.rows[rows].astype(np.float64) - side.t[rows]
    at = np.flatnonzero(broken[rows].reshape(-1))
    at = at[np.unique(np.linspace(0, len(at) - 1, min(len(at), SAMPLED)).astype(np.int64))]
    parts, wanted = terms.reshape(len(terms), -1)[:, at].T, error.reshape(-1)[at]
    if len(at) < len(terms) + 8 or not (np.isfinite(parts).all() and np.isfinite(wanted).all()):
        return None
    fitted, *_ = np.linalg.lstsq(parts, wanted, rcond=None)
    times = np.rint(fitted)
    if not times.any() or np.abs(times).max() > 3 or np.abs(fitted - times).max() > 0.2:
        return None
    # What is left is rounding, whose bound a sum of other terms may pass a little.
    explained = np.abs(wanted - parts @ times) <= 2 * side.bound[rows].reshape(-1)[at]
    if explained.mean() < FITS:
        return None
    return _describe(times), np.ones(broken.shape, bool) & broken


def _describe(times: np.ndarray) -> str:
    said = []
    for factor in sorted(set(times[times != 0].tolist())):
        blocks = np.flatnonzero(times == factor)
        run = blocks[-1] - blocks[0] + 1 == len(blocks)
        which = f"{blocks[0]}..{blocks[-1]}" if run and len(blocks) > 1 else ", ".join(map(str, blocks[:6].tolist()))
        what = {-1: "are missing from the sum", -2: "have the wrong sign"}.get(int(factor), f"are counted {int(factor) + 1} times")
        said.append(f"K block{'s' if len(blocks) > 1 else ''} {which} of {len(times)} {what}")
    return ", ".join(said)
