"""The causes a difference can have, and what each one means for a verdict.

Every element of a compared tensor has exactly one cause. `ORDER` is the order of decision: the first cause that
applies to an element is its cause.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS


@dataclass(frozen=True)
class Cause:
    """One name for why two elements relate as they do."""

    name: str
    outcome: str
    """What elements of this cause make of a verdict unless a policy says otherwise."""
    meaning: str


EQUAL = Cause("equal", PASS, "same bits, and conforming")
TIE = Cause("tie", PASS, "codes or scales differ, both conform on the same operands")
ROUNDING = Cause("rounding", PASS, "row values differ, both conform on the same operands")
OPERANDS = Cause("operands", PASS, "both conform, and their declared operands alone give different results")
BY_DESIGN = Cause("by-design", PASS, "declared by a flag")
CASCADE = Cause("cascade", PASS, "inherited: replaying the stage on identical inputs removes it")
LOOSE = Cause("loose", INCONCLUSIVE, "the bound cannot tell")
ROUTE_FLIP = Cause("route-flip", FAIL, "expert ids differ; passes within the router's bound")
NONFINITE = Cause("nonfinite", FAIL, "NaN or Inf; in the same place on both sides nothing is proven")
UNWRITTEN = Cause("unwritten", FAIL, "the poison of the output, or a guard byte, tells that it was not written as it should be")
STALE = Cause("stale", FAIL, "the row of another token or of another run")
PERMUTED = Cause("permuted", FAIL, "the right rows in another order")
STRUCTURED = Cause("structured", FAIL, "a tile, tail, stride, column, block or k-split rule fits")
BIASED = Cause("biased", FAIL, "conforms, and the bias test says systematic; decided per tensor")
UNEXPLAINED = Cause("unexplained", FAIL, "does not conform, and no rule explains it")

ORDER: tuple[Cause, ...] = (
    NONFINITE,
    UNWRITTEN,
    BY_DESIGN,
    EQUAL,
    LOOSE,
    OPERANDS,
    TIE,
    ROUNDING,
    STALE,
    PERMUTED,
    STRUCTURED,
    ROUTE_FLIP,
    CASCADE,
    UNEXPLAINED,
)
"""Element causes in order of decision. `loose` stands before the causes of conforming differences because where the
bound cannot tell, neither `operands` nor `tie` is proven. `biased` is no element's cause: it is a verdict on a tensor."""

CAUSES: dict[str, Cause] = {cause.name: cause for cause in (*ORDER, BIASED)}

FAILING: frozenset[str] = frozenset(cause.name for cause in CAUSES.values() if cause.outcome == FAIL)
