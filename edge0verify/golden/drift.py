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
    rel_l2: the largest of any layer, by tensor, over the rows that both hold. top8_move: largest |log-prob difference|, None
    where not known.
    """

    accepted: int
    equal_pct: float
    rel_l2: dict[str, float]
    top8_move: float | None
    argmax_changes: int | None
    limit: float | None

    @property
    def too_far(self) -> str | None:
        """Why the run is too far from the anchor, or None."""
        if self.limit is None or self.top8_move is None or self.top8_move <= self.limit:
            return None
        return (
            f"drift: top-8 log-probs stand {self.top8_move:.3g} from the anchor, {self.accepted} accepted changes ago; "
            f"the limit is {self.limit:g}"
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "too_far": self.too_far}

    def text(self) -> str:
        """'3 changes since the anchor: 91.2 % of elements equal, u 0.0021, top 8 0.0051'."""
        parts = [f"{self.equal_pct:.4g} % equal"]
        parts += [f"{tensor} {value:.2g}" for tensor, value in self.rel_l2.items()]
        if self.top8_move is not None:
            parts.append(f"top 8 moved {self.top8_move:.3g}")
        return f"{self.accepted} accepted since the anchor: {', '.join(parts)}"


def drift(golden: Golden, fresh: Dump, anchor: Dump, *, run: Recorded, top8: dict[str, list] | None) -> Drift:
    """Of `fresh` (of the anchor's level and shapes) from the anchor's dump; run: the anchor as recorded; top8: of the fresh run."""
    equal, total, rel = 0, 0, dict[str, float]()
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
    moved = _movement(top8, run.top8)
    return Drift(
        accepted=golden.since_anchor,
        equal_pct=100.0 * equal / total if total else 0.0,
        rel_l2=rel,
        top8_move=None if moved is None else moved["max_move"],
        argmax_changes=None if moved is None else moved["argmax_changes"],
        limit=(golden.current or run).rules.drift,
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
