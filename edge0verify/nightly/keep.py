"""What stays on the disk: past nights with the dumps of failures, until they are too old or too many. The history stays."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from edge0verify.nightly.config import Keep


@dataclass(frozen=True)
class Item:
    path: Path
    bytes: int
    time: float


def items(out: Path) -> list[Item]:
    """Folders of nights below `out`, oldest first."""
    found = [Item(p, _size(p), p.stat().st_mtime) for p in out.glob("run-*") if p.is_dir()]
    return sorted(found, key=lambda item: (item.time, item.path.name))


def to_remove(found: list[Item], keep: Keep, *, now: float, current: Path | None) -> list[Path]:
    """A decision from values: nights older than `days`, then the oldest until all is within `bytes`; never the current one."""
    old = [item for item in found if now - item.time > keep.days * 86400 and item.path != current]
    rest = [item for item in found if item not in old]
    total = sum(item.bytes for item in rest)
    for item in rest:
        if total <= keep.bytes:
            break
        if item.path != current:
            old.append(item)
            total -= item.bytes
    return [item.path for item in old]


def prune(out: Path, keep: Keep, *, current: Path | None = None) -> list[Path]:
    """Remove what is to go; the folders removed."""
    gone = to_remove(items(out), keep, now=time.time(), current=current)
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return gone


def _size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
