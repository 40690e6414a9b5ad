"""Reads a dump and refuses one that is not whole: one line names the file, the tensor, what was expected and what was found.

A tensor's bytes are held against its sha256 the first time any row of it is read. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from edge0verify.dump import levels
from edge0verify.dump.sketch import SAMPLE_AT, SAMPLE_EVERY, Sketch
from edge0verify.dump.store import STORED
from edge0verify.numerics.blocks import BLOCK, Blocks
from edge0verify.records.errors import InputError
from edge0verify.records.manifest import SCHEMA, Manifest

PIECE_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class ArrayInfo:
    """One stored array: a tensor, or the codes, d or s of one, or keys."""

    path: str
    """Path in the file, e.g. 'layers/000/d-xlq/codes'."""
    layer: int | str | None
    """None for `rows`."""
    tensor: str
    part: str | None
    """'codes', 'd' or 's' of a q8_1 tensor."""
    shape: tuple[int, ...]
    dtype: np.dtype
    sha256: str
    stored: str
    """'whole', 'sketch' or 'hash'."""
    stored_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array, also where only a sketch is stored."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Dump:
    """An open dump. `with open_dump(path) as dump: dump.read(0, 'd-xl')`."""

    def __init__(self, path: str | os.PathLike, *, verify: bool = True) -> None:
        """verify: hold each tensor against its sha256 before its first use. InputError for a file that is not a whole dump."""
        self.path = Path(path)
        self._verify = verify
        self._verified: set[str] = set()
        self._file = _open(self.path)
        try:
            self.manifest = _manifest(self.path, self._file)
            with _hdf5(f"{self.path}: damaged"):
                self.arrays = {info.path: info for info in _collect(self.path, self._file)}
            self._check_shapes()
        except BaseException:
            self.close()
            raise

    # ---- what is there -----------------------------------------------------------------------------------------------------

    @property
    def level(self) -> str:
        return self.manifest.level

    def layers(self) -> list[int | str]:
        """Layers in the file: numbers in order, then 'mtp'."""
        found = {info.layer for info in self.arrays.values() if info.layer not in (None, "head")}
        return sorted(found, key=lambda layer: (isinstance(layer, str), layer))

    def tensors(self, layer: int | str) -> list[str]:
        """Tensors of a layer (or of 'head'), without its keys, in the order of the schema."""
        order = {spec.name: i for i, spec in enumerate((*levels.LAYER_TENSORS, *levels.HEAD_TENSORS))}
        names = {info.tensor for info in self.arrays.values() if info.layer == layer and info.tensor not in levels.KEYS}
        return sorted(names, key=lambda name: (order.get(name, len(order)), name))

    def has(self, layer: int | str, tensor: str) -> bool:
        return bool(self._parts(layer, tensor))

    def missing(self) -> list[tuple[int | str, str]]:
        """(layer, tensor) pairs that the manifest's signature promises and the file does not hold."""
        signature = self.manifest.signature
        head = {spec.name for spec in levels.HEAD_TENSORS}
        layers = [(layer, t) for layer in signature.layers for t in signature.tensors if t not in head]
        return [(at, t) for at, t in (*layers, *(("head", t) for t in signature.tensors if t in head)) if not self.has(at, t)]

    def shape(self, layer: int | str, tensor: str) -> tuple[int, ...]:
        """Shape of the rows, or of the codes of a q8_1 tensor."""
        return self._info(layer, tensor, "codes" if self.is_blocks(layer, tensor) else None).shape

    def is_blocks(self, layer: int | str, tensor: str) -> bool:
        return "codes" in self._parts(layer, tensor)

    def quantiser(self, layer: int | str, tensor: str) -> str:
        """Name of the quantiser that wrote a q8_1 tensor; 'unknown' where the dump does not say."""
        return _text(self._file[f"{levels.layer_path(layer)}/{tensor}"].attrs.get("quantiser", b"")) or "unknown"

    def dataset(self, layer: int | str, tensor: str, part: str | None = None) -> h5py.Dataset:
        """The HDF5 dataset itself, unverified (for `compare_datasets`). InputError where only a sketch is stored."""
        info = self._info(layer, tensor, part)
        if info.stored != "whole":
            raise InputError(f"{self.path}: {info.path}: expected whole rows, found a dump of level {self.level}")
        return self._file[info.path]

    # ---- keys --------------------------------------------------------------------------------------------------------------

    def rows(self) -> np.ndarray | None:
        """i32 [tokens, 3] (pass, position, accepted), or None in a dump without keys. InputError for duplicates."""
        return self._keys("rows", 2)

    def token_keys(self, layer: int | str) -> np.ndarray | None:
        """i32 [tokens, 3] of a layer's token rows: `rows`, or for the drafter layer, which reads other rows, of its `pairs`."""
        if layer != "mtp":
            return self.rows()
        pairs = self.pairs(layer)
        return None if pairs is None else np.ascontiguousarray(pairs[pairs[:, 2] == 0][:, [0, 1, 4]])

    def pairs(self, layer: int | str) -> np.ndarray | None:
        """i32 [pairs, 5] (pass, position, slot, expert, accepted) of a layer, or None. InputError for duplicates."""
        return self._keys(f"{levels.layer_path(layer)}/pairs", 3)

    def keys(self, layer: int | str, tensor: str) -> np.ndarray | None:
        """Keys of a tensor's rows: `pairs` or `rows` as the schema says, None where there are none (head, foreign names)."""
        spec = levels.find(tensor)
        if spec is None or spec.rows == "run":
            return None
        return self.pairs(layer) if spec.rows == "pairs" else self.token_keys(layer)

    def _keys(self, path: str, unique: int) -> np.ndarray | None:
        info = self.arrays.get(path)
        if info is None or info.stored != "whole":
            return None
        keys = self._read_array(info, slice(None))
        _, first, count = np.unique(keys[:, :unique], axis=0, return_index=True, return_counts=True)
        if (count > 1).any():
            at = int(first[count > 1][0])
            times = int(count[count > 1][0])
            raise InputError(f"{self.path}: {path}: expected unique keys, found {keys[at, :unique].tolist()} {times} times")
        return keys

    # ---- rows --------------------------------------------------------------------------------------------------------------

    def read(self, layer: int | str, tensor: str, rows: slice = slice(None)) -> np.ndarray | Blocks:
        """Rows of a tensor: an array [rows, ...], or Blocks. InputError where it is missing, damaged or not stored whole."""
        parts = self._parts(layer, tensor)
        if "codes" not in parts:
            return self._read_array(self._info(layer, tensor, None), rows)
        got = {part: self._read_array(info, rows) for part, info in parts.items()}
        return Blocks(got["codes"], got["d"], got.get("s"), self.quantiser(layer, tensor))

    def iterate(self, layer: int | str, tensor: str, rows: int | None = None) -> Iterator[tuple[int, np.ndarray | Blocks]]:
        """(first row, rows) in pieces of `rows` rows (default: about 4 MiB), in order and in bounded memory."""
        total = self.shape(layer, tensor)[0]
        info = next(iter(self._parts(layer, tensor).values()))
        step = rows or max(1, PIECE_BYTES // max(1, info.nbytes // max(1, total)))
        for at in range(0, total, step):
            yield at, self.read(layer, tensor, slice(at, at + step))

    def read_path(self, path: str, rows: slice = slice(None)) -> np.ndarray:
        """Rows of one stored array by its path in the file, e.g. 'layers/000/d-xlq/codes' or 'rows'."""
        if path not in self.arrays:
            raise InputError(f"{self.path}: {path}: expected in the dump, found no such array")
        return self._read_array(self.arrays[path], rows)

    def sketch(self, layer: int | str, tensor: str, part: str | None = None) -> Sketch:
        """The stored sketch of an array. InputError in a dump of another level."""
        info = self._info(layer, tensor, part)
        if info.stored != "sketch":
            raise InputError(f"{self.path}: {info.path}: expected a sketch, found a dump of level {self.level}")
        group = self._file[info.path]
        sample_rows = np.arange(SAMPLE_AT, info.shape[0], SAMPLE_EVERY)
        sample = group["sample"][...] if "sample" in group else np.empty((0, *info.shape[1:]), info.dtype)
        return Sketch(
            shape=info.shape,
            dtype=info.dtype,
            sha256=info.sha256,
            tile_rows=int(group.attrs["tile_rows"]),
            tiles=group["tiles"][...],
            sample_rows=sample_rows,
            sample=sample,
            moments=group.attrs["moments"],
            histogram=group["histogram"][...] if "histogram" in group else None,
        )

    def verify(self) -> int:
        """Hold every whole array against its sha256; the number of bytes read. InputError names the first that is damaged."""
        whole = [info for info in self.arrays.values() if info.stored == "whole"]
        for info in whole:
            self._check_hash(info)
        return sum(info.nbytes for info in whole)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Dump:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    # ---- inside ------------------------------------------------------------------------------------------------------------

    def _parts(self, layer: int | str, tensor: str) -> dict[str | None, ArrayInfo]:
        where = f"{levels.layer_path(layer)}/{tensor}"
        if where in self.arrays:
            return {None: self.arrays[where]}
        found = {part: self.arrays.get(f"{where}/{part}") for part in ("codes", "d", "s")}
        return {part: info for part, info in found.items() if info is not None}

    def _info(self, layer: int | str, tensor: str, part: str | None) -> ArrayInfo:
        parts = self._parts(layer, tensor)
        if part not in parts:
            name = f"{levels.layer_path(layer)}/{tensor}" + (f"/{part}" if part else "")
            found = f"{', '.join(p or 'rows' for p in parts)} alone" if parts else "no such tensor"
            raise InputError(f"{self.path}: {name}: expected in the dump, found {found}")
        return parts[part]

    def _read_array(self, info: ArrayInfo, rows: slice) -> np.ndarray:
        if info.stored != "whole":
            raise InputError(f"{self.path}: {info.path}: expected whole rows, found a dump of level {self.level}")
        if self._verify:
            self._check_hash(info)
        with _hdf5(f"{self.path}: {info.path}: cannot be read"):
            return self._file[info.path][rows]

    def _check_hash(self, info: ArrayInfo) -> None:
        if info.path in self._verified:
            return
        found = hashlib.sha256()
        step = max(1, PIECE_BYTES // max(1, info.nbytes // max(1, info.shape[0])))
        with _hdf5(f"{self.path}: {info.path}: cannot be read"):
            for at in range(0, info.shape[0], step):
                found.update(np.ascontiguousarray(self._file[info.path][at : at + step]))
        if found.hexdigest() != info.sha256:
            raise InputError(
                f"{self.path}: {info.path}: damaged: expected sha256 {info.sha256[:16]}, found {found.hexdigest()[:16]}"
            )
        self._verified.add(info.path)

    def _check_shapes(self) -> None:
        """Keys, codes and scales must fit each other and the manifest. An empty tensor is left for the comparison to judge."""
        rows, said = self.arrays.get("rows"), self.manifest.signature.rows
        if rows is not None and rows.shape[:1] not in ((0,), (said,)):
            raise InputError(f"{self.path}: rows: expected {said} rows as the manifest's signature says, found {rows.shape[0]}")
        for info in self.arrays.values():
            if info.tensor in levels.KEYS:
                columns = levels.KEYS[info.tensor]
                if len(info.shape) != 2 or info.shape[1] != columns or info.dtype != np.int32:
                    raise InputError(f"{self.path}: {info.path}: expected int32 [n, {columns}], found {info.dtype} {info.shape}")
                continue
            if info.part == "codes":
                self._check_blocks(info)
            spec = levels.find(info.tensor)
            if spec is not None:
                self._check_form(info, spec)
            keys = None if spec is None else {"tokens": "rows", "pairs": f"{levels.layer_path(info.layer)}/pairs"}.get(spec.rows)
            if keys == "rows" and info.layer == "mtp":                    # the drafter layer's token rows are keyed by its pairs
                continue
            count = self.arrays[keys].shape[0] if keys in self.arrays else None
            if count is not None and info.shape[0] not in (0, count):
                raise InputError(f"{self.path}: {info.path}: expected {count} rows as in {keys}, found {info.shape[0]}")

    def _check_form(self, info: ArrayInfo, spec: levels.TensorSpec) -> None:
        blocks = spec.kind == "q8_1"
        if (info.part is not None) != blocks:
            form = ("rows", "codes and their scales (q8_1)")
            raise InputError(f"{self.path}: {info.path}: expected {form[blocks]}, found {form[not blocks]}")
        if len(info.shape) != 2:
            raise InputError(f"{self.path}: {info.path}: expected [rows, columns], found shape {list(info.shape)}")

    def _check_blocks(self, codes: ArrayInfo) -> None:
        parts = self._parts(codes.layer, codes.tensor)
        if codes.dtype != np.int8 or len(codes.shape) != 2 or codes.shape[1] % BLOCK:
            found = f"{codes.dtype} {codes.shape}"
            raise InputError(f"{self.path}: {codes.path}: expected int8 [rows, n] with n a multiple of 32, found {found}")
        scales = (codes.shape[0], codes.shape[1] // BLOCK)
        for part in ("d", "s"):
            info = parts.get(part)
            if info is None and part == "d":
                raise InputError(f"{self.path}: {codes.path}: expected d beside the codes, found none")
            if info is not None and (info.shape != scales or info.dtype.kind != "f"):
                raise InputError(f"{self.path}: {info.path}: expected floats {scales}, found {info.dtype} {info.shape}")


def open_dump(path: str | os.PathLike, *, verify: bool = True) -> Dump:
    """Open a dump; see `Dump`."""
    return Dump(path, verify=verify)


def _open(path: Path) -> h5py.File:
    if path.suffix == ".partial":
        raise InputError(f"{path}: unfinished: the run that wrote it was stopped")
    if not path.is_file():
        raise InputError(f"{path}: expected a dump, found no such file")
    with _hdf5(f"{path}: expected an HDF5 file, found one that is truncated, damaged or of another kind"):
        return h5py.File(path, "r", rdcc_nbytes=0)             # rows are read in order, once: a chunk cache would only copy them


def _manifest(path: Path, file: h5py.File) -> Manifest:
    with _hdf5(f"{path}: manifest: cannot be read"):
        text = file.attrs.get("manifest")
    if text is None:
        raise InputError(f"{path}: expected the attribute manifest ({SCHEMA}), found none: not a dump, or an unfinished one")
    if not isinstance(text, (str, bytes)):
        raise InputError(f"{path}: manifest: expected text, found {type(text).__name__}")
    return Manifest.loads(text, source=f"{path}: manifest")


def _collect(path: Path, file: h5py.File) -> list[ArrayInfo]:
    found: list[ArrayInfo] = []
    if "rows" in file:
        found.append(_describe(path, file["rows"], None, "rows", None))
    groups = []
    for name, group in file.get("layers", {}).items():
        if not isinstance(group, h5py.Group):
            found = "a dead link" if group is None else "an array"
            raise InputError(f"{path}: layers/{name}: expected a group of tensors, found {found}")
        try:
            groups.append((levels.layer_name(name), group))
        except InputError as wrong:
            raise InputError(f"{path}: {wrong}") from None
    for layer, group in [*groups, *([("head", file["head"])] if "head" in file else [])]:
        for tensor, item in group.items():
            if isinstance(item, h5py.Group) and "sha256" not in item.attrs:
                found += [_describe(path, item[part], layer, tensor, part) for part in item]
            else:
                found.append(_describe(path, item, layer, tensor, None))
    return found


def _describe(path: Path, item, layer, tensor: str, part: str | None) -> ArrayInfo:
    if item is None:
        where = "/".join(filter(None, (levels.layer_path(layer), tensor, part)))
        raise InputError(f"{path}: {where}: expected an array, found a dead link")
    name = item.name.lstrip("/")
    sha = item.attrs.get("sha256")
    if sha is None and isinstance(item, h5py.Dataset) and item.size == 0:
        sha = hashlib.sha256(b"").hexdigest()                             # nothing that could be damaged
    if sha is None:
        raise InputError(f"{path}: {name}: expected the attribute sha256, found none")
    if part not in (None, "codes", "d", "s"):
        raise InputError(f"{path}: {name}: expected codes, d or s, found {part}")
    if isinstance(item, h5py.Dataset):
        shape, dtype, stored = item.shape, item.dtype, "whole"
    else:
        shape, dtype = tuple(int(n) for n in item.attrs["shape"]), np.dtype(_text(item.attrs["dtype"]))
        stored = "sketch" if "tiles" in item else "hash"
    if dtype.name not in STORED or not shape:
        raise InputError(f"{path}: {name}: expected rows of {', '.join(STORED)}, found {dtype} {shape}")
    size = item.id.get_storage_size() if stored == "whole" else sum(d.id.get_storage_size() for d in item.values())
    return ArrayInfo(
        path=name,
        layer=layer,
        tensor=tensor,
        part=part,
        shape=tuple(shape),
        dtype=dtype,
        sha256=_text(sha),
        stored=stored,
        stored_bytes=size,
    )


def _text(value) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


@contextmanager
def _hdf5(saying: str):
    """Whatever HDF5 and h5py raise on a damaged file, as one line."""
    try:
        yield
    except InputError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError) as wrong:
        raise InputError(f"{saying}: {' '.join(str(wrong).split())[:160]}") from None
