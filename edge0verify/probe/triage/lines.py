"""Log files as lines with a time where they have one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from edge0verify.records.errors import InputError

MOST_BYTES = 256 << 20
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?\d*(Z|[+-]\d\d:?\d\d)?")
_DMESG_T = re.compile(r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2}) +(\d+) (\d\d:\d\d:\d\d) (\d{4})\]")
_SYSLOG = re.compile(r"^([A-Z][a-z]{2}) +(\d+) (\d\d:\d\d:\d\d)\s")
_BOOT = re.compile(r"^(?:<\d+>)?\[\s*(\d+\.\d+)\]")


@dataclass(frozen=True)
class Line:
    """number from 1.  time: seconds since the epoch by the line's own clock; None where it has no wall clock."""

    source: str
    number: int
    text: str
    time: float | None = None

    @property
    def where(self) -> str:
        return f"{self.source}:{self.number}"


def decode(raw: bytes) -> str:
    """Text in UTF-8 or UTF-16, with or without a byte order mark; bytes that are neither become replacement characters."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", errors="replace")
    head = raw[:4096]
    if head.count(0) > len(head) // 4:
        order = "utf-16-le" if head[1::2].count(0) >= head[0::2].count(0) else "utf-16-be"
        return raw.decode(order, errors="replace")
    return raw.decode("utf-8-sig", errors="replace")


def read_lines(path: Path, source: str, *, year: int | None = None) -> list[Line]:
    """The lines of a log.  InputError for a file that cannot be read or holds no text.  year: of clocks that leave it out."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise InputError(f"{path}: expected a log of at most {MOST_BYTES >> 20} MiB, found {size >> 20} MiB")
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: expected a log file, found: {error.strerror}") from None
    text = decode(raw)
    if text.count("\0") > len(text) // 20 or text.count("\ufffd") > len(text) // 10 + 2:
        raise InputError(f"{path}: expected text in UTF-8 or UTF-16, found other bytes")
    return [Line(source, i, line.rstrip(), clock(line, year)) for i, line in enumerate(text.splitlines(), 1)]


def clock(line: str, year: int | None = None) -> float | None:
    """Seconds since the epoch of the first wall clock in a line; a clock without a zone is taken as UTC."""
    found = _ISO.search(line[:64])
    if found:
        when = datetime.fromisoformat(f"{found[1]}T{found[2]}{(found[4] or '+00:00').replace('Z', '+00:00')}")
        return when.timestamp() + float(f"0.{found[3] or 0}")
    found = _DMESG_T.search(line[:40])
    if found:
        return (
            datetime.strptime(f"{found[1]} {found[2]} {found[3]} {found[4]}", "%b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
        )
    found = _SYSLOG.match(line)
    if found and year is not None:
        return datetime.strptime(f"{found[1]} {found[2]} {found[3]} {year}", "%b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    return None


def has_boot_clock(line: str) -> bool:
    """Whether a kernel line counts from boot alone, which no engine log can be joined with."""
    return _BOOT.match(line) is not None
