"""How far what the model says next moves between two runs: the top-8 ids and their log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from edge0verify.compare.policy import Policy
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Tokens


def hold(top8: dict[str, Any] | None, policy: Policy) -> tuple[list[str], list[str]]:
    """(failures, unproven) of a movement against the policy's limit, in units of `top8["spread"]`, that of accepted variants."""
    limit = policy.top8_spread
    if limit is None:
        return [], []
    moved = None if top8 is None else top8["max_move"]
    yardstick = None if top8 is None else (top8.get("spread") or {}).get("max_move")
    if moved is None or yardstick is None:
        missing = "no movement was measured" if moved is None else "the accepted variants' own spread is not known"
        return [], [f"top-8 movement: policy allows {limit:g} times the spread, and {missing}"]
    ratio = moved / yardstick if yardstick > 0 else (0.0 if moved == 0 else float("inf"))
    if ratio <= limit:
        return [], []
    text = f"top-8 log-probs move by {moved:.3g}, {ratio:.3g} times the {yardstick:.3g} of the accepted variants among themselves"
    return [f"{text}, policy allows {limit:g}; top8_spread = {ratio!r} would have passed"], []


def _check(tokens: Tokens, side: str) -> None:
    if tokens.ids.ndim != 2 or tokens.ids.shape != tokens.logprobs.shape:
        shapes = f"ids {list(tokens.ids.shape)} and log-probs {list(tokens.logprobs.shape)}"
        raise InputError(f"top8 side {side}: expected ids and log-probs [positions, k], found {shapes}")
    if tokens.logits is not None and len(tokens.logits) != len(tokens.ids):
        raise InputError(f"top8 side {side}: expected logits of {len(tokens.ids)} positions, found {len(tokens.logits)}")


def shared_move(ids_a: np.ndarray, lp_a: np.ndarray, ids_b: np.ndarray, lp_b: np.ndarray) -> tuple[int, float | None]:
    """At one position: how many ids both sides list, and the largest |log-prob a - log-prob b| over them.

    A NaN on either side makes the movement NaN: it must not hide behind a maximum.
    """
    common, at_a, at_b = np.intersect1d(ids_a, ids_b, return_indices=True)
    if not common.size:
        return 0, None
    with np.errstate(invalid="ignore"):
        gaps = np.abs(lp_a.astype(np.float64)[at_a] - lp_b.astype(np.float64)[at_b])
    # Equal infinities differ by nothing.
    gaps[lp_a[at_a] == lp_b[at_b]] = 0.0
    return int(common.size), float(np.max(gaps))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """float64 log-probabilities of logits [..., vocabulary]."""
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def divergence(logits_a: np.ndarray, logits_b: np.ndarray) -> np.ndarray:
    """KL(a || b) over the vocabulary in nats, f64 [positions]."""
    log_a, log_b = log_softmax(logits_a), log_softmax(logits_b)
    return (np.exp(log_a) * (log_a - log_b)).sum(axis=-1)


def movement(a: Tokens, b: Tokens) -> dict[str, Any]:
    """The `top8` field of a verdict.

    {positions, max_move, mean_move, argmax_changes, set_changes, max_kl, per_position: [{name, move, shared, argmax: [a, b],
    argmax_margin, kl}]}. A move is the largest |log-prob difference| over ids that both sides list; None where they share none.
    `argmax_margin` is how far a's best stands above its second, in log-prob. KL in nats, None without logits.
    Raises InputError where the sides have unlike positions.
    """
    _check(a, "a")
    _check(b, "b")
    if a.ids.shape != b.ids.shape:
        raise InputError(f"top8: expected the same positions on both sides, found {list(a.ids.shape)} and {list(b.ids.shape)}")
    kl = None if a.logits is None or b.logits is None else divergence(a.logits, b.logits)
    positions = []
    for i in range(len(a.ids)):
        shared, move = shared_move(a.ids[i], a.logprobs[i], b.ids[i], b.logprobs[i])
        best = [int(a.ids[i, 0]), int(b.ids[i, 0])]
        margin = float(a.logprobs[i, 0]) - float(a.logprobs[i, 1]) if a.ids.shape[1] > 1 else None
        positions.append(
            {
                "name": a.names[i] if i < len(a.names) else str(i),
                "move": move,
                "shared": shared,
                "argmax": best,
                "argmax_margin": margin,
                "kl": None if kl is None else float(kl[i]),
            }
        )
    moves = [p["move"] for p in positions if p["move"] is not None]
    return {
        "positions": len(positions),
        "max_move": float(np.max(moves)) if moves else None,
        "mean_move": float(np.mean(moves)) if moves else None,
        "argmax_changes": sum(p["argmax"][0] != p["argmax"][1] for p in positions),
        "set_changes": sum(p["shared"] < a.ids.shape[1] for p in positions),
        "max_kl": None if kl is None or not len(kl) else float(np.max(kl)),
        "per_position": positions,
    }
