"""Brings other engines' tensors into a dump: raw files of a declared layout, .npy, .npz, safetensors, SGLang's directories.

A foreign dump counts no launches, so whether a variant engaged is unknown (manifest.launches is None).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from edge0verify.dump import arrays, layouts, levels, sglang
from edge0verify.dump.ids import refuse_invalid
from edge0verify.dump.writer import DumpWriter
from edge0verify.numerics.blocks import Blocks
from edge0verify.records.errors import InputError
from edge0verify.records.manifest import DeviceInfo, EngineInfo, Manifest, PromptInfo, Signature

PIECE_ROWS = 4096
IDS = "route-ids"


@dataclass(frozen=True)
class Imported:
    """What an import wrote and what it left out."""

    path: Path
    manifest: Manifest
    skipped: tuple[tuple[str, str], ...] = ()
    """(file or array, reason)."""


def foreign_manifest(*, engine: str = "foreign", model_sha256: str | None = None, prompt_sha256: str | None = None) -> Manifest:
    """Manifest of a dump made elsewhere; what is not known is null."""
    return Manifest(
        engine=EngineInfo(name=engine),
        device=DeviceInfo(name="foreign"),
        prompt=PromptInfo(sha256=prompt_sha256),
        signature=Signature(tensors=(), layers=(), rows=0),
        level="full",
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        model_sha256=model_sha256,
        launches=None,
    )


def import_raw(
    path: str | os.PathLike,
    out: str | os.PathLike,
    *,
    tensor: str,
    layout: str,
    rows: int,
    cols: int,
    layer: int | str = 0,
    by_column: bool = False,
    quantiser: str | None = None,
    manifest: Manifest | None = None,
    overwrite: bool = False,
) -> Imported:
    """One raw file as one tensor of a new dump; see `layouts.read_raw`. InputError for a layout that does not fit."""
    _check_kind(path, tensor, layout)
    pieces = layouts.read_raw(path, layout=layout, rows=rows, cols=cols, by_column=by_column, quantiser=quantiser)
    with DumpWriter(out, manifest=manifest or foreign_manifest(), overwrite=overwrite) as w:
        first = 0
        for piece in pieces:
            if tensor == IDS:
                refuse_invalid(piece, None, f"{path}: {tensor}", first=first)
                first += len(piece)
            w.write(layer, tensor, piece)
        return Imported(Path(out), w.close())


def import_arrays(
    path: str | os.PathLike,
    out: str | os.PathLike,
    *,
    tensor: str | None = None,
    layer: int | str = 0,
    member: str | None = None,
    layout: str | None = None,
    quantiser: str | None = None,
    rows: int | None = None,
    cols: int | None = None,
    manifest: Manifest | None = None,
    overwrite: bool = False,
) -> Imported:
    """A .npy, .npz or safetensors file as a new dump.

    tensor, layer: where a single array belongs; without them the names in the file must be paths of the schema
    ('layers/000/d-xl', 'layers/000/d-xlq/codes', 'rows'). member: which array of a file with several. Arrays named codes, d and s
    make one q8_1 tensor. layout: for arrays of bytes or words, how to read them. rows, cols: what a single array must have.
    InputError for anything that does not fit.
    """
    found = arrays.read_arrays(path)
    if tensor is None:
        if rows is not None or cols is not None:
            raise InputError(f"{path}: expected a tensor that rows and columns are said of, found none named")
        named = [(name, value) for name, value in found.items()]
        places = [_place(path, name) for name, _ in named]
    else:
        value = _single(path, found, member, layout, quantiser)
        _check_shape(path, value, rows, cols)
        named, places = [("", value)], [(layer, tensor, None)]
    with DumpWriter(out, manifest=manifest or foreign_manifest(), overwrite=overwrite) as w:
        _write_all(w, path, places, [value for _, value in named], quantiser or "mmvq")
        return Imported(Path(out), w.close())


def import_directory(
    folder: str | os.PathLike,
    out: str | os.PathLike,
    *,
    names: Mapping[str, str] | None = None,
    rank: int | None = None,
    manifest: Manifest | None = None,
    overwrite: bool = False,
) -> Imported:
    """A directory of SGLang's dumper as a new dump; see `sglang.plan`. Leading dimensions are joined to rows."""
    todo = sglang.plan(folder, names=names, rank=rank)
    with DumpWriter(out, manifest=manifest or foreign_manifest(engine="sglang"), overwrite=overwrite) as w:
        for file in todo.files:
            found = arrays.read_arrays(file.path)
            if len(found) != 1:
                raise InputError(f"{file.path}: expected one array, found {len(found)}")
            _write_rows(w, file.layer, file.tensor, _rows(next(iter(found.values())), str(file.path), file.tensor))
        skipped = tuple((str(path), why) for path, why in todo.skipped)
        return Imported(Path(out), w.close(), skipped)


def _check_kind(path, tensor: str, layout: str) -> None:
    spec, kind = levels.find(tensor), layouts.find_layout(layout)
    found = "q8_1" if kind.blocks else "i32" if layout == "i32" else "f32"
    if spec and spec.kind != found:
        raise InputError(f"{path}: {tensor}: expected a layout of {spec.kind}, found {layout}")


