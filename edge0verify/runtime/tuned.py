"""The tuned CUDA kernels beside the portable ones: the same contracts and bits, from weights repacked once per load."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from edge0verify.runtime.cuda import CudaRuntime
from edge0verify.runtime.ops import DeviceBlocks, DeviceOps, DeviceWeights, ceil_div
from edge0verify.runtime.protocol import Buffer

PADDED = 128  # rows of the tile form are padded to the tile
ROW_BATCHES = (1, 4, 8)  # input rows that one block of the row kernels takes


@dataclass(frozen=True)
class TileShape:
    """A tile product of kernels/cuda/tile.h: 128 weight rows x `bn` input rows a block of four warps, three stages of 128 of K."""

    prefix: str
    bn: int
    group: int  # input rows of one warp

    @property
    def threads(self) -> int:
        return 64 * self.bn // self.group

    def shared(self, one_scale: bool) -> int:
        """Dynamic shared memory in bytes, with room to start on a multiple of 1024; one_scale: a weight scale per 256 (Q3_K)."""
        return 3 * ceil_div(128 * 128 + self.bn * 144 + 128 * (4 if one_scale else 16), 1024) * 1024 + 1024


Room = tuple[Buffer, Buffer]
WIDE, NARROW = TileShape("e0_tile", 128, 64), TileShape("e0_narrow", 64, 32)
TUNED = '#include "cuda/all.h"\n'
SHARED_LIMIT = 220 * 1024


def row_shared(fmt: str, k: int) -> int:
    """Shared memory of one staged activation row in the row kernels, bytes."""
    return k // 256 * 288 if fmt == "Q3_K" else ceil_div(k // 32, 32) * 32 * 36


def row_warps(fmt: str, batch: int) -> int:
    """Warps of a block of the row kernel, as at the end of kernels/cuda/rows.h."""
    return 8 if fmt == "Q3_K" or (fmt == "Q8_0" and batch == 1) else 16


@dataclass(frozen=True)
class TunedWeights(DeviceWeights):
    """Raw blocks, and what the tuned kernels read: tile form and row form."""

    tile: tuple[Buffer, Buffer] | None
    row: tuple[Buffer, ...] | None
    padded: int


class TunedOps(DeviceOps):
    """DeviceOps whose products run the tuned kernels wherever their shapes allow it; `fell_back` says where they did not."""

    def __init__(
        self,
        runtime: CudaRuntime,
        device: int = 0,
        *,
        stream: object | None = None,
        image: bytes | None = None,
        tile: TileShape | None = None,
    ) -> None:
        """tile: WIDE or NARROW for every tile product (None: whichever suits the size)."""
        here = runtime.devices()[device]
        image = image if image is not None else runtime.compile(here.arch, TUNED)
        super().__init__(runtime, device, stream=stream, image=image)
        self.units, self.only = here.units or 1, tile
        self.fell_back: dict[str, str] = {}
        self._reserved: dict[str, int] = {}

    def weights(
        self, fmt: str, raw: np.ndarray, *, rows: int, experts: int = 1, tile: bool = True, row: bool = True
    ) -> TunedWeights:
        """As DeviceOps.weights, with the tuned forms wanted."""
        plain = super().weights(fmt, raw, rows=rows, experts=experts)
        padded = ceil_div(rows, PADDED) * PADDED
        tiles = self._pack_tile(plain, padded) if tile and fmt != "Q4_0" and plain.k % 128 == 0 else None
        rows_form = self._pack_rows(plain) if row and fmt != "Q4_0" and plain.k % 32 == 0 else None
        return TunedWeights(fmt, plain.raw, experts, rows, plain.k, tiles, rows_form, padded)

    def free_weights(self, weights: TunedWeights) -> None:
        for buffer in (weights.raw, *(weights.tile or ()), *(weights.row or ())):
            self.runtime.free(buffer)

    def _pack_tile(self, w: DeviceWeights, padded: int) -> tuple[Buffer, Buffer] | None:
        per = 256 if w.fmt == "Q3_K" else 32
        codes = self.runtime.allocate(self.device, w.experts * padded * w.k)
        scales = self.runtime.allocate(self.device, 4 * w.experts * padded * (w.k // per))
        flag = self.buffer(4)
        self.runtime.memset(flag, 0, 4, self.stream)
        items = w.experts * padded * (w.k // 32)
        sizes = [ctypes.c_int(v) for v in (w.experts, w.rows, padded, w.k)]
        self._start(f"e0_pack_tile_{w.fmt.lower()}", ceil_div(items, 256), 256, [w.raw, *sizes, codes, scales, flag])
        if self.download(flag, np.uint32, (1,))[0]:
            for buffer in (codes, scales):  # a scale that is not finite: the portable kernel keeps its meaning
                self.runtime.free(buffer)
            return None
        return codes, scales

    def _pack_rows(self, w: DeviceWeights) -> tuple[Buffer, ...]:
        rows, sizes = w.experts * w.rows, [ctypes.c_int64(w.experts * w.rows), ctypes.c_int(w.k)]
        if w.fmt == "Q3_K":
            fours = ceil_div(w.k // 256, 4)
            parts = tuple(self.runtime.allocate(self.device, rows * fours * n) for n in (256, 128, 64, 8))
            self._start("e0_pack_rows_q3_k", ceil_div(rows * fours * 16, 256), 256, [w.raw, *sizes, *parts])
        else:
            blocks = ceil_div(w.k // 32, 32) * 32
            parts = tuple(self.runtime.allocate(self.device, rows * blocks * n) for n in (32 if w.fmt == "Q8_0" else 16, 2))
            self._start(f"e0_pack_rows_{w.fmt.lower()}", ceil_div(rows * blocks, 256), 256, [w.raw, *sizes, *parts])
        self.runtime.synchronise(self.device, self.stream)
        return parts

    def _start(self, name: str, blocks: int, threads: int, args: list, *, shared: int = 0) -> None:
        """A launch without a counter, or with its own among the arguments."""
        if name not in self._kernels:
            self._kernels[name] = self.runtime.kernel(self._module, name)
        if shared > self._reserved.get(name, 48 * 1024):
            self.runtime.reserve_shared(self._kernels[name], shared)
            self._reserved[name] = shared
        self.runtime.launch(self._kernels[name], blocks, threads, args, shared=shared, stream=self.stream)

    def shape(self, w: DeviceWeights, count: int, routed: bool) -> TileShape:
        """The wide tile where it fills the device and its columns; routed: input rows are shared out among the experts."""
        if self.only:
            return self.only
        if routed:
            return WIDE if count >= 96 * w.experts else NARROW
        return WIDE if ceil_div(w.rows, 128) * ceil_div(count, WIDE.bn) >= 2 * self.units else NARROW

    def stage(
        self,
        shape: TileShape,
        operand: DeviceBlocks,
        count: int,
        div: int,
        plan: tuple[Buffer, int] | None,
        room: Room | None = None,
    ) -> tuple[Buffer, Buffer, int]:
        """The operand in pieces as the tile products read it (kernels/cuda/stage.h), gathered by the plan: codes, scales, tiles."""
        table, tiles = plan if plan is not None else (None, ceil_div(count, shape.bn))
        size = tiles * shape.bn * operand.k
        codes, scales = room or (self.buffer(size), self.buffer(size // 8))
        name = "e0_stage_f32" if operand.quantiser == "mmq" else "e0_stage_f16"
        sizes = [ctypes.c_int(v) for v in (div, count, operand.k, shape.bn, shape.group)]
        self._start(name, tiles * operand.k // 128, 256, [operand.codes, operand.d, table, *sizes, codes, scales])
        return codes, scales, tiles

    def rows(
        self,
        variant: str,
        weights: TunedWeights,
        operand: DeviceBlocks,
        *,
        n: int | None = None,
        ids: Buffer | None = None,
        div: int = 1,
        plan: tuple[Buffer, int] | None = None,
        key: str | None = None,
        out: Buffer | None = None,
        room: Room | None = None,
    ) -> Buffer:
        """As DeviceOps.rows; a given plan is not used, the tiles here have widths of their own.  room: for staged activations."""
        count = operand.n if n is None else n
        reason = self._obstacle(variant, weights, operand, count)
        if reason:
            self.fell_back[f"{variant}/{weights.fmt}"] = reason
            return super().rows(variant, weights, operand, n=n, ids=ids, div=div, key=key, out=out)
        if operand.k != weights.k:
            raise ValueError(f"operand of {operand.k} values for weights of {weights.k}")
        out = self._poisoned(count * weights.rows, "f32") if out is None else out
        if variant == "mmvq":
            self._row_product(weights, operand, ids, div, out, count, key)
        else:
            self._tile_product(variant, weights, operand, ids, div, out, count, key, room=room)
        return out

    def _obstacle(self, variant: str, weights: TunedWeights, operand: DeviceBlocks, count: int) -> str | None:
        if count == 0:
            return "no rows"
        if variant == "mmvq":
            if weights.row is None:
                return "no row form of these weights"
            return "activation row larger than shared memory" if row_shared(weights.fmt, weights.k) > SHARED_LIMIT else None
        if variant not in ("mmq", "w11") or (variant == "mmq" and weights.fmt == "Q3_K"):
            return "no tuned kernel"
        if weights.tile is None:
            return "K not a multiple of 128, or a weight scale that is not finite"
        return None

    def _row_product(
        self, w: TunedWeights, operand: DeviceBlocks, ids: Buffer | None, div: int, out: Buffer, count: int, key: str | None
    ) -> None:
        q3 = w.fmt == "Q3_K"
        batch = 1 if ids is not None else next((t for t in ROW_BATCHES if t >= count), ROW_BATCHES[-1])
        while batch > 1 and batch * row_shared(w.fmt, w.k) > SHARED_LIMIT:
            batch = ROW_BATCHES[ROW_BATCHES.index(batch) - 1]
        sizes, warps = [ctypes.c_int(v) for v in (w.rows, count, w.k)], row_warps(w.fmt, batch)
        self._start(
            f"e0_row_mmvq_{w.fmt.lower()}_{batch}",
            ceil_div(w.rows, warps * (2 if q3 or batch > 1 else 1)) * ceil_div(count, batch),
            warps * 32,
            [*w.row, operand.codes, operand.d, ids, ctypes.c_int(div), out, *sizes, self._counter(key)],
            shared=batch * row_shared(w.fmt, w.k),
        )

    def _tile_product(
        self,
        variant: str,
        w: TunedWeights,
        operand: DeviceBlocks,
        ids: Buffer | None,
        div: int,
        out: Buffer,
        count: int,
        key: str | None,
        *,
        bare: bool = False,
        room: Room | None = None,
    ) -> None:
        shape = self.shape(w, count, ids is not None)
        plan = None if ids is None else self.plan(ids, count, w.experts, shape.bn)
        q3 = w.fmt == "Q3_K"
        codes, scales, tiles = self.stage(shape, operand, count, div, plan, room)
        name = f"{shape.prefix}_{variant}{'_super' if q3 else ''}{'_bare' if bare else ''}"
        row_tiles = w.padded // 128
        sizes = [ctypes.c_int(v) for v in (w.rows, row_tiles, count, w.k)]
        table = None if plan is None else plan[0]
        self._start(
            name,
            row_tiles * tiles,
            shape.threads,
            [*w.tile, codes, scales, table, out, *sizes, self._counter(key)],
            shared=shape.shared(q3),
        )
