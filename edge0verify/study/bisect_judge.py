"""What one run did in one layer, each stage judged on the inputs that the run itself gave it.

Nothing is inherited: a stage that computes the right thing from wrong inputs conforms.  The weights of the oracle may be those of
another model than the run's, which is what finds a damaged copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from edge0verify.compare import comparators
from edge0verify.compare.causes import biased
from edge0verify.compare.policy import Limits
from edge0verify.model import Model
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.rounding import EPS, TINY, ulp
from edge0verify.study.evidence import Scene, evidence, pair_keys
from edge0verify.study.replay import StageOutput

STAGES = ("attention", "route", "D", "A1", "A2", "U", "head")
"""Steps in the order in which a layer runs them; `attention` is all that happens between two layers' stages."""
PART = {"D": "D", "A1": "A", "A2": "A", "U": "U"}
Tensors = Mapping[str, np.ndarray | Blocks]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One entry of one stage: which elements break the contract."""

    stage: str
    tensor: str
    unit: str
    """'row', 'code', 'scale', 'sum' or 'id'."""
    broken: np.ndarray
    """bool [n, m]."""
    keys: np.ndarray
    """i32 [n, c]: (pass, position, accepted), of pairs (pass, position, slot, expert, accepted)."""
    biased: str = ""
    """Every element conforms, and the bias test calls their errors systematic: why, and the limits that would have passed."""
    lost: int = 0
    """Of the broken elements, those that are not finite or were not written: no limit excuses them."""

    @property
    def excuse(self) -> str:
        """The smallest limit of a policy that would have let the broken elements pass."""
        return excuse(int(np.count_nonzero(self.broken)), self.broken.size, self.lost)


def excuse(broken: int, n: int, lost: int = 0) -> str:
    """'matched = 0.99 would have passed'; or that none would, since of `broken` of n elements `lost` hold no number."""
    return "no limit excuses it" if lost or not n else f"matched = {1 - broken / n!r} would have passed"


def judge_stages(model: Model, layer: int | str, variants: Mapping[str, str], seen: Tensors, rows: np.ndarray, *,
                 parts: tuple[str, ...] = ("D", "A", "U"), threads: int = 1) -> Iterator[Judged]:
    """Every entry of D, A1, A2 and U of one layer of a run.

    model: whose weights the oracle takes.  variants: canonical names of D, A1, A2, U that the run declares.  seen: the layer's
    tensors by their names in a dump; rows int32 [n, 3].  A part whose tensors are not all there is left out by `parts`.
    """
    output = StageOutput(seen, ())
    seen = _with_experts(model, seen)
    for part in parts:
        name = variants["A1" if part == "A" else part]
        scene = Scene(model=model, layer=layer, inputs=seen, a=output, b=output, variants=(name, name), rows=rows, threads=threads)
        for item in evidence(part, scene):
            comparator = comparators.find(item.kind)
            units = {entry.name: entry.unit for entry in comparator.entries(item)}
            for entry, elements in comparator.elements(item, slice(None)).items():
                side = elements.b
                lost = side.nonfinite | side.poison
                broken = lost
                if side.keeps is not None:
                    broken = broken | ~side.keeps
                wrong = []
                if entry == item.tensor and biased.plan(item):
                    wrong = biased.execute(item, Limits(), conforming={"a": False, "b": not broken.any()})
                yield Judged(stage=item.stage, tensor=entry, unit=units[entry], broken=broken, keys=item.keys,
                             biased=_biased_text(wrong[0]) if wrong else "", lost=int(np.count_nonzero(lost)))


def _biased_text(found: biased.Biased) -> str:
    return f"{found.text}; " + " and ".join(f"{name} = {value!r} would have passed" for name, value in found.limits.items())


def _with_experts(model: Model, seen: Tensors) -> Tensors:
    """The same with some expert where route-ids name none of the model's, which `judge_route` says."""
    ids = seen.get("route-ids")
    if ids is None or ((ids >= 0) & (ids < model.config.experts)).all():
        return seen
    return {**seen, "route-ids": np.clip(ids, 0, model.config.experts - 1)}


