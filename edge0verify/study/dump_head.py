"""What two runs say next: movement of the top 8, and what is wrong with the head's tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edge0verify.compare import Policy, movement
from edge0verify.dump.ids import refuse_invalid
from edge0verify.dump.reader import Dump
from edge0verify.records.causes import EQUAL, LOOSE
from edge0verify.records.evidence import Tokens
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import LayerResult, percent

BY_TEXT = 1 << 30
"""Ids from here on are made of a token's text, by an endpoint that gives no ids; no vocabulary is so large."""
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
    if len({side.ids.shape[1] for side in sides}) > 1 and (a.manifest.foreign or b.manifest.foreign):
        sides = [cut(side, min(s.ids.shape[1] for s in sides)) for side in sides]
    named = [bool((side.ids >= BY_TEXT).any()) for side in sides]
    if named[0] != named[1]:
        by = ["text", "id"] if named[0] else ["id", "text"]
        return Head(None, [], [f"head {IDS}: a names tokens by {by[0]}, b by {by[1]}, so none can be joined"])
    failures, unproven = _finite(*sides)
    if failures or unproven:
        return Head(None, failures, unproven)
    top8 = movement(*sides)
    if same_so_far and (top8["max_move"] or top8["set_changes"] or top8["argmax_changes"]):
        unproven.append("head: what the model says next differs though no layer does: a part that belongs to no variant differs")
    return Head(top8, failures, unproven)


def compare_heads_alone(a: Dump, b: Dump, policy: Policy) -> list[LayerResult]:
    """The head as an entry of its own, for dumps that hold nothing else: what is equal passes, and nothing bounds the rest, unless
    the policy says how much of it must be equal (`matched`)."""
    if not all(_has(dump, name) for dump in (a, b) for name in (IDS, LOGPROBS)):
        return []
    sides = [_tokens(dump) for dump in (a, b)]
    if sides[0].ids.shape[0] != sides[1].ids.shape[0]:
        return []
    k = min(side.ids.shape[1] for side in sides)
    x, y = (cut(side, k) for side in sides)
    shared = equal = 0
    widest = 0.0
    for i in range(len(x.ids)):
        _, at_x, at_y = np.intersect1d(x.ids[i], y.ids[i], return_indices=True)
        one, other = x.logprobs[i][at_x], y.logprobs[i][at_y]
        shared += len(one)
        equal += int((one == other).sum())
        widest = max(widest, float(np.abs(one.astype(np.float64) - other).max(initial=0.0)))
    n = int(x.ids.size)
    status, why = _settled(n, equal, shared, policy)
    return [
        LayerResult(
            layer="head", tensor=LOGPROBS, n=n, equal=equal, equal_pct=percent(equal, n), max_code_diff=None, code_diffs=None,
            scale_equal_pct=None, rel_l2=None, max_abs=widest, max_ulp=None, corr=None, conforming={"a": None, "b": None},
            causes={name: count for name, count in ((EQUAL.name, equal), (LOOSE.name, n - equal)) if count},
            status=status, reasons=(why,) if why else (),
        )
    ]


def _settled(n: int, equal: int, shared: int, policy: Policy) -> tuple[str, str]:
    limits = policy.limits("head", LOGPROBS, "head")
    if limits is None:
        return INCONCLUSIVE, f"head {LOGPROBS}: error, no rule of {policy.source or 'the policy'} matches this tensor"
    if equal == n:
        return PASS, ""
    text = f"head {LOGPROBS}: {n - equal} of {n} differ, {n - shared} of them by their ids"
    if limits.matched is None:
        return INCONCLUSIVE, f"{text}, and no bound says by how much they may"
    if equal / n >= limits.matched:
        return PASS, ""
    return FAIL, f"{text}; policy asks for {limits.matched:g} equal; matched = {equal / n!r} would have passed"


def cut(tokens: Tokens, k: int) -> Tokens:
    """The k best of every position."""
    return replace(tokens, ids=tokens.ids[:, :k], logprobs=tokens.logprobs[:, :k])


def _has(dump: Dump, name: str) -> bool:
    return dump.has("head", name) and dump.shape("head", name)[0] > 0


def _promises(dump: Dump) -> bool:
    return bool({IDS, LOGPROBS} & set(dump.manifest.signature.tensors))


def _tokens(dump: Dump) -> Tokens:
    logits = dump.read("head", LOGITS) if _has(dump, LOGITS) else None
    ids = dump.read("head", IDS)
    if not (ids >= BY_TEXT).any():                       # two tokens may have one text
        refuse_invalid(ids, None, f"{dump.path}: head/{IDS}")
    return Tokens(ids=ids, logprobs=dump.read("head", LOGPROBS), logits=logits)


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
