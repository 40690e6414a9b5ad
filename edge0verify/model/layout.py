"""The layout of a GGUF file, checked against its size before anything is mapped.

The `gguf` package reads the values.  It trusts counts, lengths and offsets, though, so a damaged file ends in a numpy error that
names neither file nor tensor, or in a loop over 2^60 entries; this walk over the header finds such a file first.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from edge0verify.records.errors import InputError

_SCALAR = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}   # metadata value type: bytes
_STRING, _ARRAY, _UINT32 = 8, 9, 4
_MAX_DIMS = 4


@dataclass(frozen=True)
class Entry:
    """One tensor of the file.  `shape` is row major; `offset` counts from the start of the file."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class _Cursor:
    def __init__(self, data: mmap.mmap, where: str) -> None:
        self.data, self.where, self.at, self.size = data, where, 0, len(data)

    def take(self, n: int, what: str) -> bytes:
        if n > self.size - self.at:
            raise InputError(f"{self.where}: truncated in {what}: expected {n} bytes at offset {self.at}, "
                             f"found {self.size - self.at}")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, fmt: str, what: str) -> int:
        return struct.unpack("<" + fmt, self.take(struct.calcsize(fmt), what))[0]

    def string(self, what: str) -> str:
        raw = self.take(self.number("Q", what), what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{self.where}: {what}: expected UTF-8 text, found bytes {raw[:16]!r}") from None

    def skip_value(self, kind: int, what: str) -> None:
        if kind in _SCALAR:
            self.take(_SCALAR[kind], what)
        elif kind == _STRING:
            self.take(self.number("Q", what), what)
        elif kind == _ARRAY:
            inner, count = self.number("I", what), self.number("Q", what)
            if inner in _SCALAR:
                self.take(_SCALAR[inner] * count, what)
            elif inner == _STRING:
                for _ in range(count):       # each takes at least 8 bytes, so a wild count ends at the end of the file
                    self.take(self.number("Q", what), what)
            else:
                raise InputError(f"{self.where}: {what}: expected an array of numbers or strings, found element type {inner}")
        else:
            raise InputError(f"{self.where}: {what}: expected a value type 0..12, found {kind}")


def read_layout(path: str | Path) -> tuple[Entry, ...]:
    """Every tensor entry of a GGUF file, each known to lie inside the file.  InputError otherwise."""
    where = str(path)
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            if size < 24:
                raise InputError(f"{where}: expected a GGUF file, found {size} bytes")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _walk(_Cursor(data, where))
    except OSError as e:
        raise InputError(f"{where}: expected a readable GGUF file, found: {e.strerror or e}") from None


def _walk(c: _Cursor) -> tuple[Entry, ...]:
    magic = c.take(4, "the header")
    if magic != b"GGUF":
        raise InputError(f"{c.where}: expected a GGUF file (magic b'GGUF'), found {magic!r}")
    version = c.number("I", "the header")
    if version not in (2, 3):
        raise InputError(f"{c.where}: expected GGUF version 2 or 3, little endian, found {version}")
    tensors, pairs = c.number("Q", "the header"), c.number("Q", "the header")
    alignment = 32
    for _ in range(pairs):
        key = c.string("a metadata key")
        kind = c.number("I", f"metadata key {key}")
        if key == "general.alignment":
            alignment = c.number("I", key) if kind == _UINT32 else 0
            if alignment < 1 or alignment & (alignment - 1):
                raise InputError(f"{c.where}: metadata key {key}: expected a power of two as uint32, found {alignment}")
        else:
            c.skip_value(kind, f"metadata key {key}")
    found = [_tensor_info(c) for _ in range(tensors)]
    start = -(-c.at // alignment) * alignment
    return tuple(_placed(c, entry, start, alignment) for entry in found)


def _tensor_info(c: _Cursor) -> Entry:
    name = c.string("a tensor name")
    what = f"the entry of tensor {name}"
    dims = c.number("I", what)
    if not 1 <= dims <= _MAX_DIMS:
        raise InputError(f"{c.where}: tensor {name}: expected 1 to {_MAX_DIMS} dimensions, found {dims}")
    shape = tuple(c.number("Q", what) for _ in range(dims))[::-1]
    code, offset = c.number("I", what), c.number("Q", what)
    try:
        kind = GGMLQuantizationType(code)
    except ValueError:
        raise InputError(f"{c.where}: tensor {name}: expected a known ggml type, found type {code}") from None
    block, size = GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        raise InputError(f"{c.where}: tensor {name}: expected rows in multiples of {block} values for {kind.name}, "
                         f"found {shape[-1]}")
    return Entry(name, kind, shape, offset, math.prod(shape) // block * size)


def _placed(c: _Cursor, entry: Entry, start: int, alignment: int) -> Entry:
    if entry.offset % alignment:
        raise InputError(f"{c.where}: tensor {entry.name}: expected an offset in multiples of {alignment}, found {entry.offset}")
    at = start + entry.offset
    if at + entry.nbytes > c.size:
        raise InputError(f"{c.where}: tensor {entry.name}: data truncated: expected {entry.nbytes} bytes at offset {at}, "
                         f"found {max(0, c.size - at)}")
    return Entry(entry.name, entry.type, entry.shape, at, entry.nbytes)
