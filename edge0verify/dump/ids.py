"""Expert ids that no router may choose: refused where they are an input, since lists that are sized by tokens overflow on them."""

from __future__ import annotations

import numpy as np

from edge0verify.records.errors import InputError


def valid(ids: np.ndarray, limit: int | None) -> np.ndarray:
    """bool [n, k]: the id is at least 0, below `limit`, and stands once in its row."""
    inside = ids >= 0
    if limit is not None:
        inside &= ids < limit
    repeated = (ids[:, :, None] == ids[:, None, :]).sum(axis=2) > 1
    return inside & ~repeated


def refuse_invalid(ids: np.ndarray, limit: int | None, source: str, *, first: int = 0) -> None:
    """InputError naming `source` and the first row whose ids [n, k] repeat or leave 0..limit-1; for ids that are an input.

    Rows are counted from `first`.
    """
    wrong = np.flatnonzero(~valid(ids, limit).all(axis=1))
    if wrong.size:
        row = int(wrong[0])
        below = "" if limit is None else f" below {limit}"
        found = ids[row].tolist()
        raise InputError(f"{source} row {first + row}: expected distinct ids{below}, found {found} ({wrong.size} such rows)")
