"""Copies of the embedded model with a few bytes changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edge0verify.model import DEFAULT_MODEL, Model, load_model
from edge0verify.model.layout import Entry, read_layout
from edge0verify.numerics.formats import FORMATS

ENTRIES: dict[str, Entry] = {entry.name: entry for entry in read_layout(DEFAULT_MODEL)}


def copy(path: Path, edit: Callable[[bytearray], None]) -> Model:
    """The embedded model after `edit` on its bytes, written to `path`."""
    data = bytearray(DEFAULT_MODEL.read_bytes())
    edit(data)
    path.write_bytes(data)
    return load_model(path)


def block_at(name: str, expert: int | None, row: int, block: int) -> tuple[int, int]:
    """(offset, bytes) of one block of one row in the file."""
    entry = ENTRIES[name]
    size, values = FORMATS[entry.type.name].bytes, FORMATS[entry.type.name].values
    blocks = entry.shape[-1] // values
    index = ((expert or 0) * entry.shape[-2] + row) * blocks + block
    return entry.offset + index * size, size


def flip(name: str, expert: int | None, row: int, block: int, *, byte: int, bit: int) -> Callable[[bytearray], None]:
    """An edit that flips one bit of one block; a negative byte counts from the block's end."""

    def edit(data: bytearray) -> None:
        at, size = block_at(name, expert, row, block)
        data[at + byte % size] ^= 1 << bit

    return edit


def swap_experts(name: str, x: int, y: int) -> Callable[[bytearray], None]:
    """An edit that exchanges all weights of two experts."""

    def edit(data: bytearray) -> None:
        entry = ENTRIES[name]
        n = entry.nbytes // entry.shape[0]
        a, b = entry.offset + x * n, entry.offset + y * n
        data[a : a + n], data[b : b + n] = data[b : b + n], data[a : a + n]

    return edit
