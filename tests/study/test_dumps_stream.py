"""A large tensor that nothing can judge: the same counts as when it is read whole, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge0verify.dump.foreign import foreign_manifest
from edge0verify.dump.writer import DumpWriter
from edge0verify.numerics.blocks import Blocks
from edge0verify.study import dump_stream
from edge0verify.study.dumps import DumpRequest, compare_dumps


def write(path: Path, tensors: dict, time: str) -> Path:
    with DumpWriter(path, manifest=replace(foreign_manifest(), time=time)) as made:
        for name, value in tensors.items():
            made.write(0, name, value)
    return path


@pytest.fixture
def pair(tmp_path):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, 64)).astype(np.float32)
    y = x.copy()
    y[7, 3] += 1
    y[9] = np.nextafter(y[9], 9)
    codes = rng.integers(-127, 128, (300, 64)).astype(np.int8)
    other = codes.copy()
    other[5, 5] -= np.sign(codes[5, 5]) or 1
    d = np.ones((300, 2), np.float16)
    a = write(tmp_path / "a.h5", {"a-yl": x, "a-h": Blocks(codes, d, None, "mmvq")}, "one")
    b = write(tmp_path / "b.h5", {"a-yl": y, "a-h": Blocks(other, d, None, "mmvq")}, "two")
    return a, b


def entries(pair) -> dict:
    found = compare_dumps(DumpRequest(a=pair[0], b=pair[1], threads=2))
    assert found.status == "INCONCLUSIVE"
    return {r.tensor: r for r in found.layers}


def test_the_counts_are_those_of_the_whole(pair, monkeypatch):
    whole = entries(pair)
    monkeypatch.setattr(dump_stream, "LARGE", 1)
    once = entries(pair)
    assert set(once) == set(whole) == {"a-yl", "a-h", "a-h.d"}
    for name, a in whole.items():
        b = once[name]
        assert (a.n, a.equal, a.causes, a.status, a.code_diffs, a.max_code_diff) == (
            b.n, b.equal, b.causes, b.status, b.code_diffs, b.max_code_diff), name
    assert once["a-yl"].max_abs == whole["a-yl"].max_abs and once["a-yl"].rel_l2 == pytest.approx(whole["a-yl"].rel_l2)
    assert once["a-yl"].causes == {"equal": 300 * 64 - 65, "loose": 65}


def test_nan_on_one_side_fails_and_on_both_proves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(dump_stream, "LARGE", 1)
    x = np.ones((40, 64), np.float32)
    bad = x.copy()
    bad[3, 4] = np.nan
    clean, once, again = (write(tmp_path / f"{n}.h5", {"a-yl": v}, str(n)) for n, v in enumerate((x, bad, bad)))
    assert compare_dumps(DumpRequest(a=clean, b=once)).status == "FAIL"
    found = compare_dumps(DumpRequest(a=once, b=again))
    assert found.status == "INCONCLUSIVE" and found.layers[0].causes == {"nonfinite": 1, "equal": 40 * 64 - 1}


def test_memory_stays_bounded(tmp_path):
    """Two dumps of 256 MiB each, one tensor: far below what one of them takes."""
    code = f"""
import numpy as np
from tests.memory import peak_kib
from tests.study.test_dumps_stream import foreign_manifest, replace, DumpWriter, DumpRequest, compare_dumps
for name in "ab":
    with DumpWriter({str(tmp_path)!r} + "/" + name + ".h5", manifest=replace(foreign_manifest(), time=name)) as made:
        for i in range(64):
            made.write(0, "a-yl", np.full((1024, 1024), i if name == "a" else i + i % 2, np.float32))
base = peak_kib()
found = compare_dumps(DumpRequest(a={str(tmp_path)!r} + "/a.h5", b={str(tmp_path)!r} + "/b.h5", threads=2))
assert found.layers[0].n == 1 << 26 and found.layers[0].causes == {{"equal": 1 << 25, "loose": 1 << 25}}, found.layers
print(peak_kib() - base)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100 * 1024
