"""Log files as lines with a time where they have one, read one by one: a log may be larger than the memory."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from edge0verify.records.errors import InputError

HEAD = 4096
CHUNK = 1 << 20
NO_YEAR = 1972
"""Year of clocks that leave it out; a leap year, so that every date is one."""
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?\d*(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_DMESG_T = re.compile(r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2}) +(\d+) (\d\d:\d\d:\d\d) (\d{4})\]", re.ASCII)
_SYSLOG = re.compile(r"^([A-Z][a-z]{2}) +(\d+) (\d\d:\d\d:\d\d)\s", re.ASCII)
_GLOG = re.compile(r"^[DIWEF](\d\d)(\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\s", re.ASCII)
_MONTH_DAY = re.compile(r"(?:^|\s)(\d\d)-(\d\d) (\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?\s", re.ASCII)
_BOOT = re.compile(r"^(?:<\d+>)?\[\s*(\d+\.\d+)\]", re.ASCII)
_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")


@dataclass(frozen=True)
class Line:
    """number from 1, as an editor counts; a line that a progress bar wrote over itself has one number for all its states."""

    source: str
    number: int
    text: str

    @property
    def where(self) -> str:
        return f"{self.source}:{self.number}"

    @cached_property
    def when(self) -> datetime | None:
        """The line's own clock; in NO_YEAR where it leaves the year out, None where it has no wall clock."""
        return clock(self.text)


def gap(a: Line, b: Line) -> float | None:
    """Seconds between two lines; None where one has no wall clock.  Years count only where both clocks have one."""
    if a.when is None or b.when is None:
        return None
    times = [a.when, b.when]
    if NO_YEAR in (a.when.year, b.when.year):
        times = [t.replace(year=NO_YEAR) for t in times]
    return abs((times[0] - times[1]).total_seconds())


def encoding_of(head: bytes) -> str:
    """UTF-8 or UTF-16, with or without a byte order mark, from a file's first bytes."""
    if head[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff"):
        return "utf-32"
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) > len(head) // 8 and min(even, odd) < max(even, odd) // 8:  # a block of zeros has as many of both
        return "utf-16-le" if odd > even else "utf-16-be"
    return "utf-8-sig"


def read_lines(path: Path, source: str) -> Iterator[Line]:
    """The lines of a log that hold text, without colours and zero bytes (a crash leaves blocks of them).

    InputError for a file that cannot be read or holds no text; for the latter when its first MiB is through.
    """
    try:
        with path.open("rb") as file:
            yield from _lines(file, path, source)
    except OSError as error:
        raise InputError(f"{path}: expected a log file, found: {error.strerror or error}") from None


def _lines(file: BinaryIO, path: Path, source: str) -> Iterator[Line]:
    raw = file.read(CHUNK)  # and no step back: the file may be a pipe
    decoder = codecs.getincrementaldecoder(encoding_of(raw[:HEAD]))(errors="replace")
    text = decoder.decode(raw, final=not raw)
    _refuse_binary(text, path)
    rest, number = "", 0
    while True:
        pieces = (rest + text).split("\n")
        rest = pieces.pop() if raw else ""
        for piece in pieces:
            number += 1
            for state in piece.split("\r") if "\r" in piece else (piece,):
                plain = _plain(state)
                if plain:
                    yield Line(source, number, plain)
        if not raw:
            return
        raw = file.read(CHUNK)
        text = decoder.decode(raw, final=not raw)


def _plain(text: str) -> str:
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if "\0" in text:
        text = text.replace("\0", "")
    return text.rstrip()


def _refuse_binary(text: str, path: Path) -> None:
    without = text.replace("\0", "")
    odd = len(_CONTROL.findall(without))
    if (text and not without) or odd > len(without) // 20 + 2:
        raise InputError(f"{path}: expected text in UTF-8 or UTF-16, found other bytes")


def clock(line: str) -> datetime | None:
    """The first wall clock near a line's start, in UTC; a clock without a zone is taken as UTC.  None for a date that is none."""
    head = line[:64]
    try:
        return _iso(head) or _others(head)
    except (ValueError, OverflowError):
        return None


def _iso(head: str) -> datetime | None:
    found = _ISO.search(head)
    if not found:
        return None
    zone = (found[4] or "+00:00").replace("Z", "+00:00")
    return datetime.fromisoformat(f"{found[1]}T{found[2]}.{(found[3] or '0'):0<6}{zone}").astimezone(UTC)


def _others(head: str) -> datetime | None:
    found = _DMESG_T.search(head)
    if found:
        return _named_month(found[1], found[2], found[3], int(found[4]))
    found = _SYSLOG.match(head)
    if found:
        return _named_month(found[1], found[2], found[3], NO_YEAR)
    found = _GLOG.match(head) or _MONTH_DAY.search(head)
    if found:
        return datetime.fromisoformat(f"{NO_YEAR}-{found[1]}-{found[2]}T{found[3]}.{(found[4] or '0'):0<6}+00:00")
    return None


def _named_month(month: str, day: str, time: str, year: int) -> datetime:
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return datetime.fromisoformat(f"{year}-{months.index(month) + 1:02}-{int(day):02}T{time}+00:00")


def has_boot_clock(line: str) -> bool:
    """Whether a kernel line counts from boot alone, which no engine log can be joined with."""
    return _BOOT.match(line) is not None
