"""Speed of each variant and stage on this processor, beside ggml's vec_dot on the same weights in the same run.

Ours is the whole call on one core: activation quantisation and packing, the product, SwiGLU and the expert sum where the stage has
them.  ggml's is the dots alone, its activations quantised beforehand.  The two are timed in turn.  Two shapes: the model's own
rows, and the same weight blocks, repeated as needed, as 256 rows of 2048 values.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edge0verify.model import Model, load_model
from edge0verify.numerics.formats import FORMATS
from edge0verify.runtime.sources import kernel_folder
from edge0verify.study.environment import describe_kernels
from edge0verify.study.speed import SpeedReport, SpeedRow, median_and_spread
from edge0verify.study.speed_prefill import prefill_shares
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.registry import VARIANTS

WIDE = 2048
DOT = {
    "Q8_0": ("ggml_vec_dot_q8_0_q8_0", "quantize_row_q8_0", 34, 32),
    "IQ4_NL": ("ggml_vec_dot_iq4_nl_q8_0", "quantize_row_q8_0", 34, 32),
    "Q3_K": ("ggml_vec_dot_q3_K_q8_K", "quantize_row_q8_K", 292, 256),
}
"""Format -> its dot, the quantiser of the other side, and bytes and values of that side's block."""
Run = Callable[[], Any]


class NoGgml(RuntimeError):
    """Why ggml is not measured beside the kernels."""


