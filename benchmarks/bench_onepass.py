"""Time of the one-pass comparison beside memcmp, numpy, h5py, h5diff and Polygraphy, in one run.

    python benchmarks/bench_onepass.py                       two tensors of 512 MiB in memory
    python benchmarks/bench_onepass.py --h5                  and from two dumps on disk
    python benchmarks/bench_onepass.py --dump-gib 16         two dumps of 16 GiB really written and compared; peak memory
    python benchmarks/bench_onepass.py --json out.json       figures as data too

Every figure is the best of --repeat. The yardstick in memory is one thread's memcmp of two equal tensors of that size; from files,
the time h5py takes to read both into buffers that exist already. Exit 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from edge0verify.dump.onepass import PIECE_BYTES, compare_arrays, compare_datasets, default_threads
from edge0verify.dump.reader import open_dump
from edge0verify.dump.writer import DumpWriter
from edge0verify.records.manifest import DeviceInfo, EngineInfo, Manifest, PromptInfo, Signature

COLUMNS = 1024
TARGETS = {"in memory": 3.0, "in memory, ulp histogram": 4.0, "from HDF5": 1.5}


@dataclass(frozen=True)
class Figure:
    name: str
    seconds: float
    ratio: float | None
    target: float | None = None

    @property
    def missed(self) -> bool:
        return self.target is not None and self.ratio > self.target


def best(run, repeat: int) -> float:
    spent = []
    for _ in range(repeat):
        begin = time.perf_counter()
        run()
        spent.append(time.perf_counter() - begin)
    return min(spent)


def tensors(mebibytes: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pairs that differ in every element: by rounding, and altogether."""
    n = (mebibytes << 20) // 4
    rng = np.random.default_rng(1)
    a = np.resize(rng.standard_normal(min(n, 1 << 24), dtype=np.float32), n)
    steps = np.resize(rng.integers(1, 1000, min(n, 1 << 24), dtype=np.int32), n)
    near = (a.view(np.int32) + steps).view(np.float32)
    far = np.resize(rng.standard_normal(min(n, (1 << 24) - 77), dtype=np.float32), n)
    return {"rounding": (a, near), "unrelated": (a, far)}


def memcmp_seconds(a: np.ndarray, repeat: int) -> float:
    libc = ctypes.CDLL(None)
    libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    b = a.copy()
    return best(lambda: libc.memcmp(a.ctypes.data, b.ctypes.data, a.nbytes), max(repeat, 5))


