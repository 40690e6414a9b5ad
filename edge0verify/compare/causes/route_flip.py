"""The router chose other experts: right where both choices follow their own logits and those lie within the router's bound.

A flip needs two logits so near that their errors may change which is larger. With x the expert that a prefers and y the one that b
prefers, gap = (a[x] - a[y]) + (b[y] - b[x]) must be made of four errors, at most 2*(bound[x] + bound[y]); the flip is measured in
units of that and in ulps at the logit's size. Rows that one side alone has follow from a flip and are counted with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge0verify.compare.causes.rest import Finding, Rest
from edge0verify.compare.comparators.ids import declared
from edge0verify.dump.ids import valid
from edge0verify.numerics.rounding import ulp
from edge0verify.records import causes
from edge0verify.records.evidence import Router

CAUSE = causes.ROUTE_FLIP


@dataclass(frozen=True)
class Flip:
    """One row whose experts differ."""

    row: int
    a: int
    """An expert that a ranks above `b`."""
    b: int
    gap: float
    ulps: float
    bounds: float | None
    """Gap in units of the router's bound; None where the bound is not known."""


def plan(rest: Rest) -> bool:
    return rest.unit == "id"


def execute(rest: Rest) -> Finding:
    evidence = rest.evidence
    a, b = evidence.a.ids, evidence.b.ids
    usable = valid(a, evidence.limit).all(axis=1) & valid(b, evidence.limit).all(axis=1)
    rows = np.flatnonzero(rest.open.any(axis=1) & usable & (a != b).any(axis=1))
    mask = np.zeros(rest.open.shape, bool)
    router = evidence.router or Router(a=None, b=None)
    for name, ids in (("a", a), ("b", b)):
        rule = declared(evidence, name, rows)
        if rule is not None:  # not the largest logits of its own side: no near tie made it
            kept = (rule == ids[rows]).all(axis=1)
            rows = rows[kept]
    flips = []
    for row in rows.tolist():
        flip = measure(router, row, a[row], b[row])
        inherited = any(mask is not None and mask[row] for mask in (evidence.removed, evidence.inherited))
        if inherited and not (flip.bounds is not None and flip.bounds <= 1):
            continue  # no near tie, and its logits came in different: a cascade
        flips.append(flip)
        mask[row] = True
    if not flips:
        return Finding(mask=mask)
    return Finding(mask=mask & rest.open, note=_note(flips), figures=_figures(flips))


def measure(router: Router, row: int, a: np.ndarray, b: np.ndarray) -> Flip:
    """The widest gap among the pairs of experts that a and b rank the other way round."""
    worst = Flip(row, int(a[0]), int(b[0]), np.nan, np.nan, None)
    place_a, place_b = ({int(e): i for i, e in enumerate(ids)} for ids in (a, b))
    experts = sorted({*place_a, *place_b})
    last = len(a)
    for x in experts:
        for y in experts:
            if place_a.get(x, last) < place_a.get(y, last) and place_b.get(y, last) < place_b.get(x, last):
                flip = _pair(router, row, x, y)
                if np.isnan(worst.gap) or flip.gap > worst.gap:
                    worst = flip
    return worst


def _pair(router: Router, row: int, x: int, y: int) -> Flip:
    gap, ulps = 0.0, 0.0
    for logits, high, low in ((router.a, x, y), (router.b, y, x)):
        if logits is not None:
            own = float(logits[row, high]) - float(logits[row, low])
            gap += own
            ulps += own / float(ulp(np.abs(logits[row, [high, low]]).max(keepdims=True))[0])
    if router.a is None and router.b is None:
        return Flip(row, x, y, np.nan, np.nan, None)
    bounds = None
    if router.bound is not None:
        reach = 2 * (float(router.bound[row, x]) + float(router.bound[row, y]))
        bounds = gap / reach if reach > 0 else (0.0 if gap == 0 else np.inf)
    return Flip(row, x, y, gap, ulps, bounds)


def _figures(flips: list[Flip]) -> dict[str, float]:
    """How many rows flip, and the widest gap in units of the bound where it is known for all of them."""
    known = [flip.bounds for flip in flips if flip.bounds is not None]
    return {"flips": float(len(flips)), **({"gap": max(known)} if len(known) == len(flips) else {})}


def _note(flips: list[Flip]) -> str:
    def size(flip: Flip) -> tuple[float, float]:
        return (flip.bounds if flip.bounds is not None else -1.0, np.nan_to_num(flip.gap))

    worst = max(flips, key=size)
    text = f"{len(flips)} row{'s' if len(flips) != 1 else ''}, the widest in row {worst.row}: expert {worst.a} against {worst.b}"
    if np.isnan(worst.gap):
        return text + ", logits not known"
    text += f", gap {worst.gap:.3g} = {worst.ulps:.3g} ulp"
    if worst.bounds is None:
        return text + ", the router's bound is not known"
    return text + f" = {worst.bounds:.3g} of the router's bound"
