"""The portable kernels on a device: operands and outputs are device buffers, outputs poisoned, launches counted on the device."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge0verify.numerics.blocks import POISON_F32_BITS
from edge0verify.runtime.protocol import Argument, Buffer, Runtime

POISON_CODES, POISON_F16 = 0x80, 0x7EE0
POISON = {"f32": (POISON_F32_BITS, 4), "f16": (POISON_F16, 2), "codes": (POISON_CODES, 1)}
"""Kind of output -> the value that it is preset to, and its bytes."""
BLOCK_BYTES = {"Q8_0": (32, 34), "Q4_0": (32, 18), "IQ4_NL": (32, 18), "Q3_K": (256, 110)}
TILE_ROWS, TILE_TOKENS = 128, 64  # as in kernels/portable/tiles.h
COUNTERS = 256


def ceil_div(n: int, size: int) -> int:
    return -(-n // size)


@dataclass(frozen=True)
class DeviceWeights:
    """`experts` matrices [rows, k] of GGUF blocks on the device."""

    fmt: str
    raw: Buffer
    experts: int
    rows: int
    k: int


@dataclass(frozen=True)
class DeviceBlocks:
    """Quantised rows on the device: codes i8 [n, k], d (f16, or f32 for `mmq`) and s f16 [n, k/32]."""

    quantiser: str
    codes: Buffer
    d: Buffer
    s: Buffer | None
    n: int
    k: int


class DeviceOps:
    """Kernels of one device on one stream.  Buffers handed out live until `release()`; after that their memory is used again."""

    def __init__(self, runtime: Runtime, device: int = 0, *, stream: object | None = None, image: bytes | None = None) -> None:
        self.runtime, self.device, self.stream = runtime, device, stream
        self.image = image if image is not None else runtime.compile(runtime.devices()[device].arch)
        self._module = runtime.load(device, self.image)
        self._kernels: dict[str, object] = {}
        self._free: dict[int, list[Buffer]] = {}
        self._used: list[Buffer] = []
        self._slots: dict[str, int] = {}
        self.counting = True
        self._counters = runtime.allocate(device, 4 * COUNTERS)
        runtime.memset(self._counters, 0)
        runtime.synchronise(device)

    # ---- memory ------------------------------------------------------------------------------------------------------------
    def buffer(self, nbytes: int) -> Buffer:
        """Device memory until the next release(); sizes are rounded up so that buffers are found again."""
        size = 256
        while size < nbytes:
            size *= 2
        kept = self._free.get(size)
        whole = kept.pop() if kept else self.runtime.allocate(self.device, size)
        self._used.append(whole)
        return whole.at(0, nbytes)

    def release(self) -> None:
        """Gives every buffer back to the pool."""
        for whole in self._used:
            self._free.setdefault(whole.nbytes, []).append(whole)
        self._used.clear()

    def upload(self, array: np.ndarray) -> Buffer:
        """A contiguous copy of the array in pooled device memory."""
        got = self.buffer(array.nbytes)
        self.runtime.copy(got, np.ascontiguousarray(array))
        return got

    def download(self, buffer: Buffer, dtype: object, shape: Sequence[int]) -> np.ndarray:
        """The buffer's content once everything before it is done; a kernel's fault is raised here, before any number."""
        self.runtime.synchronise(self.device, self.stream)
        out = np.empty(shape, dtype)
        self.runtime.copy(out, buffer.at(0, out.nbytes))
        return out

    def _poisoned(self, count: int, kind: str) -> Buffer:
        out = self.buffer(count * POISON[kind][1])
        self._poison(out, kind)
        return out

    def _poison(self, out: Buffer, kind: str) -> None:
        self.runtime.memset(out, *POISON[kind], self.stream)

    def weights(self, fmt: str, raw: np.ndarray, *, rows: int, experts: int = 1) -> DeviceWeights:
        """GGUF rows uint8 [experts * rows, bytes] (any leading shape) into memory of their own, kept until free_weights()."""
        values, size = BLOCK_BYTES[fmt]
        if raw.size % (experts * rows * size):
            raise ValueError(f"{fmt}: {raw.size} bytes are not {experts} x {rows} rows")
        memory = self.runtime.allocate(self.device, raw.size)
        self.runtime.copy(memory, np.ascontiguousarray(raw).reshape(-1))
        return DeviceWeights(fmt, memory, experts, rows, raw.size // (experts * rows * size) * values)

    def free_weights(self, weights: DeviceWeights) -> None:
        self.runtime.free(weights.raw)

    # ---- launches ----------------------------------------------------------------------------------------------------------
    def launch(self, name: str, blocks: int, threads: int, args: Sequence[Argument], key: str | None = None) -> None:
        """One launch; `key` names the counter that the kernel increments itself."""
        if name not in self._kernels:
            self._kernels[name] = self.runtime.kernel(self._module, name)
        if blocks:
            self.runtime.launch(self._kernels[name], blocks, threads, [*args, self._counter(key)], stream=self.stream)

    def _counter(self, key: str | None) -> Buffer | None:
        if key is None or not self.counting:
            return None
        if key not in self._slots and len(self._slots) == COUNTERS:
            raise ValueError("more counters than slots")
        return self._counters.at(4 * self._slots.setdefault(key, len(self._slots)), 4)

    def launches(self) -> dict[str, int]:
        """Launches per key since reset_launches(), as the kernels counted them on the device."""
        counts = self.download(self._counters, np.uint32, (COUNTERS,))
        return {key: int(counts[slot]) for key, slot in self._slots.items() if counts[slot]}

    def reset_launches(self) -> None:
        self.runtime.memset(self._counters, 0, 1, self.stream)

    # ---- kernels -----------------------------------------------------------------------------------------------------------
    def blocks_like(self, quantiser: str, n: int, k: int) -> DeviceBlocks:
        """Poisoned room for quantised rows."""
        codes = self._poisoned(n * k, "codes")
        if quantiser == "mmq":
            return DeviceBlocks(quantiser, codes, self._poisoned(n * k // 32, "f32"), None, n, k)
        return DeviceBlocks(quantiser, codes, self._poisoned(n * k // 32, "f16"), self._poisoned(n * k // 32, "f16"), n, k)

    def quantise(self, quantiser: str, x: Buffer, n: int, k: int, key: str | None = None) -> DeviceBlocks:
        """x f32 [n, k] by `mmvq` or `mmq`."""
        out = self.blocks_like(quantiser, n, k)
        scales = [out.d] if out.s is None else [out.d, out.s]
        blocks = n * k // 32
        self.launch(f"e0_quantise_{quantiser}", ceil_div(blocks, 4), 128, [x, ctypes.c_int64(blocks), out.codes, *scales], key)
        return out

    def swiglu(
        self, quantiser: str, gate: Buffer, up: Buffer, n: int, k: int, *, rows: bool = False
    ) -> tuple[DeviceBlocks, Buffer | None]:
        """The store of H = swiglu(gate, up), and H itself f32 [n, k] where `rows`."""
        out = self.blocks_like(quantiser, n, k)
        h = self._poisoned(n * k, "f32") if rows else None
        scales = [out.d] if out.s is None else [out.d, out.s]
        blocks = n * k // 32
        self.launch(f"e0_swiglu_{quantiser}", ceil_div(blocks, 4), 128, [gate, up, ctypes.c_int64(blocks), h, out.codes, *scales])
        return out, h

    def plan(self, ids: Buffer, pairs: int, experts: int, width: int = TILE_TOKENS) -> tuple[Buffer, int]:
        """Pairs grouped into tiles of one expert (for `mmq` and `w11`), made on the device; the plan and its tile count."""
        tiles = pairs // width + experts
        plan, starts = self.buffer(4 * tiles * (1 + width)), self.buffer(4 * experts)
        sizes = [ctypes.c_int(v) for v in (pairs, experts)]
        self.launch("e0_group_pairs", 1, 256, [ids, *sizes, starts, plan, ctypes.c_int(tiles), ctypes.c_int(width)])
        return plan, tiles

    def rows(
        self,
        variant: str,
        weights: DeviceWeights,
        operand: DeviceBlocks,
        *,
        n: int | None = None,
        ids: Buffer | None = None,
        div: int = 1,
        plan: tuple[Buffer, int] | None = None,
        key: str | None = None,
        out: Buffer | None = None,
    ) -> Buffer:
        """f32 [n, rows] of one contract.  With ids i32 [n], input row i is operand row i / div through matrix ids[i].

        out: memory that takes them, as it is; else new memory that is poisoned first.
        """
        count = operand.n if n is None else n
        m, k = weights.rows, weights.k
        if operand.k != k:
            raise ValueError(f"operand of {operand.k} values for weights of {k}")
        out = self._poisoned(count * m, "f32") if out is None else out
        sizes = [ctypes.c_int(v) for v in (m, count, k)]
        name = f"e0_rows_{variant}_{weights.fmt.lower()}"
        if variant in ("mmq", "w11"):
            if ids is not None and plan is None:
                plan = self.plan(ids, count, weights.experts)
            table, tiles = plan if plan is not None else (None, ceil_div(count, TILE_TOKENS))
            blocks, threads = ceil_div(m, TILE_ROWS) * tiles, 256
        else:
            table, threads = ids, 256 if variant == "ref" else 128
            blocks = ceil_div(count * m, 256) if variant == "ref" else ceil_div(m, 8 if weights.fmt == "Q3_K" else 4) * count
        self.launch(
            name,
            blocks if count else 0,
            threads,
            [weights.raw, operand.codes, operand.d, table, ctypes.c_int(div), out, *sizes],
            key,
        )
        return out

    def expert_sum(self, order: str, y: Buffer, route_weights: Buffer, ids: Buffer, *, tokens: int, k: int, width: int) -> Buffer:
        """f32 [tokens, width]; order 'route', 'expert-id' or 'f64'."""
        out = self._poisoned(tokens * width, "f32")
        name = {"route": "e0_sum_route", "expert-id": "e0_sum_expert", "f64": "e0_sum_f64"}[order]
        self.launch(
            name,
            ceil_div(tokens * width, 256),
            256,
            [y, route_weights, ids, ctypes.c_int(k), ctypes.c_int64(tokens), ctypes.c_int(width), out],
        )
        return out

    def exp(self, x: Buffer, n: int) -> Buffer:
        out = self._poisoned(n, "f32")
        self.launch("e0_exp", ceil_div(n, 256), 256, [x, ctypes.c_int64(n), out])
        return out
