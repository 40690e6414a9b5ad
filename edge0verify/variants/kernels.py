"""The compiled kernels as calls on numpy arrays.  Every output is preset to poison before its kernel runs."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import numpy as np

from edge0verify.numerics.blocks import POISON_CODE, Blocks, poison_f16, poison_f32

from . import _kernels
from .registry import LINEAR, Variant, find

PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class DOut:
    """d-hq [n, hidden], d-xl f32 [n, latent], d-xlq [n, latent]."""

    hq: Blocks
    xl: np.ndarray
    xlq: Blocks


@dataclass(frozen=True)
class A1Out:
    """a-h [pairs, ff]; a-gate and a-up f32 [pairs, ff] where they were asked for."""

    h: Blocks
    gate: np.ndarray | None
    up: np.ndarray | None


@dataclass(frozen=True)
class A2Out:
    """a-y f32 [pairs, latent] (None where not asked for), a-yl f32 [n, latent]."""

    y: np.ndarray | None
    yl: np.ndarray


@dataclass(frozen=True)
class UOut:
    """u-ylq [n, latent], u f32 [n, hidden]."""

    ylq: Blocks
    u: np.ndarray


def _rows(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x, np.float32)


class Kernels:
    """One set of compiled kernels on the host.

    native: the compiled module (the product's by default; tests hand in the one with planted faults).  isa: one of
    `native.usable_isas()`, default the fastest.  threads: default the processors this process may use.  Neither changes a bit.
    """

    def __init__(self, native: ModuleType = _kernels, isa: str | None = None, threads: int | None = None) -> None:
        self.native = native
        usable = native.usable_isas()
        if isa is not None and isa not in usable:
            raise ValueError(f"instruction set {isa}: expected one of {', '.join(usable)}")
        self.isa = isa or native.isa()
        self.threads = threads or len(os.sched_getaffinity(0))

    def poisoned(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        """An output array that nothing has written yet: dtype float32, float16 or int8 (codes)."""
        if dtype is np.int8:
            return np.full(shape, POISON_CODE, np.int8)
        return poison_f32(shape) if dtype is np.float32 else poison_f16(shape)

    def _blocks(self, rows: int, columns: int, quantiser: str) -> Blocks:
        shape, narrow = (rows, columns // 32), quantiser != "mmq"
        d = self.poisoned(shape, np.float16 if narrow else np.float32)
        s = self.poisoned(shape, np.float16) if narrow else None
        return Blocks(self.poisoned((rows, columns), np.int8), d, s, quantiser)

    def pack(self, fmt: str, raw: np.ndarray):
        """Weights from GGUF rows uint8 [rows, row_bytes] or [experts, rows, row_bytes]; ValueError where they do not fit `fmt`."""
        return self.native.Weights(fmt, np.ascontiguousarray(raw))

    def quantise(self, name: str, x: np.ndarray) -> Blocks:
        """Rows f32 [n, K] quantised by the quantiser called `name`."""
        x = _rows(x)
        out = self._blocks(*x.shape, name)
        self.native.quantise(name, x, out.codes, out.d, out.s, threads=self.threads, isa=self.isa)
        return out

    def exp(self, x: np.ndarray) -> np.ndarray:
        """E(x) of the contracts, f32, any shape."""
        x = _rows(x)
        out = self.poisoned((x.size,), np.float32)
        self.native.exp_f32(x.reshape(-1), out, isa=self.isa)
        return out.reshape(x.shape)

    def d(self, variant: Variant | str, weights, x: np.ndarray) -> DOut:
        """Stage D: ffn-in f32 [n, hidden] to the latent rows and their stored blocks."""
        v = _find("D", variant)
        hq, xl = self._product(v, weights, x)
        return DOut(hq, xl, self.quantise(v.rules.store, xl))

    def u(self, variant: Variant | str, weights, yl: np.ndarray) -> UOut:
        """Stage U: a-yl f32 [n, latent] to u f32 [n, hidden], before the residual."""
        return UOut(*self._product(_find("U", variant), weights, yl))

    def linear(self, weights, x: np.ndarray) -> np.ndarray:
        """Attention projections and mtp.fc by the `mmvq` contract: f32 [n, K] -> f32 [n, M]."""
        return self._product(LINEAR, weights, x)[1]

    def a1(
        self, variant: Variant | str, gate, up, xl: np.ndarray | None, xlq: Blocks | None, ids: np.ndarray, *, capture: bool = False
    ) -> A1Out:
        """Stage A1: gate, up and SwiGLU of each chosen expert.

        xl f32 [n, latent] is what mmq reads, xlq its stored blocks what the others read; ids i32 [n, k].  Pairs are
        token-major.  capture: also return the f32 gate and up rows.
        """
        v = _find("A1", variant)
        ids = np.ascontiguousarray(ids, np.int32)
        pairs = ids.size
        h = self._blocks(pairs, gate.rows, v.rules.store)
        g, u = (self.poisoned((pairs, gate.rows), np.float32) if capture else None for _ in range(2))
        if v.rules.operand == "mmq":
            rows, codes, scale = _rows(xl), None, None
        else:
            rows, codes, scale = None, np.ascontiguousarray(xlq.codes), np.ascontiguousarray(xlq.d)
        self.native.run_a1(
            v.entry(gate.fmt), gate, up, rows, codes, scale, ids, g, u, h.codes, h.d, h.s, threads=self.threads, isa=self.isa
        )
        return A1Out(h, g, u)

    def a2(
        self, variant: Variant | str, down, h: Blocks, ids: np.ndarray, route_weights: np.ndarray, *, capture: bool = True
    ) -> A2Out:
        """Stage A2: down projection of each pair and the weighted sum over a token's experts; route_weights f32 [n, k]."""
        v = _find("A2", variant)
        ids = np.ascontiguousarray(ids, np.int32)
        y, yl = (self.poisoned((n, down.rows), np.float32) for n in (ids.size, ids.shape[0]))
        codes, d = np.ascontiguousarray(h.codes), np.ascontiguousarray(h.d)
        self.native.run_a2(
            v.entry(down.fmt), down, codes, d, ids, _rows(route_weights), y, yl, threads=self.threads, isa=self.isa
        )
        return A2Out(y if capture else None, yl)

    def launches(self) -> dict[str, int]:
        """Launches of each compiled entry of this module since its last reset, counted inside the entry; entries that ran."""
        return {key: n for key, n in self.native.launches().items() if n}

    def reset_launches(self) -> None:
        """Sets every counter of the module to 0, also for other `Kernels` on it."""
        self.native.reset_launches()

    def binary_sha256(self) -> str:
        """Identity of the compiled module."""
        return _sha256((Path(self.native.__file__),))

    def source_sha256(self) -> str:
        """Identity of the kernel sources, as shipped with the package or in the source tree."""
        return kernel_source_sha256()

    def _product(self, v: Variant, weights, x: np.ndarray) -> tuple[Blocks, np.ndarray]:
        x = _rows(x)
        op, out = self._blocks(*x.shape, v.rules.operand), self.poisoned((x.shape[0], weights.rows), np.float32)
        self.native.run_rows(v.entry(weights.fmt), weights, x, op.codes, op.d, op.s, out, threads=self.threads, isa=self.isa)
        return op, out


def _find(stage: str, variant: Variant | str) -> Variant:
    v = find(stage, variant) if isinstance(variant, str) else variant
    if v.stage != stage:
        raise ValueError(f"stage {stage}: found a variant of stage {v.stage}")
    return v


@lru_cache(maxsize=8)
def _sha256(files: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def kernel_source_sha256() -> str:
    """sha256 over the kernel sources in the order of their paths."""
    for root in (PACKAGE / "kernels", PACKAGE.parent / "kernels"):
        files = tuple(sorted(f for f in root.rglob("*") if f.suffix in (".h", ".cpp", ".hip", ".cu")))
        if files:
            return _sha256(files)
    return "unknown"
