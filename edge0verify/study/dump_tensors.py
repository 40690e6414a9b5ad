"""Tensors of two dumped layers: whether they can be compared, which rows differ, which are finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edge0verify.dump import levels
from edge0verify.dump.reader import PIECE_BYTES, Dump
from edge0verify.model import Config
from edge0verify.numerics.blocks import Blocks, same_floats
from edge0verify.numerics.quantise import F16_SCALE
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Side
from edge0verify.records.status import INCONCLUSIVE
from edge0verify.records.verdict import LayerResult
from edge0verify.study.dump_rows import LayerJoin, SideRows, of_pairs

Value = np.ndarray | Blocks
WIDTH = {
    "ffn-in": "hidden", "d-hq": "hidden", "u": "hidden", "route-logits": "experts", "route-ids": "k", "route-weights": "k",
    "d-xl": "latent", "d-xlq": "latent", "a-y": "latent", "a-yl": "latent", "u-ylq": "latent",
    "a-gate": "ff", "a-up": "ff", "a-h": "ff",
}
"""Field of the model's configuration that says how many columns a tensor has."""


def differing_rows(join: LayerJoin) -> dict[str, np.ndarray]:
    """bool [joined tokens] per tensor that both sides hold in one form: a bit of the token's or its pairs' rows differs."""
    found = {}
    for tensor in join.a.dump.tensors(join.a.layer):
        if not (join.a.has(tensor) and join.b.has(tensor)) or form(join.a, tensor) != form(join.b, tensor):
            continue
        if of_pairs(tensor) and join.pair_token is None:
            continue
        if same_stored(join, tensor):
            found[tensor] = np.zeros(len(join.tokens.a), bool)
            continue
        mask = _differing(join, tensor)
        found[tensor] = per_token(join, mask) if of_pairs(tensor) else mask
    return found


