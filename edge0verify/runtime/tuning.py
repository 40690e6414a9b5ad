"""hipBLASLt tuning tables as an engine keeps them beside itself: the solution of a product, and whether a table fits the card.

Line 1 is a comment, line 2 `STRATA_HIPBLASLT_TUNING_V1 ARCH VERSION` with VERSION = major * 100000 + minor * 100 + patch, every
further line `dtype N K ld T solution_id`.  A product is looked up by exact dtype, N, K and ld and by the nearest T; solution ids
mean nothing for another card or version, so such a table is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from edge0verify.records.errors import InputError

MAGIC = "STRATA_HIPBLASLT_TUNING_V1"


@dataclass(frozen=True, order=True)
class Geometry:
    """One kind of product: element type, rows, depth, leading dimension."""

    dtype: str
    n: int
    k: int
    ld: int

    def __str__(self) -> str:
        return f"{self.dtype} N={self.n} K={self.k} ld={self.ld}"


@dataclass(frozen=True)
class Match:
    """The solution that a product gets.  t: the table's T that was nearest."""

    solution: int
    t: int
    exact: bool


@dataclass(frozen=True)
class Table:
    """A table as it stands in its file."""

    path: Path
    arch: str
    version: int
    solutions: dict[Geometry, dict[int, int]]

    def __str__(self) -> str:
        return f"{self.arch}, hipBLASLt {version_text(self.version)}"

    @property
    def rows(self) -> int:
        return sum(len(by_t) for by_t in self.solutions.values())

    def refused(self, arch: str | None, version: int | None) -> str | None:
        """Why an engine on that card and version does not use the table; None where it does.  What is not known is not compared."""
        if not self.solutions:
            return "it holds no product"
        if arch is not None and arch != self.arch:
            return f"made for {self.arch}, the card is {arch}"
        if version is not None and version != self.version:
            return f"made for hipBLASLt {version_text(self.version)}, found {version_text(version)}"
        return None

    def find(self, geometry: Geometry, t: int) -> Match | None:
        """The solution of the nearest T, of two equally near the smaller; None: the library's heuristic chooses."""
        by_t = self.solutions.get(geometry)
        if not by_t:
            return None
        nearest = min(by_t, key=lambda have: (abs(have - t), have))
        return Match(by_t[nearest], nearest, nearest == t)


def version_text(version: int) -> str:
    """'1.2.2' from 100202."""
    return f"{version // 100000}.{version // 100 % 1000}.{version % 100}"


def read_version(text: str) -> int:
    """100202 from '100202' or '1.2.2'.  InputError otherwise."""
    dotted = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?", text, re.ASCII)
    if dotted:
        return int(dotted[1]) * 100000 + int(dotted[2]) * 100 + int(dotted[3] or 0)
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"hipBLASLt version {text}: expected 100202 or 1.2.2")
    return int(text)


def read_product(text: str) -> tuple[Geometry, int]:
    """A product 'dtype N K ld T', apart by spaces or commas."""
    words = re.split(r"[\s,]+", text.strip())
    if len(words) != 5 or not all(map(_is_size, words[1:])):
        raise InputError(f"product {text!r}: expected dtype N K ld T, as 'bf16 48 2560 96 4096'")
    n, k, ld, t = map(int, words[1:])
    return Geometry(words[0], n, k, ld), t


def _is_size(word: str) -> bool:
    return re.fullmatch(r"0*[1-9]\d*", word, re.ASCII) is not None


def is_table(path: Path) -> bool:
    """Whether a file's name or its second line is that of a table: by its name, one with a broken head is not passed by."""
    if re.fullmatch(r"gfx\w+-hipblaslt-\w+\.txt", path.name):
        return True
    try:
        with path.open("rb") as file:
            file.readline(4096)
            return file.readline(4096).startswith(MAGIC.encode() + b" ")
    except OSError:
        return False


def read_table(path: Path) -> Table:
    """Parse a file.  InputError names file, line, what was expected and what was found."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a tuning table, found: {getattr(error, 'strerror', None) or 'no text'}") from None
    head = lines[1].split() if len(lines) > 1 else []
    if len(head) != 3 or head[0] != MAGIC or not re.fullmatch(r"\d+", head[2], re.ASCII):
        raise InputError(f"{path}: line 2: expected {MAGIC} ARCH VERSION, found {' '.join(head) or 'nothing'}")
    solutions: dict[Geometry, dict[int, int]] = {}
    for number, line in enumerate(lines[2:], 3):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 6 or not all(map(_is_size, words[1:5])) or not re.fullmatch(r"\d+", words[5], re.ASCII):
            raise InputError(f"{path}: line {number}: expected dtype N K ld T solution_id, found {line.strip()!r}")
        n, k, ld, t, solution = map(int, words[1:])
        by_t = solutions.setdefault(Geometry(words[0], n, k, ld), {})
        if by_t.get(t, solution) != solution:
            raise InputError(f"{path}: line {number}: expected one solution for a product, found {solution} beside {by_t[t]}")
        by_t[t] = solution
    return Table(path, head[1], int(head[2]), solutions)
