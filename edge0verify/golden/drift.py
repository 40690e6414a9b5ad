"""How far a run stands from the frozen anchor. Each accepted change may be small; here they add up."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edge0verify.compare import movement
from edge0verify.dump.levels import KEYS
from edge0verify.dump.reader import ArrayInfo, Dump
from edge0verify.dump.sketch import compare_sketches
from edge0verify.golden.types import Golden, Recorded
from edge0verify.records.evidence import Tokens

SHOWN_TENSORS = ("d-xl", "a-yl", "u")


@dataclass(frozen=True, kw_only=True)
class Drift:
    """From the anchor to a run.

    accepted: how often another run was accepted since. equal_pct: elements (of a sketch: of tiles) with the anchor's bits.
    first_l2: rel-L2 by tensor in the first layer, where what comes in is the anchor's; rel_l2: the largest of any layer, grown on
    the way; both over the rows that both runs hold. top8_move: largest |log-prob difference|. What is not known is absent.
    """

    accepted: int
    equal_pct: float
    first_l2: dict[str, float]
    rel_l2: dict[str, float]
    top8_move: float | None
    argmax_changes: int | None
    limits: dict[str, float | None]

    @property
    def too_far(self) -> str | None:
        """Why the run is too far from the anchor, or None."""
        since, (top8, l2) = f"from the anchor, {self.accepted} accepted changes ago", (self.limits["top8"], self.limits["l2"])
        if top8 is not None and self.top8_move is not None and self.top8_move > top8:
            return f"drift: top-8 log-probs stand {self.top8_move:.3g} {since}; the limit is {top8:g}"
        for tensor, value in self.first_l2.items():
            if l2 is not None and value > l2:
                return f"drift: {tensor} of the first layer stands {value:.3g} (rel-L2) {since}; the limit is {l2:g}"
        return None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "too_far": self.too_far}

    def text(self) -> str:
        """'3 accepted since the anchor: 91.2 % equal, u 0.0021 in the first layer, top 8 moved 0.0051'."""
        parts = [f"{self.equal_pct:.4g} % equal"]
        if self.first_l2:
            tensor = max(self.first_l2, key=self.first_l2.__getitem__)
            parts.append(f"{tensor} {self.first_l2[tensor]:.2g} in the first layer")
        if self.top8_move is not None:
            parts.append(f"top 8 moved {self.top8_move:.3g}")
        return f"{self.accepted} accepted since: {', '.join(parts)}"


def drift(golden: Golden, fresh: Dump, anchor: Dump, *, run: Recorded, top8: dict[str, list] | None) -> Drift:
    """Of `fresh` (of the anchor's level and shapes) from the anchor's dump; run: the anchor as recorded; top8: of the fresh run."""
    equal, total = 0, 0
    first, rel = dict[str, float](), dict[str, float]()
    layers = fresh.layers()
    for path, now in fresh.arrays.items():
        was = anchor.arrays.get(path)
        if now.tensor in KEYS or was is None or was.shape != now.shape:
            continue
        n = int(np.prod(now.shape, dtype=np.int64))
        equal, total = equal + _equal(fresh, anchor, now, was), total + n
        if now.tensor in SHOWN_TENSORS and now.part is None:
            gap = _relative(fresh, anchor, now, was)
            if gap is not None:
                rel[now.tensor] = max(gap, rel.get(now.tensor, 0.0))
                if now.layer == layers[0]:
                    first[now.tensor] = gap
    moved = _movement(top8, run.top8)
    rules = (golden.current or run).rules
    return Drift(
        accepted=golden.since_anchor,
        equal_pct=100.0 * equal / total if total else 0.0,
        first_l2=first,
        rel_l2=rel,
        top8_move=None if moved is None else moved["max_move"],
        argmax_changes=None if moved is None else moved["argmax_changes"],
        limits={"top8": rules.top8, "l2": rules.l2},
    )


def _equal(fresh: Dump, anchor: Dump, now: ArrayInfo, was: ArrayInfo) -> int:
    n = int(np.prod(now.shape, dtype=np.int64))
    if now.sha256 == was.sha256:
        return n
    if now.stored == was.stored == "whole":
        x, y = fresh.read_path(now.path), anchor.read_path(was.path)
        bits = f"u{x.dtype.itemsize}"
        return int((np.ascontiguousarray(x).view(bits) == np.ascontiguousarray(y).view(bits)).sum())
    if now.stored == was.stored == "sketch":
        tiles = compare_sketches(*(d.sketch(now.layer, now.tensor, now.part) for d in (fresh, anchor)))
        return n - sum(last - first for first, last in tiles.spans()) * (n // now.shape[0])
    return 0


def _relative(fresh: Dump, anchor: Dump, now: ArrayInfo, was: ArrayInfo) -> float | None:
    """|now - was| / |was| over the rows that both hold; None where a sketch holds none."""
    if now.sha256 == was.sha256:
        return 0.0
    if now.stored == was.stored == "whole":
        x, y = fresh.read_path(now.path), anchor.read_path(was.path)
    elif now.stored == was.stored == "sketch":
        x, y = (d.sketch(now.layer, now.tensor, now.part).sample for d in (fresh, anchor))
    else:
        return None
    x, y = x.astype(np.float64), y.astype(np.float64)
    size = float(np.sqrt(np.square(y).sum()))
    return float(np.sqrt(np.square(x - y).sum())) / size if size else None


def _movement(now: dict[str, list] | None, was: dict[str, list] | None) -> dict[str, Any] | None:
    if now is None or was is None or np.shape(now["ids"]) != np.shape(was["ids"]):
        return None
    sides = [Tokens(ids=np.array(t["ids"], np.int32), logprobs=np.array(t["logprobs"], np.float32)) for t in (now, was)]
    return movement(*sides)
