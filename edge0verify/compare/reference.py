"""Whether a reference that is neither a nor b can be trusted; said before any variant is blamed by it.

The reference is held to its own contract, and to the oracle: where it stands far further from the value without quantised
activations than both variants do, what differs from it says nothing about them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from edge0verify.compare import comparators
from edge0verify.compare.entry import where
from edge0verify.compare.metrics import Distance, finite_pair
from edge0verify.numerics.blocks import BLOCK
from edge0verify.records.evidence import Evidence, Side

FAR = 4.0
"""Times as far from the oracle as the further of a and b: variants of one stage stay within 1.1 of each other."""


def suspicions(evidences: Iterable[Evidence]) -> list[str]:
    """A sentence for each tensor whose `reference` cannot be trusted; hand them to `judge(suspect=...)`."""
    return [text for evidence in evidences if evidence.reference is not None for text in _suspicion(evidence, evidence.reference)]


def _suspicion(evidence: Evidence, reference: Side) -> list[str]:
    if not reference.present(evidence.kind) or evidence.kind == "ids":
        return []
    place = f"{where(evidence)}: the reference is suspect, it"
    broken, n = _broken(evidence, reference)
    if broken:
        return [f"{place} does not keep its own contract in {broken} of {n} places"]
    oracle = evidence.oracle
    if oracle is None:
        return []
    to_oracle = _distance(reference, oracle)
    others = [_distance(side, oracle) for side in (evidence.a, evidence.b) if side.present(evidence.kind)]
    known = [d for d in others if d is not None]
    if to_oracle is None or not known or to_oracle <= FAR * max(known):
        return []
    said = " and ".join(f"{d:.2g}" for d in known)
    return [f"{place} is {to_oracle:.2g} (relative L2) from the oracle, where a and b are {said}"]


def _broken(evidence: Evidence, side: Side) -> tuple[int, int]:
    """Elements of the reference that break its contract (where it has none: that are not finite), of how many.

    What is not finite in its own oracle is not: it came from the weights or the input, and a and b have it as well.
    """
    alone = Evidence(layer=evidence.layer, tensor=evidence.tensor, kind=evidence.kind, a=side, b=side)
    came_in = _came_in(side)
    wrong = total = 0
    for elements in comparators.find(evidence.kind).elements(alone, slice(None)).values():
        judged = elements.a
        bad = judged.poison | (judged.nonfinite if judged.keeps is None else ~judged.keeps)
        if came_in is not None:
            per = came_in.shape[1] // bad.shape[1]
            bad = bad & ~came_in.reshape(*bad.shape, per).any(axis=2)
        wrong, total = wrong + int(np.count_nonzero(bad)), total + bad.size
    return wrong, total


def _came_in(side: Side) -> np.ndarray | None:
    """bool [n, m]: what the side was to hold is no number, in blocks all of the block; None where nothing says what it was."""
    source = side.t if side.t is not None else side.rows if side.blocks is not None else None
    if source is None and side.exact is not None:
        return np.repeat(~np.isfinite(side.exact.d), BLOCK, axis=1)
    if source is None:
        return None
    strange = ~np.isfinite(source)
    return strange if side.blocks is None else np.repeat(strange.reshape(len(strange), -1, BLOCK).any(axis=2), BLOCK, axis=1)


def _distance(side: Side, oracle: np.ndarray) -> float | None:
    values = side.blocks.values() if side.blocks is not None else side.rows.astype(np.float64)
    distance = Distance()
    distance.add(*finite_pair(values, oracle))
    return distance.relative
