"""What of a difference is the variant's own: replay b's variant on the inputs that a dumped, and see what it makes other than a.

The contracts fix every bit, so the kernels here stand for any engine's that keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edge0verify.compare.stored import same_scales
from edge0verify.model import Model
from edge0verify.numerics.blocks import Blocks, same_floats
from edge0verify.records.errors import InputError
from edge0verify.study.replay import PARTS, replay
from edge0verify.variants.kernels import Kernels

Value = np.ndarray | Blocks

READS = {"D": ("ffn-in",), "A": ("d-xl", "d-xlq", "route-ids", "route-weights"), "U": ("a-yl",)}


@dataclass(frozen=True)
class Remains:
    """Per tensor and entry, bool [rows of a, columns]: still other than a on a's inputs."""

    tensors: Mapping[str, Mapping[str, np.ndarray]]

    def rows(self, tensor: str) -> np.ndarray:
        """bool [rows of a]: something of the row remains."""
        return np.logical_or.reduce([mask.any(axis=1) for mask in self.tensors[tensor].values()])


def remains(
    model: Model, stage: str, layer: int | str, variants: Mapping[str, str], a: Mapping[str, Value], threads: int
) -> Remains | None:
    """Replay `stage` with b's `variants` on the inputs in `a`, everything token-major. None where it cannot be replayed: inputs
    that were not dumped, a variant not named or mixed, no such kernel for these weights."""
    names = {variants.get(part) for part in PARTS[stage]}
    if len(names) != 1 or None in names or any(tensor not in a for tensor in READS[stage]):
        return None
    try:
        made = replay(model, stage, layer, names.pop(), a, Kernels(threads=threads))
    except InputError:
        return None
    found = {}
    for tensor, value in made.tensors.items():
        if tensor in a and isinstance(value, Blocks) == isinstance(a[tensor], Blocks):
            found[tensor] = _differs(tensor, value, a[tensor])
    return Remains(found)


def _differs(tensor: str, x: Value, y: Value) -> dict[str, np.ndarray]:
    if not isinstance(x, Blocks):
        return {tensor: ~same_floats(x, np.ascontiguousarray(y))}
    found = {tensor: x.codes != y.codes, f"{tensor}.d": ~same_scales(x.d, y.d)}
    if x.s is not None and y.s is not None:
        found[f"{tensor}.s"] = ~same_floats(x.s, y.s)
    return found
