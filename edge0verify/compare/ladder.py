"""How a difference grows from one compared tensor to the next: the ladder of steps, and the widest of them.

A small difference that both sides' bounds allow can be blown up by what follows (an exponential, a router near a tie); cosine and
maxima of the first tensor do not show it, the factor from one step to the next does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edge0verify.records.verdict import LayerResult

FLOOR = 2.0**-24
"""Differences below one rounding are taken as one: a step from nothing has no factor."""


def ladder(results: Sequence[LayerResult]) -> list[dict[str, Any]]:
    """[{layer, tensor, rel_l2, factor}] of the tensors with a relative distance of their own, in the order given.

    `factor` is the distance over that of the step before, None for the first. Scales and block sums are part of their tensor.
    """
    steps: list[dict[str, Any]] = []
    for result in results:
        if result.rel_l2 is None or not result.n or result.tensor.endswith((".d", ".s")):
            continue
        size = float(result.rel_l2)
        factor = max(size, FLOOR) / max(steps[-1]["rel_l2"], FLOOR) if steps else None
        steps.append({"layer": result.layer, "tensor": result.tensor, "rel_l2": size, "factor": factor})
    return steps


def widest_jump(results: Sequence[LayerResult]) -> dict[str, Any] | None:
    """The step with the largest factor: {layer, tensor, rel_l2, factor, after: [layer, tensor]}; None with fewer than two steps."""
    steps = ladder(results)
    if len(steps) < 2:
        return None
    at = max(range(1, len(steps)), key=lambda i: steps[i]["factor"])
    return {**steps[at], "after": [steps[at - 1]["layer"], steps[at - 1]["tensor"]]}
