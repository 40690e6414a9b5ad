"""MessagePack, as far as the metadata of AMD code objects uses it: maps, arrays, strings, integers, booleans, floats, bytes."""

from __future__ import annotations

import struct
from typing import Any

_FIXED = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_LENGTHS = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
DEEPEST = 64


def unpack(data: bytes) -> Any:
    """The first value in `data`.  ValueError where the bytes end early, nest too deep, or are of a type not read here."""
    return _Reader(data).value(0)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise ValueError(f"metadata ends at byte {len(self.data)} of at least {self.at + count}")
        piece = self.data[self.at : self.at + count]
        self.at += count
        return piece

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError("metadata nests too deep")
        first = self.take(1)[0]
        if first < 0x80:
            return first
        if first < 0x90:
            return self.map(first & 15, depth)
        if first < 0xA0:
            return self.array(first & 15, depth)
        if first < 0xC0:
            return self.text(first & 31)
        if first >= 0xE0:
            return first - 256
        if first in _FIXED:
            return _FIXED[first]
        if first in _NUMBERS:
            return self.number(_NUMBERS[first])
        if first not in _LENGTHS:
            raise ValueError(f"metadata has a value of type {first:#x} at byte {self.at - 1}")
        length = self.number(_LENGTHS[first])
        if first <= 0xC6:
            return self.take(length)
        if first <= 0xDB:
            return self.text(length)
        return self.array(length, depth) if first <= 0xDD else self.map(length, depth)

    def text(self, length: int) -> str:
        return self.take(length).decode("utf-8", "replace")

    def array(self, length: int, depth: int) -> list:
        return [self.value(depth + 1) for _ in range(length)]

    def map(self, length: int, depth: int) -> dict:
        found = {}
        for _ in range(length):
            key = self.value(depth + 1)
            if isinstance(key, (dict, list)):
                raise ValueError("metadata has a key that is no scalar")
            found[key] = self.value(depth + 1)
        return found
