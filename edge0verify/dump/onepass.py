"""Comparison of two tensors of one dtype and shape in one pass over memory, or over two files.

The work is done by the compiled module `_onepass` (kernels/compare/): nothing there depends on threads, on the instruction set
or on the sizes of the pieces read, so a tensor compared from a file gives the same numbers as one compared in memory.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edge0verify.dump.extents import Extents, extents
from edge0verify.records.errors import InputError

CODE_DIFFERENCES = np.arange(-255, 256)
"""The differences a - b that the entries of `TensorDiff.code_histogram` count."""
PIECE_BYTES = 8 << 20
"""Bytes of each tensor in one piece of `compare_datasets`; three pieces of both are in memory at a time."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """A maximum over the elements and the first flat index where it stands (None while nothing exceeds zero)."""

    value: float | int
    index: int | None


@dataclass(frozen=True, kw_only=True)
class TensorDiff:
    """What two tensors of one dtype and shape have in common. A pair counts for sums and maxima when both sides are finite."""

    dtype: str
    shape: tuple[int, ...]
    n: int
    equal: int
    """Same bits (NaNs of any payload are equal unless asked otherwise); -0 and +0 differ."""
    finite: int
    nan_a: int
    nan_b: int
    inf_a: int
    inf_b: int
    nan_both: int
    """NaN in the same place on both sides."""
    unlike: int
    """Pairs with something not finite that is not the same on both sides: a NaN or infinity against anything else."""
    first_unequal: int | None
    first_unlike: int | None
    sum_a: float
    sum_b: float
    sum_aa: float
    sum_bb: float
    sum_ab: float
    sum_dd: float
    max_abs: Peak
    """Largest |a - b|, formed in float64."""
    max_rel: Peak
    """Largest |a - b| / max(|a|, |b|)."""
    max_ulp: Peak
    """Largest number of representable steps between a and b; integers: their difference; -0 and +0 are one value."""
    code_histogram: np.ndarray | None
    """int64 [511] counts of a - b = -255..255; int8 tensors only."""
    ulp_histogram: np.ndarray | None
    """int64 [65] counts over finite pairs: entry 0 distance 0, entry k distances 2^(k-1) <= d < 2^k; None unless asked for."""

    @property
    def differing(self) -> int:
        return self.n - self.equal

    @property
    def equal_pct(self) -> float | None:
        return 100.0 * self.equal / self.n if self.n else None

    @property
    def max_code_diff(self) -> int | None:
        return int(self.max_abs.value) if self.code_histogram is not None else None

    @property
    def rel_l2(self) -> float | None:
        """|a - b| / |b| over finite pairs; None without any, infinity where b is all zero and a is not."""
        if not self.finite:
            return None
        if self.sum_dd == 0.0:
            return 0.0
        return float(np.sqrt(self.sum_dd / self.sum_bb)) if self.sum_bb else float("inf")

    @property
    def corr(self) -> float | None:
        """Pearson correlation over finite pairs; None where a side is constant. Reported, never a criterion."""
        if not self.finite:
            return None
        va = self.sum_aa - self.sum_a * self.sum_a / self.finite
        vb = self.sum_bb - self.sum_b * self.sum_b / self.finite
        if not (va > 0.0 and vb > 0.0):
            return None
        c = (self.sum_ab - self.sum_a * self.sum_b / self.finite) / (np.sqrt(va) * np.sqrt(vb))
        return float(np.clip(c, -1.0, 1.0)) if np.isfinite(c) else None


def dtype_name(dtype: np.dtype) -> str | None:
    """'f32', 'f16', 'bf16', 'f64', 'i8' or 'i32' for a numpy dtype; None for any other."""
    dtype = np.dtype(dtype)
    if dtype.name == "bfloat16":
        return "bf16"
    if dtype.byteorder == ">":
        return None
    return {"float32": "f32", "float16": "f16", "float64": "f64", "int8": "i8", "int32": "i32"}.get(dtype.name)


def default_threads() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class OnePass:
    """Running comparison: feed pieces of both tensors in order, then take `result`."""

    def __init__(
        self, dtype: str, *, nan_equal: bool = True, ulp_histogram: bool = False, threads: int | None = None, isa: str = ""
    ) -> None:
        """dtype: a name of `dtype_name`; isa: '' for the fastest usable one. ValueError for a name that is not built."""
        from edge0verify.dump import _onepass

        self.dtype = dtype
        self._native = _onepass.Accumulator(
            dtype, nan_equal=nan_equal, ulp_histogram=ulp_histogram, threads=threads or default_threads(), isa=isa
        )

    def update(self, a: np.ndarray, b: np.ndarray) -> None:
        """The next elements of both sides: C-contiguous arrays of one byte size."""
        self._native.update(_raw(a), _raw(b))

    def update_files(self, a: Extents, b: Extents) -> None:
        """Two whole datasets, as the only input. RuntimeError where a file ends too early."""
        handles = [os.open(side.filename, os.O_RDONLY) for side in (a, b)]
        try:
            self._native.update_files(handles[0], a.first, a.offset, handles[1], b.first, b.offset)
        finally:
            for handle in handles:
                os.close(handle)

    def result(self, shape: tuple[int, ...] | None = None) -> TensorDiff:
        """What was seen so far; `shape` is only recorded."""
        found = self._native.result()
        peaks = {name: Peak(value=found[name][0], index=found[name][1]) for name in ("max_abs", "max_rel", "max_ulp")}
        tables = {
            name: np.array(found[name], dtype=np.int64) if name in found else None for name in ("code_histogram", "ulp_histogram")
        }
        return TensorDiff(dtype=self.dtype, shape=tuple(shape or (found["n"],)), **{**found, **peaks, **tables})


def _raw(x: np.ndarray) -> np.ndarray:
    x = np.require(x, requirements=["C", "A"])
    return x.reshape(-1).view(np.uint8) if x.size else np.empty(0, np.uint8)


def _common_dtype(a, b, name: str) -> str:
    if a.shape != b.shape:
        raise InputError(f"{name}: expected the same shape on both sides, found {tuple(a.shape)} and {tuple(b.shape)}")
    kinds = [dtype_name(x.dtype) for x in (a, b)]
    if kinds[0] is None or kinds[0] != kinds[1]:
        raise InputError(f"{name}: expected one of f32, f16, bf16, f64, i8, i32 on both sides, found {a.dtype} and {b.dtype}")
    return kinds[0]


def compare_arrays(
    a: np.ndarray,
    b: np.ndarray,
    *,
    dtype: str | None = None,
    name: str = "tensor",
    nan_equal: bool = True,
    ulp_histogram: bool = False,
    threads: int | None = None,
    isa: str = "",
) -> TensorDiff:
    """Compare two arrays of one shape and dtype.

    dtype: 'bf16' reads uint16 arrays as bfloat16 bits; by default the arrays' own. threads: by default every processor this
    process may use; the result never depends on it. InputError names `name` where shapes or dtypes are unlike.
    """
    if dtype == "bf16" and a.dtype == np.uint16 and b.dtype == np.uint16 and a.shape == b.shape:
        kind = "bf16"
    else:
        kind = _common_dtype(a, b, name)
        if dtype not in (None, kind):
            raise InputError(f"{name}: expected {dtype}, found {kind}")
    run = OnePass(kind, nan_equal=nan_equal, ulp_histogram=ulp_histogram, threads=threads, isa=isa)
    run.update(a, b)
    return run.result(a.shape)


def compare_datasets(
    a,
    b,
    *,
    dtype: str | None = None,
    name: str | None = None,
    nan_equal: bool = True,
    ulp_histogram: bool = False,
    threads: int | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> TensorDiff:
    """Compare two HDF5 datasets of one shape and dtype in bounded memory.

    Datasets that lie plainly in their files are read by the comparing threads themselves; for others, compressed ones say, a
    thread reads ahead through HDF5 while pieces are compared. Hashes are not checked here (`Dump.verify` does that). Arguments as
    in `compare_arrays`; InputError where a file cannot be read.
    """
    name = name or f"{a.file.filename}:{a.name}"
    if dtype == "bf16" and a.dtype == np.uint16 and b.dtype == np.uint16 and a.shape == b.shape:
        kind = "bf16"
    else:
        kind = _common_dtype(a, b, name)
    run = OnePass(kind, nan_equal=nan_equal, ulp_histogram=ulp_histogram, threads=threads)
    places = [extents(side) for side in (a, b)]
    try:
        if None not in places:
            run.update_files(*places)
        else:
            with ReadAhead((a, b), piece_bytes=piece_bytes) as pieces:
                for pa, pb in pieces:
                    run.update(pa, pb)
    except (OSError, RuntimeError) as wrong:
        raise InputError(f"{name}: cannot be read: {' '.join(str(wrong).split())[:160]}") from None
    return run.result(a.shape)


class ReadAhead:
    """Row pieces of datasets of one shape, read by a thread into three sets of buffers that are used in turn.

    A yielded tuple of arrays is valid until the next one is asked for.
    """

    def __init__(self, datasets, *, piece_bytes: int = PIECE_BYTES, buffers: int = 3) -> None:
        self._datasets = datasets
        first = datasets[0]
        self._rows = first.shape[0] if first.shape else 0
        row_bytes = max(1, first.dtype.itemsize * int(np.prod(first.shape[1:], dtype=np.int64)))
        step = max(1, piece_bytes // row_bytes)
        chunk = first.chunks[0] if first.chunks else 1
        self._step = max(1, min(-(-step // chunk) * chunk, max(self._rows, 1)))
        self._free: queue.SimpleQueue = queue.SimpleQueue()
        self._ready: queue.SimpleQueue = queue.SimpleQueue()
        for _ in range(min(buffers, -(-self._rows // self._step))):
            self._free.put(tuple(np.empty((self._step, *d.shape[1:]), d.dtype) for d in datasets))
        self._stop = False
        self._thread = threading.Thread(target=self._read, name="read-ahead", daemon=True)

    def __enter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        self._thread.start()
        return self._pieces()

    def __exit__(self, *exc) -> None:
        self._stop = True
        self._free.put(None)
        self._thread.join()

    def _read(self) -> None:
        try:
            for at in range(0, self._rows, self._step):
                buffers = self._free.get()
                if self._stop:
                    return
                m = min(self._step, self._rows - at)
                for dataset, buffer in zip(self._datasets, buffers):
                    dataset.read_direct(buffer, np.s_[at : at + m], np.s_[:m])
                self._ready.put((buffers, m))
            self._ready.put(None)
        except BaseException as wrong:
            self._ready.put(wrong)

    def _pieces(self):
        while (got := self._ready.get()) is not None:
            if isinstance(got, BaseException):
                raise got
            buffers, m = got
            yield tuple(buffer[:m] for buffer in buffers)
            self._free.put(buffers)