def router_bound(model: Model, layer: int | str, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(t, bound) float64 [n, experts] of the router's serial fma over K: the exact product and K*eps/(1-K*eps)*S + K*2^-149."""
    w = model.layer(layer, "ffn_gate_inp").values().astype(np.float64)
    x = h.astype(np.float64)
    k = w.shape[1]
    return x @ w.T, np.abs(x) @ np.abs(w).T * (k * EPS / (1 - k * EPS)) + k * TINY


def judge_route(model: Model, layer: int | str, seen: Tensors, rows: np.ndarray) -> Iterator[Judged]:
    """The router: logits within the bound of their product, ids the k largest of the run's own logits, weights their softmax."""
    logits, ids, weights = seen["route-logits"], seen["route-ids"], seen["route-weights"]
    t, bound = router_bound(model, layer, seen["ffn-in"])
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(logits - t) <= bound)
    yield Judged(stage="route", tensor="route-logits", unit="row", broken=wrong, keys=rows, lost=int((~np.isfinite(logits)).sum()))
    keys = pair_keys(rows, ids).reshape(-1, 5)
    yield Judged(stage="route", tensor="route-ids", unit="id", broken=_not_largest(logits, ids), keys=rows)
    # Softmax and renormalisation in float32: exponentials, a sum over all experts, two divisions.
    chosen = np.take_along_axis(logits, np.clip(ids, 0, logits.shape[1] - 1), 1).astype(np.float64)
    e = np.exp(chosen - chosen.max(axis=1, keepdims=True))
    ideal = e / e.sum(axis=1, keepdims=True)
    steps = logits.shape[1] + ids.shape[1] + 8 + np.abs(chosen - chosen.max(axis=1, keepdims=True))
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(weights - ideal) <= steps * EPS * ideal + TINY)
    lost = int((~np.isfinite(weights)).sum())
    yield Judged(stage="route", tensor="route-weights", unit="row", broken=wrong.reshape(-1, 1), keys=keys, lost=lost)


def _not_largest(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """bool [n, k]: the id is out of range, repeated, or stands before one whose logit is larger."""
    n, experts = logits.shape
    inside = (ids >= 0) & (ids < experts)
    safe = np.where(inside, ids, 0)
    chosen = np.take_along_axis(logits, safe, 1)
    taken = np.zeros((n, experts), bool)
    np.put_along_axis(taken, safe, True, 1)
    rest = np.where(taken, -np.inf, logits).max(axis=1, keepdims=True)
    repeated = (ids[:, :, None] == ids[:, None, :]).sum(axis=2) > 1
    with np.errstate(invalid="ignore"):
        return ~inside | repeated | ~(chosen >= rest)


def judge_bits(stage: str, tensor: str, found: np.ndarray, expected: np.ndarray, rows: np.ndarray) -> Judged:
    """A step that belongs to no variant: every bit is that of the engine on the same inputs."""
    same = np.ascontiguousarray(found).view(np.uint32) == np.ascontiguousarray(expected).view(np.uint32)
    return Judged(stage=stage, tensor=tensor, unit="row", broken=~same, keys=rows)


@dataclass(frozen=True)
class Flips:
    """Tokens that a and b send to other experts.  gap: the smallest lead of a's k-th over its next logit among them, as a
    difference, in ulps at the logit's magnitude, and in units of the router's two bounds; position: of that token."""

    tokens: int
    gap: float | None = None
    ulps: float | None = None
    bounds: float | None = None
    position: int | None = None


def flips(model: Model, layer: int | str, a: Tensors, b: Tensors, rows: np.ndarray) -> Flips:
    """Route flips between two runs over the same tokens."""
    ids_a, ids_b = np.sort(a["route-ids"], axis=1), np.sort(b["route-ids"], axis=1)
    turned = np.flatnonzero((ids_a != ids_b).any(axis=1))
    if not turned.size:
        return Flips(0)
    logits = a["route-logits"][turned]
    k = ids_a.shape[1]
    order = np.argsort(-logits, axis=1, kind="stable")
    last, following = order[:, k - 1 : k], order[:, k : k + 1]
    gap = np.abs(np.take_along_axis(logits, last, 1).astype(np.float64) - np.take_along_axis(logits, following, 1))[:, 0]
    at = int(np.argmin(gap))
    _, bound = router_bound(model, layer, a["ffn-in"][turned[at : at + 1]])
    reach = float(bound[0, last[at, 0]] + bound[0, following[at, 0]])
    smallest, step = float(gap[at]), ulp(logits[at, last[at, 0]]).item()
    return Flips(int(turned.size), smallest, smallest / step, smallest / reach, int(rows[turned[at], 1]))
