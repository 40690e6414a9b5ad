"""Run one stage of one layer with one variant, on inputs that are given.

Every output is preset to poison by the kernels' front, so that what a kernel leaves unwritten can be told from what it computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edge0verify.model import Model
from edge0verify.numerics.blocks import Blocks
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.registry import Choice, resolve
from edge0verify.variants.weights import layer_weights

PARTS = {"D": ("D",), "A": ("A1", "A2"), "U": ("U",)}


@dataclass(frozen=True)
class StageOutput:
    """What one variant wrote for one stage of one layer: tensor name -> float32 rows or Blocks, and what ran."""

    tensors: Mapping[str, np.ndarray | Blocks]
    choices: tuple[Choice, ...]


def replay(
    model: Model, stage: str, layer: int | str, variant: str, inputs: Mapping[str, np.ndarray | Blocks], kernels: Kernels
) -> StageOutput:
    """Run `stage` ('D', 'A', 'U') of `layer` with `variant` on `inputs` (as capture.READS names them)."""
    w = layer_weights(model, layer, kernels)
    if stage == "D":
        choice = resolve("D", variant, w.down.fmt)
        out = kernels.d(choice.runs, w.down, inputs["ffn-in"])
        return StageOutput({"d-hq": out.hq, "d-xl": out.xl, "d-xlq": out.xlq}, (choice,))
    if stage == "U":
        choice = resolve("U", variant, w.up.fmt)
        out = kernels.u(choice.runs, w.up, inputs["a-yl"])
        return StageOutput({"u-ylq": out.ylq, "u": out.u}, (choice,))
    first = resolve("A1", variant, w.gate_exps.fmt)
    second = resolve("A2", variant, w.down_exps.fmt)
    ids, weights = inputs["route-ids"], inputs["route-weights"]
    a1 = kernels.a1(first.runs, w.gate_exps, w.up_exps, inputs["d-xl"], inputs["d-xlq"], ids, capture=True)
    a2 = kernels.a2(second.runs, w.down_exps, a1.h, ids, weights)
    tensors = {"a-gate": a1.gate, "a-up": a1.up, "a-h": a1.h, "a-y": a2.y, "a-yl": a2.yl}
    return StageOutput(tensors, (first, second))