def numpy_figures(a: np.ndarray, b: np.ndarray) -> tuple:
    """The same figures as plain numpy expressions."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    d = np.abs(x - y)
    rel = d / np.maximum(np.maximum(np.abs(x), np.abs(y)), 5e-324)
    ia, ib = a.view(np.int32).astype(np.int64), b.view(np.int32).astype(np.int64)
    ulp = np.abs(np.where(ia < 0, -(2**31) - ia, ia) - np.where(ib < 0, -(2**31) - ib, ib))
    finite = np.isfinite(a) & np.isfinite(b)
    sums = [v.sum() for v in (x, y, x * x, y * y, x * y, d * d)]
    return (ia == ib).sum(), d.argmax(), rel.argmax(), ulp.argmax(), finite.sum(), sums


def polygraphy_run(a: np.ndarray, b: np.ndarray):
    try:
        from polygraphy.comparator import IterationResult, SimpleCompareFunc
        from polygraphy.logger import G_LOGGER
    except ImportError:
        return None
    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    one, two = IterationResult(outputs={"x": a}), IterationResult(outputs={"x": b})
    return lambda: SimpleCompareFunc(check_error_stat="max")(one, two)


def in_memory(mebibytes: int, repeat: int, others: bool) -> list[Figure]:
    pairs = tensors(mebibytes)
    unit = memcmp_seconds(pairs["rounding"][0], repeat)
    figures = [Figure(f"memcmp of 2 x {mebibytes} MiB, one thread", unit, 1.0)]
    for kind, (a, b) in pairs.items():
        for name, histogram in (("in memory", False), ("in memory, ulp histogram", True)):
            spent = best(lambda a=a, b=b, h=histogram: compare_arrays(a, b, ulp_histogram=h), repeat)
            figures.append(Figure(f"edge0verify {name} ({kind})", spent, spent / unit, TARGETS[name]))
    a, b = pairs["rounding"]
    spent = best(lambda: compare_arrays(a, b, threads=1), repeat)
    figures.append(Figure("edge0verify in memory, one thread (rounding)", spent, spent / unit))
    if others:
        spent = best(lambda: numpy_figures(a, b), 1)
        figures.append(Figure("numpy", spent, spent / unit))
        compare = polygraphy_run(a, b)
        spent = best(compare, 1) if compare else None
        figures.append(Figure("Polygraphy" + ("" if compare else ": not run, not installed"), spent or 0.0, spent and spent / unit))
    return figures


def manifest() -> Manifest:
    nothing = Signature(tensors=(), layers=(), rows=0)
    return Manifest(
        engine=EngineInfo(name="bench"), device=DeviceInfo(name="cpu"), prompt=PromptInfo(), signature=nothing, level="full",
        time="2026-01-01T00:00:00+00:00", launches={},
    )


def write_dump(path: Path, mebibytes: int, shift: float) -> float:
    """A dump of one f32 tensor; the seconds it took."""
    rows = 16384
    x = np.random.default_rng(1).standard_normal((rows, COLUMNS), dtype=np.float32)
    begin = time.perf_counter()
    with DumpWriter(path, manifest=manifest(), overwrite=True) as w:
        for at in range(0, (mebibytes << 20) // 4 // COLUMNS, rows):
            w.write(0, "u", x[: min(rows, (mebibytes << 20) // 4 // COLUMNS - at)] + np.float32(shift + at))
    return time.perf_counter() - begin


def read_pieces(dataset, buffer: np.ndarray) -> None:
    for at in range(0, dataset.shape[0], len(buffer)):
        m = min(len(buffer), dataset.shape[0] - at)
        dataset.read_direct(buffer, np.s_[at : at + m], np.s_[:m])


def from_files(folder: Path, mebibytes: int, repeat: int, others: bool, unit: float | None) -> list[Figure]:
    paths = [folder / "a.h5", folder / "b.h5"]
    written = sum(write_dump(path, mebibytes, shift) for path, shift in zip(paths, (0.0, 2.0**-10)))
    figures = [Figure(f"writing two dumps of {mebibytes} MiB, hashed and synced", written, None)]
    buffer = np.empty((PIECE_BYTES // 4 // COLUMNS, COLUMNS), np.float32)
    with open_dump(paths[0], verify=False) as a, open_dump(paths[1], verify=False) as b:
        sides = [dump.dataset(0, "u") for dump in (a, b)]
        reading = best(lambda: [read_pieces(side, buffer) for side in sides], repeat)
        figures.append(Figure("h5py reading both, in pieces into one buffer", reading, 1.0))
        if mebibytes <= 1024:
            whole = best(lambda: [side[...] for side in sides], repeat)
            figures.append(Figure("h5py reading both into new arrays", whole, whole / reading))
        spent = best(lambda: compare_datasets(*sides), repeat)
        figures.append(Figure("edge0verify from HDF5", spent, spent / reading, TARGETS["from HDF5"]))
        spent = best(lambda: [dump.verify() for dump in (a, b)], 1)
        figures.append(Figure("holding both against their sha256", spent, spent / reading))
    if others and (tool := shutil.which("h5diff")):
        spent = best(lambda: subprocess.run([tool, "-d", "1", *paths], check=False, stdout=subprocess.DEVNULL), 1)
        figures.append(Figure("h5diff", spent, spent / reading))
        if unit:
            figures.append(Figure("h5diff, in units of memcmp", spent, spent / unit))
    elif others:
        figures.append(Figure("h5diff: not run, not installed", 0.0, None))
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=512, metavar="MIB", help="size of one tensor")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--h5", action="store_true", help="compare from two dumps as well")
    parser.add_argument("--dump-gib", type=int, metavar="GIB", help="only: write two dumps of this size and compare them once")
    parser.add_argument("--dir", type=Path, help="folder for the dumps (default: a temporary one)")
    parser.add_argument("--no-others", action="store_true", help="leave numpy, Polygraphy and h5diff out")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(dir=chosen.dir) as folder:
        if chosen.dump_gib:
            figures += from_files(Path(folder), chosen.dump_gib * 1024, 1, False, None)
        else:
            figures += in_memory(chosen.size, chosen.repeat, not chosen.no_others)
            if chosen.h5:
                figures += from_files(Path(folder), chosen.size, chosen.repeat, not chosen.no_others, figures[0].seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:9.2f}"
        target = "" if figure.target is None else f"  target {figure.target:g}{'  MISSED' if figure.missed else ''}"
        print(f"{figure.name:62s}{figure.seconds:9.3f} s{ratio}{target}")
    print(f"peak resident memory {peak:.0f} MiB, {default_threads()} threads")
    missed = any(figure.missed for figure in figures)
    if chosen.dump_gib and peak >= 1024:
        print("peak resident memory: MISSED, target under 1024 MiB")
        missed = True
    if chosen.json:
        rows = [{"name": f.name, "seconds": f.seconds, "ratio": f.ratio, "target": f.target} for f in figures]
        chosen.json.write_text(json.dumps({"figures": rows, "peak_mib": peak, "threads": default_threads()}, indent=1) + "\n")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
