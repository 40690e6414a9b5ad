"""Inputs on which every build of the portable kernels must give the same bits: the shapes where tiles, lanes and blocks end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BYTES = {"Q8_0": (32, 34), "Q4_0": (32, 18), "IQ4_NL": (32, 18), "Q3_K": (256, 110)}


def raw_weights(rng: np.random.Generator, fmt: str, rows: int, k: int, *, extreme: bool) -> np.ndarray:
    """Random GGUF rows uint8 [rows, bytes] with finite scales of both signs; zero blocks and huge scales where `extreme`."""
    values, size = BYTES[fmt]
    blocks = rng.integers(0, 256, (rows, k // values, size), dtype=np.uint8)
    d = (rng.standard_normal(blocks.shape[:2]) * 0.01).astype(np.float16)
    if extreme:
        d[rng.random(d.shape) < 0.1] = 0.0
        d[rng.random(d.shape) < 0.05] = -6e-8
        d[rng.random(d.shape) < 0.02] = 60000.0
        if fmt == "Q8_0":
            blocks[..., 2:][rng.random((*blocks.shape[:2], 32)) < 0.05] = 0x80
    at = 108 if fmt == "Q3_K" else 0
    blocks[..., at : at + 2] = np.ascontiguousarray(d).view(np.uint8).reshape(*d.shape, 2)
    return blocks.reshape(rows, -1)


def bf16(x: np.ndarray) -> np.ndarray:
    """Rounded to bfloat16, nearest even, as float32."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return (((u + 0x7FFF + ((u >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)


def activations(rng: np.random.Generator, rows: int, k: int, *, extreme: bool) -> np.ndarray:
    """f32 [rows, k]: normals rounded to bf16; with `extreme` also the edges too (zeros, ties, subnormals, overflows, NaN)."""
    x = bf16(rng.standard_normal((rows, k)) * 2.0 ** rng.integers(-3, 4, (rows, 1)))
    if extreme:
        blocks = x.reshape(-1, 32)
        plant = {
            0: np.zeros(32),
            1: np.arange(32) * 0.5 - 8 + 127 * (np.arange(32) == 5),
            2: np.full(32, 1e-44),
            3: np.linspace(-3e-38, 3e-38, 32),
            4: np.full(32, 3e6),
            5: np.linspace(-1e7, 1e7, 32),
            6: np.where(np.arange(32) == 7, np.nan, 1.0),
            7: np.where(np.arange(32) == 3, -np.inf, 1.0),
            8: np.full(32, 1e-37),
            9: np.full(32, -0.0),
            10: np.full(32, 3e38),
        }
        places = rng.permutation(len(blocks))
        for i, value in plant.items():
            if i < len(places) - 1:
                blocks[places[i]] = value.astype(np.float32)
    return x


@dataclass(frozen=True)
class RowsCase:
    """One product: `experts` matrices [m, k], n input rows of which each goes through ids[i] (None: a dense product)."""

    fmt: str
    m: int
    n: int
    k: int
    experts: int = 1
    slots: int = 1
    extreme: bool = False

    def build(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """raw uint8 [experts*m, bytes], x f32 [n/slots, k], ids i32 [n] or None."""
        rng = np.random.default_rng([seed, self.m, self.n, self.k, self.experts])
        raw = raw_weights(rng, self.fmt, self.experts * self.m, self.k, extreme=self.extreme)
        x = activations(rng, self.n // self.slots, self.k, extreme=self.extreme)
        if self.experts == 1:
            return raw, x, None
        ids = np.stack([rng.permutation(self.experts)[: self.slots] for _ in range(self.n // self.slots)])
        return raw, x, ids.astype(np.int32).ravel()


def rows_cases() -> list[RowsCase]:
    """Odd counts, one row past a tile, one block, 33 blocks, three super blocks and more, experts with no rows and with many."""
    cases = []
    for fmt in ("Q8_0", "Q4_0", "IQ4_NL"):
        cases += [
            RowsCase(fmt, 1, 1, 32),
            RowsCase(fmt, 129, 65, 33 * 32),
            RowsCase(fmt, 33, 3, 7 * 32, extreme=True),
            RowsCase(fmt, 64, 67, 160, extreme=True),
        ]
    cases += [RowsCase("Q3_K", 1, 1, 256), RowsCase("Q3_K", 129, 65, 768), RowsCase("Q3_K", 31, 3, 1280, extreme=True)]
    cases += [
        RowsCase("Q3_K", 128, 3 * 67, 256, experts=5, slots=3),
        RowsCase("Q3_K", 33, 4 * 9, 768, experts=16, slots=4, extreme=True),
        RowsCase("IQ4_NL", 130, 4 * 37, 128, experts=6, slots=4),
        RowsCase("IQ4_NL", 256, 4 * 5, 96, experts=16, slots=4, extreme=True),
    ]
    return cases


VARIANTS = {
    "Q8_0": ("ref", "mmvq", "mmq", "w11"),
    "Q4_0": ("ref", "mmvq"),
    "IQ4_NL": ("ref", "mmvq", "mmq", "w11"),
    "Q3_K": ("ref", "mmvq", "mmq", "w11"),
}


def differing(a: np.ndarray, b: np.ndarray) -> int:
    """Elements whose bits differ; NaNs are equal whatever their payload."""
    if a.dtype.kind == "f":
        word = {2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
        return int(((a.view(word) != b.view(word)) & ~(np.isnan(a) & np.isnan(b))).sum())
    return int((a != b).sum())
