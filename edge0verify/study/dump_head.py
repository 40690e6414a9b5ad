"""What two runs say next: movement of the top 8, and what is wrong with the head's tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edge0verify.compare import movement
from edge0verify.dump.reader import Dump
from edge0verify.records.evidence import Tokens

IDS, LOGPROBS, LOGITS = "top8-ids", "top8-logprobs", "logits"


@dataclass(frozen=True)
class Head:
    top8: dict[str, Any] | None
    failures: list[str]
    unproven: list[str]


def compare_head(a: Dump, b: Dump, *, same_so_far: bool) -> Head:
    """same_so_far: no layer differs, so the head may not either."""
    found = [[name for name in (IDS, LOGPROBS) if _has(dump, name)] for dump in (a, b)]
    if not found[0] and not found[1] and not any(_promises(dump) for dump in (a, b)):
        return Head(None, [], [])
    gaps = [(side, name) for side, has in zip("ab", found) for name in (IDS, LOGPROBS) if name not in has]
    missing = [f"head {name}: missing on side {side}" for side, name in gaps]
    if missing:
        return Head(None, [], missing)
    sides = [_tokens(dump) for dump in (a, b)]
    failures, unproven = _finite(*sides)
    if failures or unproven:
        return Head(None, failures, unproven)
    top8 = movement(*sides)
    if same_so_far and (top8["max_move"] or top8["set_changes"] or top8["argmax_changes"]):
        unproven.append("head: what the model says next differs though no layer does: a part that belongs to no variant differs")
    return Head(top8, failures, unproven)


def _has(dump: Dump, name: str) -> bool:
    return dump.has("head", name) and dump.shape("head", name)[0] > 0


def _promises(dump: Dump) -> bool:
    return bool({IDS, LOGPROBS} & set(dump.manifest.signature.tensors))


def _tokens(dump: Dump) -> Tokens:
    logits = dump.read("head", LOGITS) if _has(dump, LOGITS) else None
    return Tokens(ids=dump.read("head", IDS), logprobs=dump.read("head", LOGPROBS), logits=logits)


def _finite(a: Tokens, b: Tokens) -> tuple[list[str], list[str]]:
    failures, unproven = [], []
    for name, x, y in ((LOGPROBS, a.logprobs, b.logprobs), (LOGITS, a.logits, b.logits)):
        if x is None or y is None or x.shape != y.shape:
            continue
        bad_a, bad_b = ~np.isfinite(x), ~np.isfinite(y)
        if (bad_a != bad_b).any():
            failures.append(f"head {name}: not finite on one side only ({int(bad_a.sum())} values of a, {int(bad_b.sum())} of b)")
        elif bad_a.any():
            unproven.append(f"head {name}: {int(bad_a.sum())} values are not finite on either side, so nothing is proven")
    return failures, unproven
