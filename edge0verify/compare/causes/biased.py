"""Conforms, and the bias test calls the error systematic: said of a whole tensor, from the statistics that study hands in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edge0verify.compare.policy import Limits
from edge0verify.numerics.bias import Bias
from edge0verify.records import causes
from edge0verify.records.evidence import Evidence

CAUSE = causes.BIASED
STATISTICS = {
    "mean_t": "mean of z",
    "sign_t": "mean of z*sign(t), rounding is directed",
    "gain_t": "gain of the whole result",
    "block_t": "slope on K block",
    "column_t": "mean of column",
    "column_sign_t": "mean of z*sign(t) of column",
}


@dataclass(frozen=True)
class Biased:
    """One side's systematic error."""

    side: str
    text: str
    limits: dict[str, float]
    """Policy limits that would have to be this wide for the side to pass."""


def plan(evidence: Evidence) -> bool:
    return any(side.bias is not None for side in (evidence.a, evidence.b))


def statistics(bias: Bias | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The statistics, mean z^2 and suspects of one side as plain values."""
    if bias is None:
        return None
    return dict(bias.as_dict() if isinstance(bias, Bias) else bias)


def execute(evidence: Evidence, limits: Limits, *, conforming: Mapping[str, bool]) -> list[Biased]:
    """The sides that conform everywhere (`conforming[side]`) and are biased; one that breaks its bound has a cause already."""
    found = []
    for name, side in (("a", evidence.a), ("b", evidence.b)):
        stats = statistics(side.bias)
        if stats is not None and stats["tested"] and conforming[name]:
            biased = _side(name, stats, limits)
            if biased is not None:
                found.append(biased)
    return found


def _side(name: str, stats: Mapping[str, Any], limits: Limits) -> Biased | None:
    said: list[str] = []
    widest: dict[str, float] = {}
    for key, what in STATISTICS.items():
        value = stats.get(key)
        if value is None:
            continue
        at, t = (f" {value['index']}", value["t"]) if isinstance(value, Mapping) else ("", value)
        t = float(t)
        if not abs(t) <= limits.bias_t:
            said.append(f"{what}{at}: t = {t:.1f}")
            widest["bias_t"] = max(widest.get("bias_t", 0.0), abs(t))
    square = float(stats["mean_z2"])
    if not 1 / limits.bias_z2 <= square <= limits.bias_z2:
        said.append(f"mean z^2 = {square:.3g}")
        widest["bias_z2"] = max(square, 1 / square) if square > 0 else float("inf")
    return Biased(name, ", ".join(said), widest) if said else None
