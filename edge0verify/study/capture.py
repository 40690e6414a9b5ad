"""One pass of the reference path, keeping what the stages under study read.

A stage is judged on the inputs that the reference path gave it, so that a difference made by an earlier stage cannot reach it.
Only what the stage reads is kept: D needs ffn-in, A needs d-xl, d-xlq and the routes, U needs a-yl.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edge0verify.engine import Engine
from edge0verify.model import Model
from edge0verify.numerics.blocks import Blocks
from edge0verify.variants.kernels import Kernels

REFERENCE = {"D": "mmvq", "A1": "mmvq", "A2": "mmvq", "U": "mmvq"}

READS = {
    "D": ("ffn-in",),
    "A": ("d-xl", "d-xlq", "route-ids", "route-weights"),
    "U": ("a-yl",),
}
WRITES = {"D": ("d-xl", "d-xlq"), "A": ("a-yl",), "U": ("u",)}
"""What the engine itself takes from a stage: known of the reference path by fingerprint alone."""


@dataclass(frozen=True)
class StageInputs:
    """What one stage reads, layer by layer.

    `tensors[layer][name]` is a float32 or int32 array [tokens, ...] or Blocks; `rows` int32 [tokens, 3] keys each token by
    (pass, position, accepted). `wrote[layer][name]` is the `Fingerprint` of what the reference path wrote of the stage.
    """

    stage: str
    tokens: np.ndarray
    rows: np.ndarray
    tensors: Mapping[int, Mapping[str, np.ndarray | Blocks]]
    wrote: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(sorted(self.tensors))


def join(pieces: list) -> np.ndarray | Blocks:
    """Join row chunks of one tensor into one array or one Blocks."""
    if len(pieces) == 1:
        return pieces[0]
    if isinstance(pieces[0], Blocks):
        s = None if pieces[0].s is None else np.concatenate([p.s for p in pieces])
        return Blocks(np.concatenate([p.codes for p in pieces]), np.concatenate([p.d for p in pieces]), s, pieces[0].quantiser)
    return np.concatenate(pieces)


def slice_rows(value: np.ndarray | Blocks, rows: slice) -> np.ndarray | Blocks:
    """The given rows of an array or of Blocks, without a copy."""
    if isinstance(value, Blocks):
        return Blocks(value.codes[rows], value.d[rows], None if value.s is None else value.s[rows], value.quantiser)
    return value[rows]


class Fingerprint:
    """The sha256 of every part of a tensor, from row chunks however they are cut."""

    def __init__(self) -> None:
        self._digests: dict[int, Any] = {}

    def add(self, piece: np.ndarray | Blocks) -> Fingerprint:
        for at, part in enumerate((piece.codes, piece.d, piece.s) if isinstance(piece, Blocks) else (piece,)):
            if part is not None:
                self._digests.setdefault(at, hashlib.sha256()).update(np.ascontiguousarray(part))
        return self

    def text(self) -> str:
        return " ".join(digest.hexdigest() for digest in self._digests.values())


def capture(
    model: Model,
    tokens: np.ndarray,
    stage: str,
    *,
    kernels: Kernels | None = None,
    reference: Mapping[str, str] = REFERENCE,
    layers: tuple[int, ...] | None = None,
    rows: slice = slice(None),
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    engine: Engine | None = None,
    outputs: bool = False,
) -> StageInputs:
    """Run the reference path over `tokens` (int32 [n]) and keep what `stage` ('D', 'A' or 'U') reads.

    Only `layers` (default: all of the main model) and the token positions in `rows` are kept.  `progress(done, total)` counts
    tokens.  `engine` runs it instead of one made here (a layer split).  `outputs` fingerprints what the stage writes too.  Raises
    InputError for a bad model; KeyError for an unknown stage.
    """
    wanted, written = READS[stage], WRITES[stage] if outputs else ()
    keep = set(range(model.config.layers)) if layers is None else set(layers)
    pieces: dict[int, dict[str, list]] = {layer: {name: [] for name in wanted} for layer in sorted(keep)}
    prints: dict[int, dict[str, Fingerprint]] = {layer: {name: Fingerprint() for name in written} for layer in sorted(keep)}
    first, last, _ = rows.indices(len(tokens))

    def tap(layer, name, pos0, value):
        if layer not in keep:
            return
        if name in wanted:
            pieces[layer][name].append(value)
        elif name in written:
            prints[layer][name].add(slice_rows(value, slice(max(0, first - pos0), max(0, last - pos0))))

    engine = engine or Engine(model, kernels=kernels, variants=dict(reference), threads=threads)
    engine.prefill(tokens, tap=tap, names=frozenset((*wanted, *written)), progress=progress)
    tensors = {layer: {n: slice_rows(join(p), rows) for n, p in named.items()} for layer, named in pieces.items()}
    position = np.arange(len(tokens), dtype=np.int32)[rows]
    keys = np.stack([np.zeros_like(position), position, np.ones_like(position)], axis=1)
    wrote = {layer: {name: found.text() for name, found in named.items()} for layer, named in prints.items()}
    return StageInputs(stage, tokens, keys, tensors, wrote)
