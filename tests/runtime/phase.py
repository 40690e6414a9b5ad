"""The portable kernels' CPU build as a plain shared library through ctypes, compiled on first use."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
POISON = np.uint32(0x7FC0E0E0).view(np.float32)


def build() -> Path | None:
    """Path of the library; None where there is no C++ compiler."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        return None
    sources = sorted(p for folder in ("port", "portable") for p in (KERNELS / folder).glob("*.*"))
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:16]
    out = Path(tempfile.gettempdir()) / f"edge0verify-phase-{os.getuid()}-{digest}.so"
    if not out.exists():
        partial = out.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [
                compiler,
                "-O2",
                "-std=c++17",
                "-fPIC",
                "-shared",
                "-ffp-contract=off",
                "-fno-math-errno",
                "-w",
                f"-I{KERNELS}",
                "-o",
                str(partial),
                str(KERNELS / "portable" / "entries.cpp"),
                "-lpthread",
            ],
            check=True,
        )
        partial.rename(out)
    return out


def pointer(a: np.ndarray | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if a is None else a.ctypes.data)


class Phase:
    """quantise, rows, swiglu, expert sum and exp over numpy arrays; outputs are poisoned first."""

    def __init__(self, threads: int = 2):
        path = build()
        if path is None:
            raise FileNotFoundError("no C++ compiler")
        self._lib = ctypes.CDLL(str(path))
        self.threads = threads
        self.counter = np.zeros(1, np.uint32)

    def _call(self, name: str, *args) -> None:
        converted = [pointer(a) if a is None or isinstance(a, np.ndarray) else a for a in args]
        if getattr(self._lib, name)(*converted, pointer(self.counter), self.threads):
            raise ValueError(f"{name}: no such kernel")

    def quantise(self, name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """codes i8 [n, K], d, s as the quantiser stores them."""
        codes, d, s = blocks_like(name, x.shape)
        self._call("e0_phase_quantise", name.encode(), x, ctypes.c_int64(x.size), codes, d, s)
        return codes, d, s

    def swiglu(self, name: str, gate: np.ndarray, up: np.ndarray):
        """h f32, codes, d, s."""
        h = np.full(gate.shape, POISON, np.float32)
        codes, d, s = blocks_like(name, gate.shape)
        self._call("e0_phase_swiglu", name.encode(), gate, up, ctypes.c_int64(gate.size), h, codes, d, s)
        return h, codes, d, s

    def rows(
        self,
        variant: str,
        fmt: str,
        raw: np.ndarray,
        codes: np.ndarray,
        d: np.ndarray,
        ids: np.ndarray | None,
        *,
        m: int,
        n: int,
        experts: int = 1,
        slots: int = 1,
    ) -> np.ndarray:
        """f32 [n, m]."""
        out = np.full((n, m), POISON, np.float32)
        self._call(
            "e0_phase_rows", variant.encode(), fmt.lower().encode(), raw, codes, d, ids, experts, slots, out, m, n, codes.shape[1]
        )
        return out

    def expert_sum(self, order: str, y: np.ndarray, weights: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """f32 [tokens, width]."""
        out = np.full((len(weights), y.shape[1]), POISON, np.float32)
        self._call("e0_phase_sum", order.encode(), y, weights, ids, weights.shape[1], ctypes.c_int64(len(weights)), y.shape[1], out)
        return out

    def exp(self, x: np.ndarray) -> np.ndarray:
        out = np.full(x.shape, POISON, np.float32)
        self._call("e0_phase_exp", x, ctypes.c_int64(x.size), out)
        return out


def blocks_like(name: str, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    codes = np.full(shape, -128, np.int8)
    scales = (shape[0], shape[1] // 32)
    if name == "mmq":
        return codes, np.full(scales, POISON, np.float32), None
    return codes, np.full(scales, 0x7EE0, np.uint16).view(np.float16), np.full(scales, 0x7EE0, np.uint16).view(np.float16)