class Ggml:
    """ggml's host dots, through a loop in C that is compiled for this run."""

    def __init__(self, folder: Path) -> None:
        try:
            import libggml
        except ImportError:
            raise NoGgml("libggml-python is not installed (pip install 'edge0verify[bench]')") from None
        compiler = shutil.which("cc") or shutil.which("g++")
        if compiler is None:
            raise NoGgml("no C compiler for the loop round its dots")
        libraries = Path(libggml.__file__).parent
        for name in ("libggml-base.so", "libggml-cpu.so"):
            self.cpu = ctypes.CDLL(str(next(libraries.rglob(name))), mode=ctypes.RTLD_GLOBAL)
        self.cpu.ggml_cpu_init()                        # fills the f16 table that the dots read
        source = kernel_folder() / "bench" / "vec_dot_loop.c"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", folder / "loop.so", source], check=True)
        self.loop = ctypes.CDLL(str(folder / "loop.so")).vec_dot_loop

    def dots(self, fmt: str, raw: np.ndarray, k: int, x: np.ndarray) -> Run:
        """A function that forms all dots of raw [rows, bytes] with x [n, k] once."""
        name, quantise, size, values = DOT[fmt]
        acts = np.empty((len(x), k // values * size), np.uint8)
        for row, out in zip(x, acts):
            getattr(self.cpu, quantise)(row.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(k))
        result = np.empty((len(x), len(raw)), np.float32)
        pointer = ctypes.cast(getattr(self.cpu, name), ctypes.c_void_p)
        w, a, out = (array.ctypes.data_as(ctypes.c_void_p) for array in (raw, acts, result))
        row_bytes, act_bytes = (ctypes.c_size_t(array.shape[1]) for array in (raw, acts))
        keep = (raw, acts, result)                       # the pointers do not
        return lambda: (self.loop(pointer, k, w, row_bytes, len(raw), a, act_bytes, len(x), out), keep)


def timed(runs: dict[str, Run], repeat: int) -> dict[str, list[float]]:
    """Seconds of each repetition of each run, the runs taking turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(repeat + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if i:                                        # the first round warms up
                times[name].append(time.perf_counter() - start)
    return times


def rewidth(raw: np.ndarray, fmt: str, k: int) -> np.ndarray:
    """The same blocks as rows of k values."""
    row = k // FORMATS[fmt].values * FORMATS[fmt].bytes
    flat = raw.reshape(-1)
    return np.ascontiguousarray(flat[: len(flat) // row * row].reshape(-1, row))


def stage_runs(
    kernels: Kernels, stage: str, fmt: str, raw: np.ndarray, k: int, tokens: int, slots: int, rng: np.random.Generator
) -> tuple[dict[str, Run], int, np.ndarray]:
    """variant -> a call of that stage; the products one call makes; the rows, experts and tokens for ggml."""
    experts, rows = raw.shape[:2]
    names = [v.name for v in VARIANTS if v.stage == stage and fmt in v.formats]
    x = rng.standard_normal((tokens, k)).astype(np.float32)
    ids = np.stack([rng.permutation(experts)[:slots] for _ in range(tokens)]).astype(np.int32)
    w = kernels.pack(fmt, raw if stage in ("A1", "A2") else raw[0])
    pairs = tokens * slots
    if stage in ("D", "U"):
        call = kernels.d if stage == "D" and rows % 32 == 0 else kernels.u
        stage = "D" if call == kernels.d else "U"
        return {v: lambda v=v: call(v, w, x) for v in names}, tokens * rows * k, x
    if stage == "A1":
        xlq = kernels.quantise("mmvq", x)
        return {v: lambda v=v: kernels.a1(v, w, w, x, xlq, ids) for v in names}, 2 * pairs * rows * k, x
    route = rng.random((tokens, slots)).astype(np.float32)
    h = rng.standard_normal((pairs, k)).astype(np.float32)
    blocks = {q: kernels.quantise(q, h) for q in ("mmvq", "mmq")}
    runs = {v: lambda v=v: kernels.a2(v, w, blocks["mmq" if v == "mmq" else "mmvq"], ids, route) for v in names}
    return runs, pairs * rows * k, h


def stage_rows(model: Model, kernels: Kernels, ggml: Ggml | None, tokens: int, repeat: int) -> list[SpeedRow]:
    """Every variant of every stage at both shapes."""
    rng = np.random.default_rng(1)
    layer = [("D", model.tensor("latent_down.weight"), 1), ("A1", model.layer(0, "ffn_gate_exps"), model.config.k),
             ("A2", model.layer(0, "ffn_down_exps"), model.config.k), ("U", model.tensor("latent_up.weight"), 1)]
    found: list[SpeedRow] = []
    for wide in (False, True):
        for stage, tensor, slots in layer:
            raw, k, route = np.ascontiguousarray(tensor.raw), tensor.shape[-1], slots
            raw = raw[None] if raw.ndim == 2 else raw
            if wide:
                raw, k, route = rewidth(raw, tensor.fmt, WIDE)[None], WIDE, 1
                raw = np.tile(raw, (1, -(-256 // raw.shape[1]), 1))[:, :256]
            runs, products, x = stage_runs(kernels, stage, tensor.fmt, raw, k, tokens, route, rng)
            other = 0
            if ggml:                                     # as many dots of the same experts' rows as fill the same time
                part = x[: max(16, tokens // raw.shape[0])]
                runs["ggml"] = ggml.dots(tensor.fmt, raw.reshape(-1, raw.shape[-1]), k, part)
                other = len(part) * raw.shape[0] * raw.shape[1] * k
            times = timed(runs, repeat)
            theirs = other / min(times.pop("ggml")) if ggml else None
            for variant, seconds in times.items():
                _, spread = median_and_spread(seconds)
                rate = products / min(seconds)
                found.append(SpeedRow(
                    part=stage, variant=variant, fmt=tensor.fmt, m=raw.shape[1], n=tokens, k=k, us=1e6 * min(seconds),
                    spread=spread, tops=2 * rate / 1e12, ggml=rate / theirs if theirs else None,
                    note=f"{raw.shape[0]} experts" if raw.shape[0] > 1 else ""))
    return found


def measure(
    *, tokens: int = 1024, repeats: int = 9, isa: str | None = None, model: Model | None = None, prefill: bool = True
) -> SpeedReport:
    """Everything about this processor, one core; the least of `repeats`, since what disturbs a run only adds."""
    kernels = Kernels(isa=isa, threads=1)
    missing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="edge0verify-") as folder:
        try:
            ggml = Ggml(Path(folder))
        except NoGgml as why:
            ggml = None
            missing.append(f"ggml: {why}")
        rows = stage_rows(model or load_model(), kernels, ggml, tokens, repeats)
    shares = prefill_shares(kernels, threads=1) if prefill else None
    return SpeedReport(device=describe_kernels(kernels), rows=tuple(rows), prefill=shares, not_measured=tuple(missing))
