"""GMAC/s of each variant and stage on one core, beside ggml's vec_dot on the same weights in the same run.

    python benchmarks/bench_kernels.py [--tokens N] [--repeat N] [--isa NAME] [--json FILE]

Ours is the whole call: activation quantisation and packing, the product, SwiGLU and the expert sum where the stage has them.
ggml's is the dots alone, its activations quantised beforehand.  The two are timed in turn, the least of `--repeat` each.
Two shapes: the model's own rows, and the same weight blocks, repeated as needed, as 256 rows of 2048 values.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tabulate import tabulate

from edge0verify.model import load_model
from edge0verify.numerics.formats import FORMATS
from edge0verify.study.environment import processor
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.registry import VARIANTS

WIDE = 2048
TARGET = {"mmvq": 1.0, "mmq": 1.5, "w11": 1.5}
DOT = {
    "Q8_0": ("ggml_vec_dot_q8_0_q8_0", "quantize_row_q8_0", 34, 32),
    "IQ4_NL": ("ggml_vec_dot_iq4_nl_q8_0", "quantize_row_q8_0", 34, 32),
    "Q3_K": ("ggml_vec_dot_q3_K_q8_K", "quantize_row_q8_K", 292, 256),
}
"""Format -> its dot, the quantiser of the other side, and bytes and values of that side's block."""


class Ggml:
    """ggml's host dots, through a loop in C that is compiled for this run."""

    def __init__(self, folder: Path) -> None:
        import libggml

        libraries = Path(libggml.__file__).parent
        for name in ("libggml-base.so", "libggml-cpu.so"):
            self.cpu = ctypes.CDLL(str(next(libraries.rglob(name))), mode=ctypes.RTLD_GLOBAL)
        self.cpu.ggml_cpu_init()                        # fills the f16 table that the dots read
        compiler = shutil.which("cc") or shutil.which("g++")
        source = Path(__file__).with_name("vec_dot_loop.c")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", folder / "loop.so", source], check=True)
        self.loop = ctypes.CDLL(str(folder / "loop.so")).vec_dot_loop

    def dots(self, fmt: str, raw: np.ndarray, k: int, x: np.ndarray):
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


@dataclass
class Line:
    shape: str
    stage: str
    variant: str
    fmt: str
    ours: float
    ggml: float | None


def least(runs: dict[str, object], repeat: int) -> dict[str, float]:
    """Least seconds of each run, the runs taking turns."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeat + 1):                          # the first round warms up
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def rewidth(raw: np.ndarray, fmt: str, k: int) -> np.ndarray:
    """The same blocks as rows of k values."""
    row = k // FORMATS[fmt].values * FORMATS[fmt].bytes
    flat = raw.reshape(-1)
    return np.ascontiguousarray(flat[: len(flat) // row * row].reshape(-1, row))


def stage_runs(kernels: Kernels, stage: str, fmt: str, raw: np.ndarray, k: int, tokens: int, slots: int, rng):
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


def measure(model, kernels: Kernels, ggml: Ggml | None, tokens: int, repeat: int) -> list[Line]:
    rng = np.random.default_rng(1)
    layer = [("D", model.tensor("latent_down.weight"), 1), ("A1", model.layer(0, "ffn_gate_exps"), model.config.k),
             ("A2", model.layer(0, "ffn_down_exps"), model.config.k), ("U", model.tensor("latent_up.weight"), 1)]
    lines = []
    for wide in (False, True):
        for stage, tensor, slots in layer:
            raw, k, route = np.ascontiguousarray(tensor.raw), tensor.shape[-1], slots
            raw = raw[None] if raw.ndim == 2 else raw
            if wide:
                raw, k, route = rewidth(raw, tensor.fmt, WIDE)[None], WIDE, 1
                raw = np.tile(raw, (1, -(-256 // raw.shape[1]), 1))[:, :256]
            runs, products, x = stage_runs(kernels, stage, tensor.fmt, raw, k, tokens, route, rng)
            if ggml:                                     # as many dots of the same experts' rows as fill the same time
                part = x[: max(16, tokens // raw.shape[0])]
                runs["ggml"] = ggml.dots(tensor.fmt, raw.reshape(-1, raw.shape[-1]), k, part)
                other = len(part) * raw.shape[0] * raw.shape[1] * k
            seconds = least(runs, repeat)
            theirs = other / seconds.pop("ggml") / 1e9 if ggml else None
            label = f"{raw.shape[0]}x{raw.shape[1]}x{k}"
            lines += [Line(label, stage, v, tensor.fmt, products / s / 1e9, theirs) for v, s in seconds.items()]
    return lines


def packing(kernels: Kernels, tokens: int, repeat: int) -> list[tuple[str, float]]:
    """Activation quantisation alone, in 10^9 values a second."""
    x = np.random.default_rng(2).standard_normal((tokens, 384)).astype(np.float32)
    seconds = least({q: lambda q=q: kernels.quantise(q, x) for q in ("mmvq", "mmq")}, repeat)
    return [(q, x.size / s / 1e9) for q, s in seconds.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--isa", default=None)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    kernels = Kernels(isa=options.isa, threads=1)
    with tempfile.TemporaryDirectory() as folder:
        try:
            ggml = Ggml(Path(folder))
        except ImportError:
            ggml = None
            print("ggml: not run: libggml-python is not installed (pip install 'edge0verify[bench]')")
        lines = measure(load_model(), kernels, ggml, options.tokens, options.repeat)
    rows = []
    for n in lines:
        ratio = n.ours / n.ggml if n.ggml else None
        aim = TARGET.get(n.variant)
        met = "" if ratio is None or aim is None else f"{aim:.1f} {'met' if ratio >= aim else 'MISSED'}"
        theirs = (f"{n.ggml:.1f}", f"{ratio:.2f}") if n.ggml else ("-", "-")
        rows.append((n.shape, n.stage, n.variant, n.fmt, f"{n.ours:.1f}", *theirs, met))
    print(f"{processor()}, one core, {kernels.isa}, {options.tokens} tokens, least of {options.repeat}")
    headers = ("experts x rows x K", "stage", "variant", "format", "GMAC/s", "ggml", "ratio", "target")
    print(tabulate(rows, headers, disable_numparse=True))
    for name, rate in packing(kernels, options.tokens, options.repeat):
        print(f"quantiser {name}: {rate:.2f} G values/s (included above)")
    if options.json:
        options.json.write_text(json.dumps([vars(n) for n in lines], indent=1) + "\n")


if __name__ == "__main__":
    main()
