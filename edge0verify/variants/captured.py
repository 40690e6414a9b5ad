"""The four stages of a layer as one captured graph, with the dump taken inside it.

A capture refuses synchronous copies and waits, so rows enter and leave by a kernel that copies from and to mapped host memory.  A
graph is made once for a layer's weights, variants and number of rows, and replayed for every further pass with that many rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge0verify.numerics.blocks import Blocks
from edge0verify.runtime.detect import Absent, open_device
from edge0verify.runtime.ops import DeviceBlocks
from edge0verify.runtime.protocol import Buffer, Runtime
from edge0verify.variants import device_stages as stages
from edge0verify.variants.device_kernels import DeviceKernels
from edge0verify.variants.registry import Variant
from edge0verify.variants.weights import LayerWeights

COPY_SOURCE = '#include "probe/memory.h"\n'
COPY_BYTES = 4096  # of a block of e0_move_bytes
UNWRITTEN = 0xA5
"""Byte that the mapped memory holds before each replay: what no kernel of the graph copied out is not mistaken for a dump."""


@dataclass(frozen=True)
class Taken:
    """One tensor in mapped host memory: how its bytes are read."""

    where: Buffer
    dtype: Any
    shape: tuple[int, ...]

    def read(self) -> np.ndarray:
        return self.where.array(self.dtype).reshape(self.shape).copy()


@dataclass(frozen=True)
class Recorded:
    """A captured graph, its inputs, and where each of its tensors comes out: one array, or codes, d and s of blocks."""

    graph: Any
    inputs: Mapping[str, Buffer]
    taken: Mapping[str, tuple[Taken, ...]]
    quantisers: Mapping[str, str]

    def read(self) -> dict[str, np.ndarray | Blocks]:
        found: dict[str, np.ndarray | Blocks] = {}
        for name, parts in self.taken.items():
            arrays = [part.read() for part in parts]
            if name in self.quantisers:
                found[name] = Blocks(arrays[0], arrays[1], arrays[2] if len(arrays) > 2 else None, self.quantisers[name])
            else:
                found[name] = arrays[0]
        return found


class CapturedKernels(DeviceKernels):
    """DeviceKernels whose `layer` replays a graph.  `replays` counts graph launches.

    Raises Absent for a runtime that captures nothing.  plain: launch the same sequence without capturing it, copies included.
    """

    def __init__(self, runtime: Runtime, device: int = 0, *, tuned: bool | None = None, plain: bool = False) -> None:
        if not hasattr(runtime, "begin_capture"):
            raise Absent(f"{runtime.name}: no graph capture")
        super().__init__(runtime, device, tuned=tuned, stream=runtime.stream(device))
        self.plain, self.replays = plain, 0
        self._copy = runtime.kernel(runtime.load(device, COPY_SOURCE), "e0_move_bytes")
        self._mapped: dict[tuple[str, int], Buffer] = {}
        self._graphs: dict[tuple, Recorded] = {}

    def layer(
        self, run: Mapping[str, Variant], w: LayerWeights, h: np.ndarray, ids: np.ndarray, weights: np.ndarray, *, capture: bool
    ) -> dict[str, np.ndarray | Blocks]:
        """D, A1, A2 and U of one layer: every tensor by its name in a dump.

        run: stage -> variant.  h float32 [n, hidden], ids int32 [n, k], weights float32 [n, k].  capture: a-gate and a-up too.
        """
        arrays = {
            "ffn-in": np.ascontiguousarray(h, np.float32),
            "route-ids": np.ascontiguousarray(ids, np.int32),
            "route-weights": np.ascontiguousarray(weights, np.float32),
        }
        tensors = (w.down, w.gate_exps, w.up_exps, w.down_exps, w.up)
        names = tuple(run[stage].name for stage in ("D", "A1", "A2", "U"))
        key = (tuple(t.on_device.raw.pointer for t in tensors), names, ids.shape, capture)
        if key not in self._graphs:
            self._graphs[key] = self._record(run, w, arrays, capture)
        made = self._graphs[key]
        self._fill(made, arrays)
        if self.plain:
            self._sequence(run, w, *ids.shape, capture)
            self.runtime.synchronise(self.device, self.ops.stream)
            self.ops.release()
        else:
            self.runtime.launch_graph(made.graph, self.ops.stream)
            self.runtime.synchronise(self.device, self.ops.stream)
            self.replays += 1
        return made.read()

    # ---- making a graph ------------------------------------------------------------------------------------------------------
    def _record(self, run: Mapping[str, Variant], w: LayerWeights, arrays: Mapping[str, np.ndarray], capture: bool) -> Recorded:
        """Once in the open, so that all memory is there and every kernel is loaded, then captured."""
        ops, (n, slots) = self.ops, arrays["route-ids"].shape
        inputs = {name: self._host(name, array.nbytes) for name, array in arrays.items()}
        for name, array in arrays.items():
            inputs[name].array()[:] = array.reshape(-1).view(np.uint8)
        ops.counting = False
        try:
            taken, quantisers = self._sequence(run, w, n, slots, capture)
            self.runtime.synchronise(self.device, ops.stream)
        finally:
            ops.counting = True
            ops.release()
        if self.plain:
            return Recorded(None, inputs, taken, quantisers)
        self.runtime.begin_capture(ops.stream)
        self._sequence(run, w, n, slots, capture)
        graph = self.runtime.end_capture(ops.stream)
        ops.release()
        return Recorded(graph, inputs, taken, quantisers)

    def _sequence(self, run: Mapping[str, Variant], w: LayerWeights, n: int, slots: int, capture: bool) -> tuple[dict, dict]:
        """Every launch of a layer, copies in and out included."""
        ops, there = self.ops, (w.down, w.gate_exps, w.up_exps, w.down_exps, w.up)
        down, gate, up, back, last = (t.on_device for t in there)
        pairs = n * slots
        x = self._in("ffn-in", 4 * n * down.k)
        ids, weights = self._in("route-ids", 4 * pairs), self._in("route-weights", 4 * pairs)
        taken: dict[str, tuple[Taken, ...]] = {}
        quantisers: dict[str, str] = {}

        def rows(name: str, buffer: Buffer, shape: tuple[int, int]) -> None:
            taken[name] = (self._out(name, buffer, np.float32, shape),)

        def blocks(name: str, b: DeviceBlocks) -> None:
            scale, narrow = (np.float32 if b.quantiser == "mmq" else np.float16), (b.n, b.k // 32)
            parts = [("codes", b.codes, np.int8, (b.n, b.k)), ("d", b.d, scale, narrow)]
            if b.s is not None:
                parts.append(("s", b.s, np.float16, narrow))
            taken[name] = tuple(self._out(f"{name}.{part}", *rest) for part, *rest in parts)
            quantisers[name] = b.quantiser

        hq, xl = stages.product(ops, run["D"], down, x, n)
        xlq = ops.quantise(run["D"].rules.store, xl, n, down.rows)
        operand = ops.quantise("mmq", xl, n, down.rows) if run["A1"].rules.operand == "mmq" else xlq
        g, u, h = stages.half_products(ops, run["A1"], gate, up, operand, ids, pairs, slots)
        y, yl = stages.expert_rows(ops, run["A2"], back, h, ids, weights, n, slots)
        ylq, out = stages.product(ops, run["U"], last, yl, n)
        blocks("d-hq", hq)
        rows("d-xl", xl, (n, down.rows))
        blocks("d-xlq", xlq)
        if capture:
            rows("a-gate", g, (pairs, gate.rows))
            rows("a-up", u, (pairs, up.rows))
        blocks("a-h", h)
        rows("a-y", y, (pairs, back.rows))
        rows("a-yl", yl, (n, back.rows))
        blocks("u-ylq", ylq)
        rows("u", out, (n, last.rows))
        return taken, quantisers

    # ---- mapped host memory --------------------------------------------------------------------------------------------------
    def _host(self, name: str, nbytes: int) -> Buffer:
        """Mapped memory of that name and size; graphs run one after another, so layers share it."""
        key = (name, nbytes)
        if key not in self._mapped:
            self._mapped[key] = self.runtime.allocate_mapped(self.device, nbytes)
        return self._mapped[key].at(0, nbytes)

    def _move(self, source: Buffer, to: Buffer) -> None:
        size = ctypes.c_int64(to.nbytes)
        self.runtime.launch(self._copy, -(-to.nbytes // COPY_BYTES), 256, [source, to, size], stream=self.ops.stream)

    def _in(self, name: str, nbytes: int) -> Buffer:
        got = self.ops.buffer(nbytes)
        self._move(self._host(name, nbytes), got)
        return got

    def _out(self, name: str, buffer: Buffer, dtype: Any, shape: tuple[int, ...]) -> Taken:
        where = self._host(name, int(np.prod(shape)) * np.dtype(dtype).itemsize)
        self._move(buffer.at(0, where.nbytes), where)
        return Taken(where, dtype, shape)

    def _fill(self, made: Recorded, arrays: Mapping[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            made.inputs[name].array()[:] = array.reshape(-1).view(np.uint8)
        for parts in made.taken.values():
            for part in parts:
                part.where.array()[:] = UNWRITTEN


def captured_on(device: str, *, tuned: bool | None = None, plain: bool = False) -> CapturedKernels:
    """The kernels of 'cuda:0' with graphs; raises `runtime.detect.Absent` with the reason where device or capture is not here."""
    runtime, index = open_device(device)
    return CapturedKernels(runtime, index, tuned=tuned, plain=plain)

