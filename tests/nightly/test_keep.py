"""What is removed from the disk is decided from ages and sizes alone."""

import os
from pathlib import Path

import pytest

from edge0verify.nightly.config import Keep
from edge0verify.nightly.keep import Item, items, prune, to_remove

DAY = 86400.0
NIGHTS = [Item(Path(f"run-{n:05d}"), 100, n * DAY) for n in range(10)]


@pytest.mark.parametrize(
    ("days", "size", "current", "gone"),
    [(30, 10**9, None, []), (3.5, 10**9, None, range(6)), (30, 350, None, range(7)), (30, 0, 9, range(9)), (0, 0, 9, range(9)),
     (30, 0, None, range(10)), (3.5, 250, 9, range(8)), (30, 350, 0, range(1, 8))],
)  # fmt: skip
def test_the_oldest_go_first_and_the_current_never(days, size, current, gone):
    here = None if current is None else NIGHTS[current].path
    assert to_remove(NIGHTS, Keep(days=days, bytes=size), now=9 * DAY, current=here) == [NIGHTS[n].path for n in gone]


def test_only_nights_are_removed(tmp_path):
    for name, age in (("run-00001", 9), ("run-00002", 0), ("other", 9)):
        folder = tmp_path / name / "cell"
        folder.mkdir(parents=True)
        (folder / "dump.h5").write_bytes(b"x" * 1000)
        os.utime(tmp_path / name, (folder.stat().st_mtime - age * DAY,) * 2)
    (tmp_path / "history.db").write_text("kept")
    assert [item.bytes for item in items(tmp_path)] == [1000, 1000]
    assert prune(tmp_path, Keep(days=3)) == [tmp_path / "run-00001"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["history.db", "other", "run-00002"]
