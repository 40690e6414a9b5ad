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
    """kernels/cuda/tile.h (mma.sync): m16 and n8 tiles of a warp, warps of a block, stages, blocks kept on a multiprocessor."""

    mt: int = 4
    nt: int = 4
    wr: int = 2
    wc: int = 4
    stages: int = 3
    blocks: int = 2

    prefix = "e0_tile"
    source = '#include "cuda/all.h"\n'

    @property
    def bm(self) -> int:
        return self.wr * self.mt * 16

    @property
    def bn(self) -> int:
        return self.wc * self.nt * 8

    @property
    def threads(self) -> int:
        return self.wr * self.wc * 32

    def shared(self, one_scale: bool) -> int:
        """Dynamic shared memory in bytes; one_scale: one weight scale per 256 values (Q3_K)."""
        return self.stages * (self.bm * 128 + self.bn * 144 + self.bm * (4 if one_scale else 16))

    def options(self) -> tuple[str, ...]:
        return (f"-DE0_TILE_SHAPE={self.mt},{self.nt},{self.wr},{self.wc},{self.stages}", f"-DE0_TILE_BLOCKS={self.blocks}")


@dataclass(frozen=True)
class GroupShape:
    """kernels/cuda/group.h (wgmma, sm_90a): n8 tiles of a warpgroup, warpgroups of a block, stages, blocks on a multiprocessor."""

    nt: int = 8
    gr: int = 2
    gc: int = 2
    stages: int = 4
    blocks: int = 1

    prefix = "e0_group"
    source = '#include "cuda/hopper.h"\n'

    @property
    def bm(self) -> int:
        return self.gr * 64

    @property
    def bn(self) -> int:
        return self.gc * self.nt * 8

    @property
    def threads(self) -> int:
        return self.gr * self.gc * 128

    def shared(self, one_scale: bool) -> int:
        """Dynamic shared memory in bytes, with room to start on a multiple of 1024."""
        stage = self.bm * 128 + self.bn * 144 + self.bm * (4 if one_scale else 16)
        return self.stages * ceil_div(stage, 1024) * 1024 + 1024

    def options(self) -> tuple[str, ...]:
        return (f"-DE0_GROUP_SHAPE={self.nt},{self.gr},{self.gc},{self.stages}", f"-DE0_GROUP_BLOCKS={self.blocks}")


Shape = TileShape | GroupShape
SHARED_LIMIT = 220 * 1024


def parse_shape(text: str) -> Shape:
    """'tile:4,4,2,4,3,2' or 'group:8,2,2,4,1' in the order of the fields."""
    form, _, numbers = text.partition(":")
    return {"tile": TileShape, "group": GroupShape}[form](*map(int, numbers.split(",")))


def row_shared(fmt: str, k: int) -> int:
    """Shared memory of one staged activation row in the row kernels, bytes."""
    return k // 256 * 288 if fmt == "Q3_K" else ceil_div(k // 32, 32) * 32 * 36


def compile_tuned(runtime: CudaRuntime, arch: str, shape: Shape, *, row_warps: int = 8) -> bytes:
    """The tuned kernels for one shape; wgmma needs the architecture's own feature set (sm_90a)."""
    target = arch + "a" if isinstance(shape, GroupShape) else arch
    return runtime.compile(target, shape.source, options=(*shape.options(), f"-DE0_ROW_WARPS={row_warps}"))


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
        shape: Shape | None = None,
        row_warps: int = 8,
    ) -> None:
        arch = runtime.devices()[device].arch
        shape = shape or (GroupShape() if arch == "sm_90" else TileShape())
        if image is None:
            image = compile_tuned(runtime, arch, shape, row_warps=row_warps)
        super().__init__(runtime, device, stream=stream, image=image)
        self.shape, self.row_warps = shape, row_warps
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

    def scales(self, operand: DeviceBlocks, out: Buffer | None = None) -> Buffer:
        """Activation scales as f32 [k/32][n], as the tile kernels read them; into `out` where given."""
        out = out or self.buffer(4 * operand.n * operand.k // 32)
        name = "e0_scales_f32" if operand.quantiser == "mmq" else "e0_scales_f16"
        sizes = [ctypes.c_int(operand.n), ctypes.c_int(operand.k // 32)]
        self._start(name, ceil_div(operand.n * operand.k // 32, 256), 256, [operand.d, *sizes, out])
        return out

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
    ) -> Buffer:
        count = operand.n if n is None else n
        reason = self._obstacle(variant, weights, operand, count)
        if reason:
            self.fell_back[f"{variant}/{weights.fmt}"] = reason
            return super().rows(variant, weights, operand, n=n, ids=ids, div=div, key=key)
        if operand.k != weights.k:
            raise ValueError(f"operand of {operand.k} values for weights of {weights.k}")
        out = self._poisoned(count * weights.rows, "f32")
        if variant == "mmvq":
            self._row_product(weights, operand, ids, div, out, count, key)
        else:
            self._tile_product(variant, weights, operand, ids, div, plan, out, count, key)
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
        sizes = [ctypes.c_int(v) for v in (w.rows, count, w.k)]
        self._start(
            f"e0_row_mmvq_{w.fmt.lower()}_{batch}",
            ceil_div(w.rows, self.row_warps * (2 if q3 else 1)) * ceil_div(count, batch),
            self.row_warps * 32,
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
        plan: tuple[Buffer, int] | None,
        out: Buffer,
        count: int,
        key: str | None,
        *,
        bare: bool = False,
        room: Buffer | None = None,
    ) -> None:
        if ids is not None and plan is None:
            plan = self.plan(ids, count, w.experts, self.shape.bn)
        table, tiles = plan if plan is not None else (None, ceil_div(count, self.shape.bn))
        q3 = w.fmt == "Q3_K"
        name = f"{self.shape.prefix}_{variant}{'_super' if q3 else ''}{'_bare' if bare else ''}"
        sizes = [ctypes.c_int(v) for v in (w.rows, w.padded, count, w.k)]
        self._start(
            name,
            w.padded // self.shape.bm * tiles,
            self.shape.threads,
            [
                *w.tile,
                operand.codes,
                self.scales(operand, room),
                table,
                ctypes.c_int(div),
                ctypes.c_int(operand.n),
                out,
                *sizes,
                self._counter(key),
            ],
            shared=self.shape.shared(q3),
        )