def _differing(join: LayerJoin, tensor: str) -> np.ndarray:
    """bool [joined rows], piece by piece where rows go by their number."""
    if not join.straight(tensor):
        return rows_differ(*join.both(tensor, join.a.read(tensor), join.b.read(tensor)))
    total = join.a.dump.shape(join.a.layer, tensor)[0]
    size = max(1, sum(info.nbytes for info in join.a.infos(tensor)) // total)
    step = max(1, PIECE_BYTES // size)
    pieces = (slice(at, at + step) for at in range(0, total, step))
    return np.concatenate([
        rows_differ(*(side.dump.read(side.layer, tensor, rows) for side in (join.a, join.b))) for rows in pieces
    ])


def form(side: SideRows, tensor: str) -> tuple:
    """What must agree for rows to be comparable: blocks or not, columns, and the kind of number."""
    dump, blocks = side.dump, side.dump.is_blocks(side.layer, tensor)
    kind = "" if blocks else str(dump.dataset(side.layer, tensor).dtype)
    return blocks, dump.shape(side.layer, tensor)[1:], kind


def held_before(side: SideRows, tensor: str) -> Callable[[], tuple[str, Side] | None] | None:
    """Gives what the layer before left in the buffers that all layers share, with its name; before the first layer comes the last.
    None where no other layer has the tensor."""
    layers = [layer for layer in side.dump.layers() if side.dump.has(layer, tensor)]
    before = layers[layers.index(side.layer) - 1]
    if before == side.layer:
        return None

    def read() -> tuple[str, Side] | None:
        if form(replace(side, layer=before), tensor) != form(side, tensor):
            return None
        value = side.dump.read(before, tensor)
        if isinstance(value, Blocks):
            return f"layer {before}", Side(blocks=value)
        return (f"layer {before}", Side(rows=value.astype(np.float32, copy=False))) if value.dtype.kind == "f" else None

    return read


def same_stored(join: LayerJoin, tensor: str) -> bool:
    """By hash, with every row in the same place on both sides: then nothing has to be read to know that all is equal."""
    hashes = [[(i.part, i.sha256) for i in side.infos(tensor)] for side in (join.a, join.b)]
    way = join.pairs if of_pairs(tensor) else join.tokens
    return hashes[0] == hashes[1] and np.array_equal(way.a, way.b) and not join.a.reordered and not join.b.reordered


def rows_differ(a: Value, b: Value) -> np.ndarray:
    """bool [n]: rows with any bit that differs, NaN being like NaN."""
    if isinstance(a, Blocks):
        parts = [(a.codes, b.codes), (a.d, b.d)] + ([(a.s, b.s)] if a.s is not None and b.s is not None else [])
        return np.logical_or.reduce([rows_differ(x, y) for x, y in parts])
    if a.dtype != b.dtype:                                  # scales of two quantisers: as the dot uses them
        a, b = a.astype(np.float32), b.astype(np.float32)
    same = same_floats(a, b) if a.dtype.kind == "f" else a == b
    return ~_flat(same).all(axis=1)


def _flat(mask: np.ndarray) -> np.ndarray:
    """[n, everything else]; n may be 0."""
    return mask.reshape(len(mask), math.prod(mask.shape[1:]))


def per_token(join: LayerJoin, mask: np.ndarray) -> np.ndarray:
    """bool [joined tokens]: whether `mask` (bool [joined pairs]) holds for a pair of the token."""
    return np.bincount(join.pair_token[mask], minlength=len(join.tokens.a)) > 0


def expected(dump: Dump, layer: int | str) -> set[str]:
    """Tensors that the layer should hold: what it has, what the manifest promises, what its level and variants entail."""
    manifest = dump.manifest
    names = set(dump.tensors(layer))
    if layer in manifest.signature.layers:
        head = {spec.name for spec in levels.HEAD_TENSORS}
        names |= set(manifest.signature.tensors) - head
    if not manifest.foreign and manifest.variants:
        names |= {spec.name for spec in levels.tensors_of(dump.level)}
    return names


def nonfinite(value: Value) -> np.ndarray:
    """bool [rows]."""
    x = value.d if isinstance(value, Blocks) else value
    return np.zeros(len(x), bool) if x.dtype.kind != "f" else ~_flat(np.isfinite(x)).all(axis=1)


def gaps(join: LayerJoin, tensor: str) -> list[str]:
    """What a side lacks of the tensor: all of it, its rows, or the block sums that its quantiser stores."""
    said = []
    for name, side in (("a", join.a), ("b", join.b)):
        if not side.dump.has(side.layer, tensor):
            said.append(f"missing on side {name}")
        elif not side.has(tensor):
            said.append(f"empty on side {name}")
        elif side.dump.is_blocks(side.layer, tensor) and not side.dump.manifest.foreign and _sums_gone(side, tensor):
            said.append(f"block sums missing on side {name}")
    return said


def _sums_gone(side: SideRows, tensor: str) -> bool:
    stores = F16_SCALE.get(side.dump.quantiser(side.layer, tensor), False)       # those with an f16 scale store s beside it
    return stores and all(info.part != "s" for info in side.infos(tensor))


def check_widths(dump: Dump, config: Config) -> None:
    """InputError where a tensor of a layer of the model has other columns than the model."""
    for info in dump.arrays.values():
        field = WIDTH.get(info.tensor)
        if field is None or info.layer not in config.layer_ids or info.part not in (None, "codes"):
            continue
        columns = getattr(config, field)
        if info.shape[1] != columns:
            raise InputError(f"{dump.path}: {info.path}: expected {columns} columns as in the model, found {info.shape[1]}")


def in_words(form: tuple) -> str:
    """What `form` says, for a reader."""
    blocks, columns, kind = form
    return f"{'blocks' if blocks else kind} of {' x '.join(map(str, columns)) or '1'} columns"


def nothing(layer: int | str, tensor: str, reason: str) -> LayerResult:
    """An entry that compared nothing, and why."""
    return LayerResult(
        layer=layer, tensor=tensor, n=0, equal=0, equal_pct=None, max_code_diff=None, code_diffs=None, scale_equal_pct=None,
        rel_l2=None, max_abs=None, max_ulp=None, corr=None, conforming={"a": None, "b": None}, causes={}, status=INCONCLUSIVE,
        reasons=(reason,),
    )
