"""Where the differences between two dumps begin, and which rows of a stage merely inherit them. Decided from masks alone.

A row of a stage inherits where the stage's own inputs differ. A layer's ffn-in may differ only where an earlier layer's output
differs at the same position or before it (attention looks back, never ahead); else it differs without a reason that was dumped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

OUTPUTS = {
    "route": ("route-logits", "route-ids", "route-weights"),
    "D": ("d-hq", "d-xl", "d-xlq"),
    "A": ("a-gate", "a-up", "a-h", "a-y", "a-yl"),
    "U": ("u-ylq", "u"),
}
SHOWN = 2
"""Origins named beside the first."""
STAGE_OF = {tensor: stage for stage, tensors in OUTPUTS.items() for tensor in tensors}


@dataclass(frozen=True, kw_only=True)
class LayerDiff:
    """One layer's joined token rows. `differs[tensor]` is bool [n]: some bit of the row differs; absent: not on both sides."""

    differs: Mapping[str, np.ndarray]
    positions: np.ndarray
    passes: np.ndarray | None
    unmatched: np.ndarray
    """bool [n]: an expert of this token was chosen on one side only."""
    reads_rows: bool
    """Stage A of one side at least reads d-xl rather than its stored blocks."""


@dataclass(frozen=True)
class Origin:
    """A stage whose outputs differ in rows whose inputs are equal."""

    layer: int | str
    stage: str
    tensor: str
    rows: int
    position: int

    def place(self) -> tuple[float, int]:
        """Where it stands in the run: the drafter layer comes last."""
        return (float("inf") if isinstance(self.layer, str) else self.layer, list(OUTPUTS).index(self.stage))

    def describe(self) -> str:
        return f"{self.stage} of layer {self.layer} ({self.tensor}, {_rows(self.rows)} from position {self.position})"


@dataclass(frozen=True)
class Inheritance:
    """inherited[layer, stage] bool [n]; origins in the order of the run; orphans: layer -> (rows, first position)."""

    inherited: Mapping[tuple[int | str, str], np.ndarray]
    origins: tuple[Origin, ...]
    orphans: Mapping[int | str, tuple[int, int]]

    def joined_by(self, own: Sequence[Origin]) -> Inheritance:
        """With what replays on identical inputs showed to be a stage's own, in the order of the run."""
        known = {(origin.layer, origin.stage) for origin in self.origins}
        every = [*self.origins, *(origin for origin in own if (origin.layer, origin.stage) not in known)]
        return Inheritance(self.inherited, tuple(sorted(every, key=Origin.place)), self.orphans)

    def first(self) -> str:
        """The stage where differences begin: 'layer 0 D'."""
        return f"layer {self.origins[0].layer} {self.origins[0].stage}" if self.origins else ""

    def describe(self) -> str:
        """'differences begin in D of layer 0 (d-xl, 63 rows from position 1)', and which stages add their own."""
        if not self.origins:
            return "differences begin before the first stage that was dumped"
        first, rest = self.origins[0], self.origins[1:]
        text = f"differences begin in {first.describe()}"
        if rest:
            text += "; on equal inputs also in " + ", ".join(origin.describe() for origin in rest[:SHOWN])
        return text + (f" and {len(rest) - SHOWN} further" if len(rest) > SHOWN else "")


def _rows(n: int) -> str:
    return f"{n} row{'s' if n != 1 else ''}"


def inherit(layers: Sequence[tuple[int | str, LayerDiff]]) -> Inheritance:
    """Go through `layers` in the order of the run (the drafter layer last)."""
    nowhere = np.iinfo(np.int64).max
    anywhere = min((_first(d.positions, _handed_on(d)) for _, d in layers), default=nowhere)
    reach = nowhere
    masks: dict[tuple[int | str, str], np.ndarray] = {}
    origins: list[Origin] = []
    orphans: dict[int | str, tuple[int, int]] = {}
    for layer, d in layers:
        possible = d.positions >= reach
        if d.passes is not None:          # what a later pass reads depends on all layers of the earlier ones
            possible |= (d.passes > 0) & (d.positions >= anywhere)
        read = d.differs.get("ffn-in")
        if read is not None and (read & ~possible).any():
            lone = read & ~possible
            orphans[layer] = (int(lone.sum()), _first(d.positions, lone))
        inputs = _inputs(d, possible if read is None else read)
        for stage, mask in inputs.items():
            masks[layer, stage] = mask
            origins += _origin(layer, stage, d, mask)
        reach = min(reach, _first(d.positions, _handed_on(d)))
    return Inheritance(masks, tuple(origins), orphans)


def _inputs(d: LayerDiff, ffn_in: np.ndarray) -> dict[str, np.ndarray]:
    """Per stage, the rows whose inputs differ. An input that was not dumped differs where the stage before it may differ."""
    latent = d.differs.get("d-xlq", ffn_in)
    if d.reads_rows:
        latent = latent | d.differs.get("d-xl", ffn_in)
    for tensor in ("route-ids", "route-weights"):
        latent = latent | d.differs.get(tensor, ffn_in)
    latent = latent | d.unmatched
    return {"route": ffn_in, "D": ffn_in, "A": latent, "U": d.differs.get("a-yl", latent)}


def _origin(layer: int | str, stage: str, d: LayerDiff, inherited: np.ndarray) -> list[Origin]:
    found = [(tensor, d.differs[tensor] & ~inherited) for tensor in OUTPUTS[stage] if tensor in d.differs]
    new = np.logical_or.reduce([mask for _, mask in found]) if found else np.zeros(0, bool)
    if not new.any():
        return []
    tensor = next(tensor for tensor, mask in found if mask.any())
    return [Origin(layer, stage, tensor, int(new.sum()), _first(d.positions, new))]


def _handed_on(d: LayerDiff) -> np.ndarray:
    """Rows in which the layer hands something different on: u, or any output where u was not dumped."""
    if "u" in d.differs:
        return d.differs["u"]
    found = [mask for tensor, mask in d.differs.items() if tensor in STAGE_OF]
    return np.logical_or.reduce(found) if found else np.zeros(len(d.positions), bool)


def _first(positions: np.ndarray, mask: np.ndarray) -> int:
    return int(positions[mask].min()) if mask.any() else np.iinfo(np.int64).max
