"""Grids as JSON, so that a verdict can be drawn later and elsewhere: about 10 KB a tensor, whatever its size.

Arrays travel as deflated little-endian bytes in base64. Errors over the bound keep 11 significant bits and are rounded up to them:
2 and 1 and 0 stay what they are, and nothing crosses the bound, since 1 is one of the values kept.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge0verify.records.errors import InputError
from edge0verify.records.schema import COUNT, LAYER, check, record
from edge0verify.records.verdict import Verdict
from edge0verify.study.grids import BINS, LINES, Grid

_PAIR = {"type": "array", "items": {"type": "integer", "minimum": 1}}
_BYTES = {"type": ["string", "null"]}
GRID = record(
    {
        "layer": LAYER,
        "tensor": {"type": "string"},
        "kind": {"enum": ["rows", "blocks"]},
        "shape": _PAIR,
        "step": _PAIR,
        "tile": _PAIR,
        "differing": {"type": "string"},
        "over_a": _BYTES,
        "over_b": _BYTES,
        "farthest": _BYTES,
        "histogram": {"type": ["object", "null"], "additionalProperties": COUNT},
    }
)
"""`differing`: elements that differ in each bin, u4. `over_a`, `over_b`: f4. `farthest`: u1. All [bins, bins], row by row."""
_LOST_BITS = 13
"""Of a float32's 23 fraction bits."""


def grids_to_json(grids: Sequence[Grid]) -> tuple[dict[str, Any], ...]:
    """The `grids` field of a verdict."""
    return tuple(_to_json(g) for g in grids)


def _to_json(g: Grid) -> dict[str, Any]:
    return {
        "layer": g.layer,
        "tensor": g.tensor,
        "kind": g.kind,
        "shape": list(g.shape),
        "step": list(g.step),
        "tile": list(g.tile),
        "differing": _pack(np.rint(g.differing * sizes(g.shape, g.step)), "<u4"),
        "over_a": None if g.over[0] is None else _pack(_short(g.over[0]), "<f4"),
        "over_b": None if g.over[1] is None else _pack(_short(g.over[1]), "<f4"),
        "farthest": None if g.farthest is None else _pack(g.farthest, "u1"),
        "histogram": None if g.histogram is None else {str(gap): n for gap, n in g.histogram.items()},
    }


def grids_from_json(verdict: Verdict, *, source: str = "verdict") -> tuple[Grid, ...]:
    """The grids that a verdict carries; () where it carries none. InputError names `source` and the field that is wrong."""
    entries = {(r.layer, r.tensor): r for r in verdict.layers}
    found = []
    for i, data in enumerate(verdict.grids or ()):
        here = f"{source}: grids[{i}]"
        check(data, GRID, here)
        result = entries.get((data["layer"], data["tensor"]))
        if result is None or not result.n:
            raise InputError(f"{here}: expected an entry of the verdict, found layer {data['layer']!r} {data['tensor']!r:.60}")
        found.append(_from_json(data, result, here))
    return tuple(found)


def _from_json(data: Mapping[str, Any], result: Any, here: str) -> Grid:
    for name in ("shape", "step", "tile"):
        if len(data[name]) != 2:
            raise InputError(f"{here}.{name}: expected rows and columns, found {len(data[name])} numbers")
    shape, step = tuple(data["shape"]), tuple(data["step"])
    bins = tuple(-(-n // s) for n, s in zip(shape, step))
    if max(bins) > BINS or shape[0] * shape[1] != result.n:
        found = f"found {list(shape)} in steps of {list(step)}"
        raise InputError(f"{here}: expected {result.n} elements in at most {BINS} by {BINS} bins, {found}")
    if any(n // tile > LINES for n, tile in zip(shape, data["tile"])):
        raise InputError(
            f"{here}.tile: expected at most {LINES} lines along an axis, found tiles of {data['tile']} in {list(shape)}"
        )
    blocks = data["kind"] == "blocks"
    if blocks != (data["farthest"] is not None) or blocks != (data["histogram"] is not None):
        raise InputError(f"{here}: expected farthest and histogram of blocks and of nothing else, found kind {data['kind']}")
    histogram = None
    if blocks:
        try:
            histogram = {int(gap): n for gap, n in data["histogram"].items()}
        except ValueError:
            raise InputError(f"{here}.histogram: expected whole numbers from -255 to 255, found another key") from None
        if not all(-255 <= gap <= 255 for gap in histogram):
            raise InputError(f"{here}.histogram: expected whole numbers from -255 to 255, found another key")
    return Grid(
        layer=data["layer"],
        tensor=data["tensor"],
        kind=data["kind"],
        shape=shape,
        step=step,
        tile=tuple(data["tile"]),
        differing=_unpack(data["differing"], "<u4", bins, f"{here}.differing") / sizes(shape, step),
        over=tuple(_unpack(data[f"over_{side}"], "<f4", bins, f"{here}.over_{side}") for side in "ab"),
        farthest=_unpack(data["farthest"], "u1", bins, f"{here}.farthest"),
        histogram=histogram,
        result=result,
    )


def sizes(shape: Sequence[int], step: Sequence[int]) -> np.ndarray:
    """Elements in each bin, int64 [bins, bins]: the last bin of an axis may be smaller."""
    down, across = (np.diff(np.append(np.arange(0, n, s), n)) for n, s in zip(shape, step))
    return np.outer(down, across)


def _short(over: np.ndarray) -> np.ndarray:
    """float32 with the low bits cleared, rounded up; NaN and infinity as they are."""
    with np.errstate(over="ignore"):
        near = over.astype(np.float32)
        near = np.where(near < over, np.nextafter(near, np.float32(np.inf)), near)
    bits = near.view(np.uint32)
    low = np.uint32((1 << _LOST_BITS) - 1)
    up = ((bits + low) & ~low).view(np.float32)
    return np.where(np.isfinite(near), up, near)


def _pack(values: np.ndarray, dtype: str) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values.astype(dtype)).tobytes(), 6)).decode()


def _unpack(text: str | None, dtype: str, bins: tuple[int, int], here: str) -> np.ndarray | None:
    if text is None:
        return None
    wanted = bins[0] * bins[1] * np.dtype(dtype).itemsize
    try:
        inflater = zlib.decompressobj()
        raw = inflater.decompress(base64.b64decode(text, validate=True), wanted + 1)
    except (ValueError, binascii.Error, zlib.error):
        raise InputError(f"{here}: expected deflated bytes in base64, found other text") from None
    if len(raw) != wanted:
        raise InputError(f"{here}: expected {wanted} bytes, found {len(raw) if len(raw) < wanted else 'more'}")
    return np.frombuffer(raw, dtype).reshape(bins).astype(np.float64)
