"""Writes a dump (schema `edge0verify.dump/1`): rows stream in, and the file appears under its name only when it is complete.

Everything goes to `NAME.partial`, which is flushed to disk and renamed at the end. A run that is killed leaves only a
partial file, which no reader accepts and the next writer of that name replaces.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np

from edge0verify.dump import levels
from edge0verify.dump.partial import PartialFile, reason
from edge0verify.dump.store import LIBVER, STORED, ArrayStream
from edge0verify.numerics.blocks import BLOCK, Blocks
from edge0verify.records.errors import InputError
from edge0verify.records.manifest import Manifest, Signature

COMPRESSIONS = (None, "gzip", "lzf")


class DumpWriter:
    """One dump being written; a context manager that completes it, or removes it when the body fails.

    >>> with DumpWriter("x.h5", manifest=manifest) as w:
    ...     w.rows(keys)
    ...     w.write(0, "d-xl", rows)
    """

    def __init__(
        self, path: str | os.PathLike, *, manifest: Manifest, compression: str | None = None, overwrite: bool = False
    ) -> None:
        """manifest: its level decides what is kept; its signature is filled in at the end. InputError when the file exists and
        `overwrite` is not set, when another process is writing it, or when it cannot be created."""
        self.path, self.manifest = Path(path), manifest
        self.level = levels.check_level(manifest.level)
        if compression not in COMPRESSIONS:
            raise InputError(f"compression: expected gzip or lzf, found {compression}")
        self._compression, self._overwrite = compression, overwrite
        self.partial = self.path.with_name(self.path.name + ".partial")
        self._streams: dict[str, ArrayStream] = {}
        self._quantisers: dict[str, str] = {}
        if self.path.suffix == ".partial":
            raise InputError(f"{self.path}: expected a name without .partial, which marks an unfinished dump")
        if self.path.exists() and not self.path.is_file():       # a folder, or a device that a rename would replace
            raise InputError(f"{self.path}: expected the name of a file, found {'a folder' if self.path.is_dir() else 'a device'}")
        if self.path.exists() and not overwrite:
            raise InputError(f"{self.path}: exists already; expected a new name, or the option to overwrite")
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path}: expected an existing folder, found none at {self.path.parent}")
        self._file: h5py.File | None = None
        self._raw: PartialFile | None = None
        with self._disk("creating it"):
            self._raw = PartialFile(self.partial)
            self._file = h5py.File(self._raw, "w", libver=LIBVER)

    # ---- what arrives ------------------------------------------------------------------------------------------------------

    def wants(self, tensor: str) -> bool:
        """Whether this dump's level keeps the tensor; others may be skipped before they are copied."""
        return levels.captured(tensor, self.level)

    def rows(self, keys: np.ndarray) -> None:
        """Next token keys, i32 [tokens, 3]: pass, position, accepted."""
        self._keys("", "rows", keys, reduced=False)

    def pairs(self, layer: int | str, keys: np.ndarray) -> None:
        """Next pair keys of a layer, i32 [pairs, 5]: pass, position, slot, expert, accepted."""
        self._keys(levels.layer_path(layer), "pairs", keys, reduced=True)

    def write(self, layer: int | str, tensor: str, value: np.ndarray | Blocks) -> None:
        """Next rows of a tensor, in order; ignored where the level does not keep it.

        layer: 0 to 999, 'mtp' or 'head'. value: [rows, ...] or Blocks. InputError for a name, dtype or width that is not the
        one the schema or the rows before it have.
        """
        if not self.wants(tensor):
            return
        where = levels.layer_path(layer)
        spec = levels.find(tensor)
        if "/" in tensor or not tensor or tensor in levels.KEYS:
            raise InputError(f"{self.path}: {where}/{tensor}: not a tensor name")
        if spec and (spec in levels.HEAD_TENSORS) != (layer == "head"):
            right = "head" if spec in levels.HEAD_TENSORS else "a layer"
            raise InputError(f"{self.path}: {where}/{tensor}: expected this tensor in {right}")
        if spec and (spec.kind == "q8_1") != isinstance(value, Blocks):
            raise InputError(f"{self.path}: {where}/{tensor}: expected {spec.kind}, found {type(value).__name__}")
        if isinstance(value, Blocks):
            self._blocks(f"{where}/{tensor}", value)
            return
        value = np.asarray(value)
        if spec and spec.kind != {"float32": "f32", "int32": "i32"}.get(value.dtype.name):
            raise InputError(f"{self.path}: {where}/{tensor}: expected {spec.kind}, found {value.dtype}")
        self._append(f"{where}/{tensor}", value)

    def head(self, ids: np.ndarray, logprobs: np.ndarray) -> None:
        """top8 of the first generated token: ids i32 [8] or [n, 8], log-probabilities f32 alike."""
        self.write("head", "top8-ids", np.atleast_2d(np.asarray(ids, np.int32)))
        self.write("head", "top8-logprobs", np.atleast_2d(np.asarray(logprobs, np.float32)))

    def _blocks(self, name: str, value: Blocks) -> None:
        rows, n = value.codes.shape
        if value.codes.dtype != np.int8 or n % BLOCK or value.d.shape != (rows, n // BLOCK):
            found = f"{value.codes.dtype} {value.codes.shape} and {value.d.shape}"
            raise InputError(f"{self.path}: {name}: expected int8 codes [rows, n] and d [rows, n/32], found {found}")
        if self._quantisers.setdefault(name, value.quantiser) != value.quantiser:
            raise InputError(f"{self.path}: {name}: expected quantiser {self._quantisers[name]}, found {value.quantiser}")
        if (value.s is None) == (f"{name}/s" in self._streams) and f"{name}/codes" in self._streams:
            raise InputError(f"{self.path}: {name}: expected s in all rows or in none")
        self._append(f"{name}/codes", value.codes)
        self._append(f"{name}/d", value.d)
        if value.s is not None:
            self._append(f"{name}/s", value.s)

    def _keys(self, where: str, name: str, keys: np.ndarray, *, reduced: bool) -> None:
        keys = np.asarray(keys)
        if keys.ndim != 2 or keys.shape[1] != levels.KEYS[name] or keys.dtype.kind not in "iu":
            raise InputError(f"{self.path}: {name}: expected integers [n, {levels.KEYS[name]}], found {keys.dtype} {keys.shape}")
        self._append(f"{where}/{name}".lstrip("/"), keys.astype(np.int32), whole=not reduced)

    def _append(self, name: str, value: np.ndarray, *, whole: bool = False) -> None:
        if self._file is None:
            raise InputError(f"{self.path}: {name}: the dump is closed")
        if value.ndim < 1 or value.dtype.name not in STORED:
            raise InputError(f"{self.path}: {name}: expected rows of {', '.join(STORED)}, found {value.dtype} {value.shape}")
        stream = self._streams.get(name)
        with self._disk(f"writing {name}"):
            if stream is None:
                group, _, leaf = name.rpartition("/")
                level, compression = (self.level, self._compression)
                if whole and level in levels.REDUCED:                    # token keys stay readable; they compress to little
                    level, compression = "full", "gzip"
                parent = self._file.require_group(group) if group else self._file
                stream = ArrayStream(parent, leaf, value.shape[1:], value.dtype, compression=compression, level=level)
                self._streams[name] = stream
            if value.shape[1:] != stream.columns or value.dtype != stream.dtype:
                raise InputError(
                    f"{self.path}: {name}: expected rows of {stream.dtype} {stream.columns}, found {value.dtype} {value.shape[1:]}"
                )
            stream.append(value)

    # ---- how it ends -------------------------------------------------------------------------------------------------------

    def signature(self) -> Signature:
        """Tensors, layers and rows captured so far."""
        tensors, layers = [], []
        for name in self._streams:
            parts = name.split("/")
            if parts[-1] in levels.KEYS:
                continue
            head = parts[0] == "head"
            layer, tensor = ("head", parts[1]) if head else (levels.layer_name(parts[1]), parts[2])
            if tensor not in tensors:
                tensors.append(tensor)
            if not head and layer not in layers:
                layers.append(layer)
        keys = self._streams.get("rows")
        rows = keys.rows if keys else max((s.rows for n, s in self._streams.items() if n.startswith("layers/")), default=0)
        return Signature(tensors=tuple(tensors), layers=tuple(layers), rows=rows)

    def close(self, manifest: Manifest | None = None) -> Manifest:
        """Complete the dump and give it its name. manifest: replaces the one given at first, as launches are known only now."""
        manifest = replace(manifest or self.manifest, signature=self.signature(), level=self.level)
        try:
            with self._disk("closing it"):
                for stream in self._streams.values():
                    stream.close()
                for name, quantiser in self._quantisers.items():
                    self._file[name].attrs["quantiser"] = np.bytes_(quantiser)
                self._file.attrs["manifest"] = np.bytes_(manifest.dumps())
                file, self._file = self._file, None
                file.close()
                self._raw.sync()
                self._publish()
                self._raw.release()
        except BaseException:
            self.abort()
            raise
        return manifest

    def abort(self) -> None:
        """Give up: nothing stays on disk."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        if self._raw is not None:
            self.partial.unlink(missing_ok=True)
            self._raw.release()

    def __enter__(self) -> DumpWriter:
        return self

    def __exit__(self, kind, value, trace) -> None:
        if self._file is None:
            return
        if kind is None:
            self.close()
        else:
            self.abort()

    def _publish(self) -> None:
        if self._overwrite:
            os.replace(self.partial, self.path)
        else:
            try:
                os.link(self.partial, self.path)        # unlike a rename, never replaces what another run put there meanwhile
            except FileExistsError:
                raise InputError(f"{self.path}: appeared while the dump was being written; expected no such file") from None
            except OSError:                             # a file system without hard links
                if self.path.exists():
                    raise InputError(f"{self.path}: appeared while the dump was being written; expected no such file") from None
                os.rename(self.partial, self.path)
            else:
                os.unlink(self.partial)
        _sync(self.path.parent)

    @contextmanager
    def _disk(self, doing: str):
        try:
            yield
            wrong = self._raw.failure
        except OSError as raised:
            wrong = raised
        if wrong is not None:
            self.abort()
            raise InputError(f"{self.path}: {reason(wrong)} while {doing}; nothing was kept")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