def _check_shape(path, value: np.ndarray | Blocks, rows: int | None, cols: int | None) -> None:
    shape = value.codes.shape if isinstance(value, Blocks) else value.shape
    count, width = math.prod(shape[:-1]), shape[-1] if shape else 1
    for what, said, found in (("rows", rows, count), ("columns", cols, width)):
        if said is not None and said != found:
            raise InputError(f"{path}: expected {said} {what}, found {found}")


def _single(path, found: Mapping[str, np.ndarray], member: str | None, layout: str | None, quantiser: str | None):
    if member is None and {"codes", "d"} <= found.keys() <= {"codes", "d", "s"}:
        return _blocks(path, found, quantiser or "mmvq")
    if member is None and len(found) > 1:
        raise InputError(f"{path}: expected one array, found {', '.join(sorted(found)[:8])}; name one of them")
    name = next(iter(found)) if member is None and found else member
    if name not in found:
        raise InputError(f"{path}: expected an array {name}, found {', '.join(sorted(found)[:8]) or 'none'}")
    value = found[name]
    return value if layout is None else _reinterpret(path, value, layouts.find_layout(layout), quantiser)


def _reinterpret(path, value: np.ndarray, layout: layouts.Layout, quantiser: str | None):
    """Rows of bytes (or bf16 words) read as a raw layout."""
    if value.ndim < 2:
        raise InputError(f"{path}: layout {layout.name}: expected rows [rows, ...], found shape {value.shape}")
    raw = np.ascontiguousarray(value).reshape(value.shape[0], -1).view(np.uint8)
    if raw.shape[1] % layout.dtype.itemsize:
        raise InputError(
            f"{path}: layout {layout.name}: expected rows in a multiple of {layout.dtype.itemsize} bytes, found {raw.shape[1]}"
        )
    return layouts.decode(raw.view(layout.dtype), layout, quantiser=quantiser, source=str(path))


def _blocks(path, parts: Mapping[str, np.ndarray], quantiser: str) -> Blocks:
    for name in ("d", "s"):
        if name in parts and (parts[name].dtype.kind != "f" or not np.isfinite(parts[name]).all()):
            raise InputError(f"{path}: {name}: expected finite floats, found {parts[name].dtype} with others")
    if "codes" not in parts or "d" not in parts:
        raise InputError(f"{path}: expected codes and d of a q8_1 tensor, found {', '.join(sorted(parts))}")
    return Blocks(parts["codes"], parts["d"], parts.get("s"), quantiser)


def _place(path, name: str) -> tuple[int | str | None, str, str | None]:
    """(layer, tensor, part) of a schema path."""
    parts = name.split("/")
    if parts == ["rows"]:
        return None, "rows", None
    if len(parts) == 2 and parts[0] == "head":
        return "head", parts[1], None
    if parts[0] == "layers" and (len(parts) == 3 or (len(parts) == 4 and parts[3] in ("codes", "d", "s"))):
        return levels.layer_name(parts[1]), parts[2], parts[3] if len(parts) == 4 else None
    raise InputError(f"{path}: {name or 'array'}: expected a name like layers/000/d-xl, or the tensor and layer it belongs to")


def _write_all(w: DumpWriter, path, places: Iterable[tuple], values: Iterable, quantiser: str) -> None:
    groups: dict[tuple, dict] = {}
    for (layer, tensor, part), value in zip(places, values):
        groups.setdefault((layer, tensor), {})[part] = value
    if not groups:
        raise InputError(f"{path}: expected arrays, found none")
    for (layer, tensor), parts in groups.items():
        if None in parts and len(parts) > 1:
            raise InputError(f"{path}: {tensor}: expected either rows or codes, d and s, found both")
        value = parts[None] if None in parts else _blocks(path, parts, quantiser)
        if tensor == "rows":
            w.rows(value)
        elif tensor == "pairs":
            w.pairs(layer, value)
        else:
            _write_rows(w, layer, tensor, value if isinstance(value, Blocks) else _rows(value, str(path), tensor))


def _write_rows(w: DumpWriter, layer, tensor: str, value: np.ndarray | Blocks) -> None:
    total = value.rows if isinstance(value, Blocks) else len(value)
    for at in range(0, max(total, 1), PIECE_ROWS):
        rows = slice(at, at + PIECE_ROWS)
        w.write(layer, tensor, value.take(rows) if isinstance(value, Blocks) else np.ascontiguousarray(value[rows]))


def _rows(value: np.ndarray, source: str, tensor: str) -> np.ndarray:
    """An array as the schema stores it: [rows, columns], f16 widened exactly, wider integers narrowed where they fit."""
    if value.ndim == 0:
        raise InputError(f"{source}: {tensor}: expected rows, found a single value")
    value = value.reshape(-1, value.shape[-1]) if value.ndim > 2 else value
    spec = levels.find(tensor)
    kind = spec.kind if spec else None
    if value.dtype == np.float16 and kind == "f32":
        return value.astype(np.float32)
    if value.dtype.kind in "iu" and value.dtype.itemsize > 1:
        if value.size and (value.min() < -(2**31) or value.max() >= 2**31):
            raise InputError(f"{source}: {tensor}: expected integers of 32 bits, found {value.min()} to {value.max()}")
        value = value.astype(np.int32)
    if tensor == IDS and value.dtype.kind in "iu":
        refuse_invalid(value, None, f"{source}: {tensor}")
    return value.astype(value.dtype.newbyteorder("="), copy=False)
