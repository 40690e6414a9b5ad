"""The kernels of a device as the same calls on numpy arrays that `Kernels` has on the host, with the same bits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from edge0verify.numerics.blocks import Blocks
from edge0verify.runtime.detect import open_device
from edge0verify.runtime.ops import DeviceBlocks, DeviceOps, DeviceWeights
from edge0verify.runtime.protocol import Buffer, Runtime
from edge0verify.variants import device_stages as stages
from edge0verify.variants.kernels import A1Out, A2Out, Kernels, _find, _rows
from edge0verify.variants.registry import Variant

STORES = ("mmvq", "mmq")  # the quantisers that have a device form


@dataclass(frozen=True)
class Packed:
    """Weights on a device, with the fields that `Kernels.pack` gives."""

    fmt: str
    rows: int
    k: int
    experts: int
    on_device: DeviceWeights


class DeviceKernels(Kernels):
    """Kernels of one device of a runtime.

    Arrays go to the device and back with each call; a failing launch or kernel raises DeviceError before any number is returned.
    Outputs are poisoned on the device, launches are counted by the kernels themselves.  tuned: use the CUDA forms that are
    tuned (None: where the device has what they need, sm_90).  guarded: as in runtime.guarded, for tests of one kernel.
    stream: all work goes there (None: the device's default stream).
    """

    def __init__(
        self, runtime: Runtime, device: int = 0, *, tuned: bool | None = None, guarded: bool = False, stream: object | None = None
    ) -> None:
        self.here = runtime.devices()[device]
        arch = self.here.arch
        self.runtime, self.device, self.threads = runtime, device, 1
        hopper = runtime.name == "cuda" and arch.removeprefix("sm_").isdigit() and int(arch.removeprefix("sm_")) >= 90
        self.tuned = hopper if tuned is None else tuned
        self.ops: DeviceOps = _ops_class(self.tuned, guarded)(runtime, device, stream=stream)
        self.native = self.ops  # identity of the module that weights are packed for
        self.isa = f"{runtime.name}:{device} {arch}{' tuned' if self.tuned else ''}"

    def pack(self, fmt: str, raw: np.ndarray) -> Packed:
        experts, rows = (raw.shape[0], raw.shape[1]) if raw.ndim == 3 else (1, raw.shape[0])
        got = self.ops.weights(fmt, raw, rows=rows, experts=experts)
        return Packed(fmt, rows, got.k, experts, got)

    def quantise(self, name: str, x: np.ndarray) -> Blocks:
        x = self._store_rows(name, x)
        try:
            return self._blocks_here(self.ops.quantise(name, self.ops.upload(x), *x.shape))
        finally:
            self.ops.release()

    def exp(self, x: np.ndarray) -> np.ndarray:
        x = _rows(x)
        try:
            return self.ops.download(self.ops.exp(self.ops.upload(x), x.size), np.float32, x.shape)
        finally:
            self.ops.release()

    def a1(
        self, variant: Variant | str, gate, up, xl: np.ndarray | None, xlq: Blocks | None, ids: np.ndarray, *, capture: bool = False
    ) -> A1Out:
        v = _find("A1", variant)
        v.entry(gate.fmt)
        ids = np.ascontiguousarray(ids, np.int32)
        pairs, slots, ops = ids.size, ids.shape[1], self.ops
        try:
            if v.rules.operand == "mmq":
                rows = _rows(xl)
                operand = ops.quantise("mmq", ops.upload(rows), *rows.shape)
            else:
                operand = self._blocks_there(xlq)
            there = ops.upload(ids)
            g, u, h = stages.half_products(ops, v, gate.on_device, up.on_device, operand, there, pairs, slots)
            kept = [self._rows_here(side, pairs, gate.rows) if capture else None for side in (g, u)]
            return A1Out(self._blocks_here(h), *kept)
        finally:
            ops.release()

    def a2(
        self, variant: Variant | str, down, h: Blocks, ids: np.ndarray, route_weights: np.ndarray, *, capture: bool = True
    ) -> A2Out:
        v = _find("A2", variant)
        v.entry(down.fmt)
        ids, weights, ops = np.ascontiguousarray(ids, np.int32), _rows(route_weights), self.ops
        try:
            there = ops.upload(ids)
            tokens, k = ids.shape
            blocks = self._blocks_there(h)
            y, yl = stages.expert_rows(ops, v, down.on_device, blocks, there, ops.upload(weights), tokens, k)
            kept = self._rows_here(y, ids.size, down.rows) if capture else None
            return A2Out(kept, self._rows_here(yl, tokens, down.rows))
        finally:
            ops.release()

    def launches(self) -> dict[str, int]:
        return self.ops.launches()

    def reset_launches(self) -> None:
        self.ops.reset_launches()

    def binary_sha256(self) -> str:
        """Identity of the device code that was loaded; of the library, where the device is this machine's processor."""
        return hashlib.sha256(self.ops.image).hexdigest()

    def _product(self, v: Variant, weights, x: np.ndarray) -> tuple[Blocks, np.ndarray]:
        v.entry(weights.fmt)
        x = self._store_rows(v.rules.operand, x)
        try:
            if x.shape[1] != weights.k:
                raise ValueError(f"rows of {x.shape[1]} values for weights of {weights.k}")
            operand, out = stages.product(self.ops, v, weights.on_device, self.ops.upload(x), x.shape[0])
            return self._blocks_here(operand), self._rows_here(out, x.shape[0], weights.rows)
        finally:
            self.ops.release()

    def _store_rows(self, name: str, x: np.ndarray) -> np.ndarray:
        if name not in STORES:
            raise ValueError(f"quantiser {name}: expected one of {', '.join(STORES)} on a device")
        return _rows(x)

    def _rows_here(self, rows: Buffer, n: int, m: int) -> np.ndarray:
        return self.ops.download(rows, np.float32, (n, m))

    def _blocks_here(self, b: DeviceBlocks) -> Blocks:
        scale = np.float32 if b.quantiser == "mmq" else np.float16
        codes = self.ops.download(b.codes, np.int8, (b.n, b.k))
        d = self.ops.download(b.d, scale, (b.n, b.k // 32))
        return Blocks(codes, d, None if b.s is None else self.ops.download(b.s, np.float16, (b.n, b.k // 32)), b.quantiser)

    def _blocks_there(self, b: Blocks) -> DeviceBlocks:
        return DeviceBlocks(b.quantiser, self.ops.upload(b.codes), self.ops.upload(b.d), None, *b.codes.shape)


def _ops_class(tuned: bool, guarded: bool) -> type[DeviceOps]:
    base: type[DeviceOps] = DeviceOps
    if tuned:
        from edge0verify.runtime.tuned import TunedOps

        base = TunedOps
    if not guarded:
        return base
    from edge0verify.runtime.guarded import Guards

    return type(f"Guarded{base.__name__}", (Guards, base), {})


def kernels_on(device: str, *, tuned: bool | None = None, guarded: bool = False) -> DeviceKernels:
    """The kernels of 'cuda:0', 'hip:1', 'gfx11emu'; raises `runtime.detect.Absent` with the reason where it is not here."""
    runtime, index = open_device(device)
    return DeviceKernels(runtime, index, tuned=tuned, guarded=guarded)
