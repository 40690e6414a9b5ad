"""The router: faults in the choice of experts, and the flips that rounding makes legitimate.

The embedded model's own logits on the text, with the bound of the router's product; what a side chose follows from its logits,
unless the fault says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from edge0verify.engine import Engine
from edge0verify.model import encode, prompt
from edge0verify.records.evidence import Evidence, Router, Side
from edge0verify.study.capture import REFERENCE
from edge0verify.study.evidence import TOKEN_KEYS
from edge0verify.study.own import EPS, largest, router_sums
from edge0verify.study.selftest import scenes

Change = Callable[["Routed"], tuple[np.ndarray, np.ndarray, np.ndarray | None]]
"""-> (side b's logits f32 [n, experts], its ids i32 [n, k], side a's logits where they change too)."""


@dataclass(frozen=True)
class Routed:
    """What the router of one layer read and wrote."""

    logits: np.ndarray
    bound: np.ndarray
    k: int
    rows: np.ndarray

    def ids(self, logits: np.ndarray) -> np.ndarray:
        return largest(logits, self.k)


@dataclass(frozen=True, kw_only=True)
class RouteCase:
    """A change of the router's output; `expect` is empty for a legitimate one."""

    name: str
    expect: tuple[str, ...]
    apply: Change
    quick: bool = False


@cache
def routed() -> Routed:
    """The router of the layer under test on the text."""
    loaded, seen = scenes.model(), {}

    def tap(layer, name, pos0, value):
        if layer == scenes.LAYER:
            seen.setdefault(name, []).append(value)

    names = frozenset({"ffn-in", "route-logits"})
    engine = Engine(loaded, variants=dict(REFERENCE), threads=scenes.THREADS)
    engine.prefill(encode(prompt("prose"))[: scenes.TOKENS], tap=tap, names=names)
    x, logits = (np.concatenate(seen[name]) for name in ("ffn-in", "route-logits"))
    weights = loaded.layer(scenes.LAYER, "ffn_gate_inp").values().astype(np.float64)
    s, n = router_sums(weights, x)[1], weights.shape[1]
    bound = s * (n * EPS / (1 - n * EPS)) + n * 2.0**-149
    return Routed(logits, bound, loaded.config.k, scenes.text("D").rows)


def evidence(case: RouteCase) -> Evidence:
    """Side a as the engine routed, side b changed."""
    base = routed()
    logits_b, ids_b, logits_a = case.apply(base)
    logits_a = base.logits if logits_a is None else logits_a
    return Evidence(
        layer=scenes.LAYER,
        tensor="route-ids",
        kind="ids",
        stage="route",
        a=Side(ids=base.ids(logits_a)),
        b=Side(ids=ids_b),
        keys=base.rows,
        key_names=TOKEN_KEYS,
        limit=logits_a.shape[1],
        router=Router(a=logits_a, b=logits_b, bound=base.bound),
    )


def _follow(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Side b's logits are wrong, and its ids follow them."""

    def apply(r: Routed):
        logits = change(r.logits.copy()).astype(np.float32)
        return logits, r.ids(logits), None

    return apply


def _bf16(x: np.ndarray) -> np.ndarray:
    return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _late(x: np.ndarray) -> np.ndarray:
    x[1:] = x[:-1].copy()
    return x


def _one_expert_up(x: np.ndarray) -> np.ndarray:
    x[:, 7] += 0.25
    return x


def _without_last_expert(r: Routed):
    """The scan over the experts ends one too early."""
    masked = r.logits.copy()
    masked[:, -1] = -np.inf
    return r.logits, r.ids(masked), None


def _rank_skipped(r: Routed):
    """The last slot takes the next best but one."""
    more = largest(r.logits, r.k + 1)
    return r.logits, np.concatenate([more[:, : r.k - 1], more[:, r.k :]], axis=1), None


def _repeated(r: Routed):
    """An expert is chosen twice in every 16th row."""
    ids = r.ids(r.logits)
    ids[::16, -1] = ids[::16, 0]
    return r.logits, ids, None


def _near_tie(r: Routed):
    """The last expert in and the first one out lie half a bound apart, in opposite order on the two sides."""
    order = largest(r.logits, r.k + 1)
    token = np.arange(len(order))
    last, first = order[:, r.k - 1], order[:, r.k]
    a, b = r.logits.copy(), r.logits.copy()
    middle = (a[token, last] + a[token, first]) / 2
    step = r.bound[token, last] / 4
    chosen = np.random.default_rng(3).random(len(token)) < 0.2          # scattered, as near ties are
    for logits, sign in ((a, 1), (b, -1)):
        logits[token[chosen], last[chosen]] = (middle + sign * step)[chosen]
        logits[token[chosen], first[chosen]] = (middle - sign * step)[chosen]
    return b, r.ids(b), a




ROUTES: tuple[RouteCase, ...] = (
    RouteCase(name="router in bf16", expect=("route-flip",), apply=_follow(_bf16), quick=True),
    RouteCase(name="router reads the token before", expect=("route-flip",), apply=_follow(_late)),
    RouteCase(name="one expert's logit raised", expect=("route-flip",), apply=_follow(_one_expert_up)),
    RouteCase(name="last expert never looked at", expect=("route-flip", "unexplained", "structured"), apply=_without_last_expert),
    RouteCase(name="a rank skipped", expect=("route-flip", "unexplained", "structured"), apply=_rank_skipped),
    RouteCase(name="an expert twice", expect=("unexplained", "structured"), apply=_repeated),
    RouteCase(name="near ties decided the other way", expect=(), apply=_near_tie, quick=True),
)
