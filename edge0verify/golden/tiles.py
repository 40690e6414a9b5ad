"""Which tiles of which arrays changed between two sketches, and which of these changes merely came in from an earlier one.

A tile holds several rows, so a changed tile is taken to follow from an input where the input of any of its rows changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edge0verify.dump import levels
from edge0verify.dump.reader import ArrayInfo, Dump
from edge0verify.dump.sketch import SketchDiff, compare_sketches
from edge0verify.golden.whole import SUFFIX
from edge0verify.study.inheritance import OUTPUTS, STAGE_OF

SHOWN = 4
"""Row ranges written out."""
BEFORE = {
    "a-h": ("a-gate", "a-up"),
    "a-y": ("a-h",),
    "a-yl": ("a-h", "a-y"),
    "d-xl": ("d-hq",),
    "d-xlq": ("d-xl",),
    "u": ("u-ylq",),
    "route-ids": ("route-logits",),
    "route-weights": ("route-logits", "route-ids"),
}
"""What a stage wrote before, and made the tensor of."""


@dataclass(frozen=True)
class Change:
    """One array of which some tile has other bytes than the golden's."""

    info: ArrayInfo
    tiles: SketchDiff

    @property
    def entry(self) -> str:
        return self.info.tensor + SUFFIX[self.info.part]

    @property
    def columns(self) -> int:
        return int(np.prod(self.info.shape[1:], dtype=np.int64))

    @property
    def elements(self) -> int:
        """Of the changed tiles; at most these differ."""
        return int(self.rows().sum()) * self.columns

    def rows(self) -> np.ndarray:
        """bool [rows] of the changed tiles."""
        mask = np.zeros(self.info.shape[0], bool)
        for first, last in self.tiles.spans():
            mask[first:last] = True
        return mask

    def place(self) -> str:
        """'2 of 96 tiles of 4 rows changed (rows 16..19, 40..43)'."""
        spans = self.tiles.spans()
        said = ", ".join(f"{first}..{last - 1}" for first, last in spans[:SHOWN]) + (", ..." if len(spans) > SHOWN else "")
        total = -(-self.info.shape[0] // self.tiles.tile_rows)
        rows = f"{self.tiles.tile_rows} row{'s' if self.tiles.tile_rows != 1 else ''}"
        return f"{len(spans)} of {total} tiles of {rows} changed (rows {said})"


def changes(fresh: Dump, golden: Dump) -> dict[str, Change]:
    """Arrays that both dumps hold reduced, and that differ, by path. Of level `hash` all rows count as changed."""
    found = {}
    for path, now in fresh.arrays.items():
        was = golden.arrays.get(path)
        if was is None or now.sha256 == was.sha256 or now.shape != was.shape or now.dtype != was.dtype:
            continue
        if now.stored == was.stored == "sketch":
            tiles = compare_sketches(*(d.sketch(now.layer, now.tensor, now.part) for d in (fresh, golden)))
        else:
            tiles = SketchDiff(tiles=np.arange(1), tile_rows=max(1, now.shape[0]), rows=now.shape[0])
        found[path] = Change(now, tiles)
    return found


@dataclass(frozen=True)
class Heritage:
    """read[layer, stage] bool [tokens]: an input of the stage changed; wrote[layer, tensor] bool [tokens]: the tensor did.
    began: the first stage that changed of itself; orphans: what changed and is no stage's doing."""

    read: Mapping[tuple, np.ndarray] = field(default_factory=dict)
    wrote: Mapping[tuple, np.ndarray] = field(default_factory=dict)
    began: str = ""
    orphans: tuple[str, ...] = ()

    def explained(self, change: Change) -> tuple[int, int]:
        """Elements of changed tiles that came in, and of the others those that follow from what their own stage wrote before."""
        info = change.info
        stage = STAGE_OF.get(info.tensor)
        if stage is None:
            return change.elements, 0
        came_in = self._tiles(change, [self.read.get((info.layer, stage))])
        sources = [*BEFORE.get(info.tensor, ()), *((info.tensor,) if info.part in ("d", "s") else ())]
        follows = self._tiles(change, [self.wrote.get((info.layer, t)) for t in sources]) & ~came_in
        return int(came_in.sum()) * change.columns, int(follows.sum()) * change.columns

    def _tiles(self, change: Change, masks: list[np.ndarray | None]) -> np.ndarray:
        """bool [rows]: rows of the changed tiles in which one of the masks holds for some row."""
        rows, found = change.info.shape[0], np.zeros(change.info.shape[0], bool)
        per_row = np.zeros(rows, bool)
        for mask in masks:
            if mask is not None and len(mask) and rows % len(mask) == 0:
                per_row |= np.repeat(mask, rows // len(mask))
        for first, last in change.tiles.spans():
            found[first:last] = per_row[first:last].any()
        return found


def trace(fresh: Dump, changed: Mapping[str, Change]) -> Heritage:
    """Follow the changes through the layers in the order of the run."""
    reads_rows = fresh.manifest.variants.get("A1", "mmq") == "mmq"
    read: dict[tuple, np.ndarray] = {}
    wrote: dict[tuple, np.ndarray] = {}
    began, orphans, reach = "", [], None
    for layer in fresh.layers():
        tokens = _tokens(fresh, layer)
        masks = _masks(fresh, changed, layer, tokens)
        wrote |= {(layer, tensor): mask for tensor, mask in masks.items()}
        none = np.zeros(tokens, bool)
        came = masks.get("ffn-in", none)
        orphan = came & (np.arange(tokens) < (tokens if reach is None else reach))
        if orphan.any():
            orphans.append(
                f"layer {layer} ffn-in: {int(orphan.sum())} rows changed from row {int(np.argmax(orphan))} on, and no stage "
                "before it did: attention, a norm or a sum that belongs to no variant"
            )
        latent = (
            masks.get("d-xlq", none) | masks.get("route-ids", none) | masks.get("route-weights", none) | masks.get("pairs", none)
        )
        latent = latent | (masks.get("d-xl", none) if reads_rows else none)
        inputs = {"route": came, "D": came, "A": latent, "U": masks.get("a-yl", none)}
        read |= {(layer, stage): mask for stage, mask in inputs.items()}
        so_far = Heritage(read, wrote)
        for change in (c for c in _in_order(changed, layer) if not began):
            if so_far.explained(change)[0] < change.elements:
                began = f"layer {layer} stage {STAGE_OF[change.info.tensor]} {change.entry}"
        handed_on = masks.get("u", none)
        if handed_on.any():  # a changed tile begins at its first row, which need not itself differ
            reach = min(int(np.argmax(handed_on)), tokens if reach is None else reach)
    if not began and not orphans:
        orphans += [f"layer {c.info.layer} {c.entry}: {c.place()}, and no stage did" for c in changed.values()][:1]
    return Heritage(read, wrote, began, tuple(orphans))


def _tokens(fresh: Dump, layer: int | str) -> int:
    for tensor in ("ffn-in", "d-xlq", "a-yl", "u"):
        if fresh.has(layer, tensor):
            return fresh.shape(layer, tensor)[0]
    return 0


def _masks(fresh: Dump, changed: Mapping[str, Change], layer: int | str, tokens: int) -> dict[str, np.ndarray]:
    """bool [tokens] per tensor: a tile with a row of the token changed."""
    found: dict[str, np.ndarray] = {}
    for change in changed.values():
        info = change.info
        if info.layer == layer and tokens and info.shape[0] % tokens == 0:
            rows = change.rows().reshape(tokens, -1).any(axis=1)
            found[info.tensor] = found.get(info.tensor, np.zeros(tokens, bool)) | rows
    return found


def _in_order(changed: Mapping[str, Change], layer: int | str) -> list[Change]:
    order = [tensor for tensors in OUTPUTS.values() for tensor in tensors]
    mine = [c for c in changed.values() if c.info.layer == layer and c.info.tensor in order and c.info.tensor not in levels.KEYS]
    return sorted(mine, key=lambda c: (order.index(c.info.tensor), c.info.part or ""))
