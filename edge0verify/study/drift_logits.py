"""How far two runs over the same tokens are apart in what they say: KL, near ties, changed choices with their margins.

A margin is judged in ulps at the logit's magnitude: a lead of one ulp is no lead, whatever its size in log-prob.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edge0verify.compare.top8 import divergence, log_softmax
from edge0verify.numerics.rounding import ulp

NEAR = (1e-3, 1e-2, 1e-1)
"""Leads of the best logit over the second, in log-prob, below which positions are counted as near ties."""
LOGPROB_ULPS = 4.0
"""Largest distance of a log-prob from the log-softmax of its own logits, in ulps at the larger of both magnitudes: an exponential
sum in float32 and two roundings stay below it."""


def leads(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(best id i64, lead f64, lead in ulps f64), each [positions]: of the best over the second logit; ties to the lower id.

    NaN logits lead nowhere: their lead is NaN.
    """
    x = np.asarray(logits)
    best = x.argmax(axis=1)
    top = np.take_along_axis(x, best[:, None], 1)[:, 0].astype(np.float64)
    rest = x.astype(np.float64)
    np.put_along_axis(rest, best[:, None], -np.inf, 1)
    lead = top - rest.max(axis=1)
    return best, lead, lead / ulp(top)


def near_ties(logits: np.ndarray) -> dict[str, Any]:
    """{positions, exact, below: {threshold: share}}: `exact` counts leads of at most one ulp."""
    _, lead, ulps = leads(logits)
    n = len(lead)
    below = {f"{limit:g}": float(np.count_nonzero(lead < limit) / n) if n else None for limit in NEAR}
    return {"positions": n, "exact": int(np.count_nonzero(ulps <= 1)), "below": below}


def choices(a: np.ndarray, b: np.ndarray) -> list[dict[str, Any]]:
    """Positions where a and b (logits [positions, vocabulary]) choose another token, with a's lead there.

    {position, a, b, margin (log-prob), ulps, moved (change of that lead), tie}: `tie` where a's lead is at most one ulp.
    """
    best_a, lead, ulps = leads(a)
    best_b = np.asarray(b).argmax(axis=1)
    found = []
    for i in np.flatnonzero(best_a != best_b):
        x, y = int(best_a[i]), int(best_b[i])
        moved = (float(b[i, y]) - float(b[i, x])) + (float(a[i, x]) - float(a[i, y]))
        found.append({"position": int(i), "a": x, "b": y, "margin": float(lead[i]), "ulps": float(ulps[i]), "moved": moved,
                      "tie": bool(ulps[i] <= 1)})
    return found


def apart(a: np.ndarray, b: np.ndarray, k: int = 8) -> dict[str, Any]:
    """Two runs' logits [positions, vocabulary] at the same positions.

    {positions, equal (positions with the same bits), mean_kl, kl_se (standard error of the mean), max_kl, max_move (largest change
    of a log-prob among a's k best), argmax_changes, changes}.  NaN figures are kept: they must not hide.
    """
    log_a, log_b = log_softmax(a), log_softmax(b)
    kl = divergence(a, b)
    top = np.argsort(-np.asarray(a), axis=1, kind="stable")[:, :k]
    move = np.abs(np.take_along_axis(log_a, top, 1) - np.take_along_axis(log_b, top, 1)).max(axis=1)
    same = (np.ascontiguousarray(a).view(np.uint32) == np.ascontiguousarray(b).view(np.uint32)).all(axis=1)
    changes = choices(a, b)
    n = len(kl)
    return {
        "positions": n,
        "equal": int(same.sum()),
        "mean_kl": float(kl.mean()) if n else None,
        "kl_se": float(kl.std(ddof=1) / np.sqrt(n)) if n > 1 else None,
        "max_kl": float(kl.max()) if n else None,
        "max_move": float(move.max()) if n else None,
        "argmax_changes": len(changes),
        "changes": changes,
    }


def wrong_logprobs(ids: np.ndarray, logprobs: np.ndarray, logits: np.ndarray) -> str | None:
    """Why a top-k list does not follow from its logits, or None.

    ids int [n, k], logprobs f32 [n, k], logits f32 [n, vocabulary].  The ids must be k largest logits in order, each log-prob
    within `LOGPROB_ULPS` of the log-softmax: a reply that is right by its tokens can still carry wrong numbers.
    """
    exact = np.take_along_axis(log_softmax(logits), ids.astype(np.int64), 1)
    chosen = np.take_along_axis(np.asarray(logits), ids.astype(np.int64), 1).astype(np.float64)
    largest = np.sort(np.asarray(logits, np.float64), axis=1)[:, ::-1][:, : ids.shape[1]]
    wrong = np.argwhere(~(chosen >= largest))
    if wrong.size:
        i, j = map(int, wrong[0])
        return f"position {i}: expected one of the {ids.shape[1]} largest logits at place {j}, found id {int(ids[i, j])}"
    size = np.maximum(np.abs(exact), np.abs(np.asarray(logits, np.float64)).max(axis=1, keepdims=True))
    with np.errstate(invalid="ignore"):
        off = np.abs(logprobs.astype(np.float64) - exact) / ulp(size)
    wrong = np.argwhere(~(off <= LOGPROB_ULPS))
    if wrong.size:
        i, j = map(int, wrong[0])
        return (f"position {i} id {int(ids[i, j])}: log-prob {logprobs[i, j]:.7g}, its logits give {exact[i, j]:.7g} "
                f"({off[i, j]:.3g} ulps at the logit's magnitude)")
    return None
