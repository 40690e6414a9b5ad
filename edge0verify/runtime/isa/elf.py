"""The parts of a 64-bit little-endian ELF file that device code uses."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = b"\x7fELF"
EM_CUDA, EM_AMDGPU = 190, 224
NOTE, NOBITS, SYMTAB, DYNSYM = 7, 8, 2, 11


class Damaged(ValueError):
    """The file is ELF and does not hold together; the message says where."""


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    address: int
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True)
class Symbol:
    name: str
    value: int
    size: int
    section: int


class Elf:
    """Header, sections and symbols."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != MAGIC or len(data) < 64 or data[4:6] != b"\x02\x01":
            raise Damaged("no 64-bit little-endian ELF file")
        self.data = data
        self.abi = data[8]
        (self.machine,) = struct.unpack_from("<H", data, 18)
        (self.flags,) = struct.unpack_from("<I", data, 48)
        self.sections = self._sections()

    def _sections(self) -> tuple[Section, ...]:
        (start,) = struct.unpack_from("<Q", self.data, 40)
        size, count, names = struct.unpack_from("<HHH", self.data, 58)
        if not start or not count:
            return ()
        if size < 64 or start + size * count > len(self.data):
            raise Damaged(f"section headers at {start} reach past the file's end at {len(self.data)}")
        raw = [struct.unpack_from("<IIQQQQIIQQ", self.data, start + i * size) for i in range(count)]
        found = []
        for name, kind, _, address, offset, length, link, info, _, _ in raw:
            if kind != NOBITS and offset + length > len(self.data):
                raise Damaged(f"a section at {offset} reaches past the file's end at {len(self.data)}")
            strings = raw[names][4] if names < count else 0
            found.append(Section(self._string(strings + name), kind, address, offset, length, link, info))
        return tuple(found)

    def _string(self, at: int) -> str:
        end = self.data.find(b"\0", at)
        return self.data[at:end].decode("utf-8", "replace") if end >= 0 else ""

    def content(self, section: Section) -> bytes:
        return b"" if section.kind == NOBITS else self.data[section.offset : section.offset + section.size]

    def section(self, name: str) -> Section | None:
        return next((s for s in self.sections if s.name == name), None)

    def symbols(self) -> list[Symbol]:
        """Of the symbol table, or of the dynamic one where that is all there is."""
        for kind in (SYMTAB, DYNSYM):
            for table in self.sections:
                if table.kind == kind and table.link < len(self.sections):
                    return list(self._symbols(table, self.sections[table.link].offset))
        return []

    def _symbols(self, table: Section, strings: int) -> Iterator[Symbol]:
        for at in range(table.offset, table.offset + table.size - 23, 24):
            name, _, _, section, value, size = struct.unpack_from("<IBBHQQ", self.data, at)
            yield Symbol(self._string(strings + name), value, size, section)

    def notes(self) -> Iterator[tuple[str, int, bytes]]:
        """(owner, type, description) of every note."""
        for section in self.sections:
            if section.kind != NOTE:
                continue
            data, at = self.content(section), 0
            while at + 12 <= len(data):
                owner, size, kind = struct.unpack_from("<III", data, at)
                begin = at + 12 + (owner + 3) // 4 * 4
                if begin + size > len(data):
                    raise Damaged(f"a note of section {section.name} reaches past its end")
                yield data[at + 12 : at + 12 + owner].rstrip(b"\0").decode("utf-8", "replace"), kind, data[begin : begin + size]
                at = begin + (size + 3) // 4 * 4
