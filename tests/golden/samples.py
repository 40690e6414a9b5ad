"""Small runs for the store, without an engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edge0verify.dump.reader import open_dump
from edge0verify.golden.types import Inputs, Recorded, Rules
from tests.dump.samples import make


def recorded(dump: Path, **changes) -> Recorded:
    """What the store is handed for a dump."""
    with open_dump(dump) as opened:
        whole = sum(info.nbytes for info in opened.arrays.values())
        run = Recorded(n=0, time="", dump="", bytes=0, whole_bytes=whole, inputs=Inputs(), manifest=opened.manifest, rules=Rules(),
                       top8=None, conforming=True)  # fmt: skip
    return replace(run, **changes)


def small(path: Path, seed: int = 0, **options) -> Path:
    """A dump of a few rows, other bytes for each seed."""
    path.unlink(missing_ok=True)
    make(path, tokens=3, seed=seed, **options)
    return path
