"""The forward pass over several devices: each runs the stages of its layers with weights of its own.

Each device has its own D/U pair.  The embedding table is in mapped host memory, since the first device reads it for the prompt and
the last for the drafter.  Rows go from one device to the next through mapped host memory: a kernel writes them there, the next
device's stream waits for the event behind it and reads them with a kernel of its own.  No result depends on the split.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from edge0verify.engine.forward import Engine, Names, Tap
from edge0verify.engine.split import MISTAKES, Split, SplitFault, Use, check_uses
from edge0verify.model import Model
from edge0verify.records.errors import InputError
from edge0verify.runtime.detect import Absent, open_device
from edge0verify.runtime.protocol import Buffer, DeviceError, Runtime
from edge0verify.variants.device_kernels import DeviceKernels
from edge0verify.variants.kernels import kernel_source_sha256
from edge0verify.variants.weights import layer_weights, packed, use_anothers

MOVE_SOURCE = '#include "probe/memory.h"\n'
MOVE_BYTES = 4096  # of a block of e0_move_bytes
PAIR = ("latent_down.weight", "latent_up.weight")
TABLE = "tok_embd.weight"
STAGE_OF = {"ffn_gate_exps": "A1", "ffn_up_exps": "A1", "ffn_down_exps": "A2"}
ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")


def open_runtime(split: Split, *, knobs: str | None = None, seed: int = 0) -> Runtime:
    """One runtime with all devices of a split.  Raises Absent with the reason where one is not here."""
    if split.runtime == "cpu":
        raise InputError(f"--split {split}: expected devices with memory of their own, as sim:0 or cuda:0")
    most = max(split.devices)
    if split.runtime == "sim":
        from edge0verify.runtime.sim import SimRuntime
        from edge0verify.runtime.sim_knobs import parse_knobs

        return SimRuntime(most + 1, knobs=parse_knobs(knobs), seed=seed)
    if knobs:
        raise InputError("knobs: only simulated devices have them")
    runtime, _ = open_device(f"{split.runtime}:{most}")
    return runtime


class Launches:
    """The kernels of all devices of a split as one, for what a manifest says of them."""

    def __init__(self, kernels: dict[int, DeviceKernels]) -> None:
        self._kernels = kernels
        self.isa = ", ".join(k.isa for k in kernels.values())

    def launches(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for kernels in self._kernels.values():
            for key, n in kernels.launches().items():
                total[key] = total.get(key, 0) + n
        return total

    def binary_sha256(self) -> str:
        return next(iter(self._kernels.values())).binary_sha256()

    def source_sha256(self) -> str:
        return kernel_source_sha256()


class SplitEngine(Engine):
    """An Engine whose stages and attention projections run on the devices of a split.

    mistake: None, or one of MISTAKES, planted for tests: the run then ends in a SplitFault that names tensor, owner and reader.
    """

    def __init__(self, model: Model, split: Split, runtime: Runtime, *, mistake: str | None = None, **options: Any) -> None:
        if mistake not in (None, *MISTAKES):
            raise InputError(f"planted mistake {mistake}: expected one of {', '.join(MISTAKES)}")
        if len(split.devices) > 1 and len(runtime.devices()) <= max(split.devices):
            raise Absent(f"{split}: {runtime.name} has {len(runtime.devices())} devices")
        self.split, self.runtime, self.mistake = split, runtime, mistake
        self.kernels = {device: DeviceKernels(runtime, device) for device in split.devices}
        self.launched = Launches(self.kernels)
        first = self.kernels[split.devices[0]]
        super().__init__(model, kernels=first, kernels_for=lambda layer, stage: self.kernels[split.device_of(layer)], **options)
        self._modules = {device: runtime.load(device, MOVE_SOURCE) for device in split.devices}
        self._streams = {device: runtime.stream(device) for device in split.devices}
        self._place_table()
        self._uses = tuple(self._pack())
        self._hop: Buffer | None = None

    # ---- memory ------------------------------------------------------------------------------------------------------------
    def _place_table(self) -> None:
        table = np.ascontiguousarray(self._embedding, np.float32)
        if self.mistake == "embedding":
            self._table = self.runtime.allocate(self.split.devices[0], table.nbytes)
            self.runtime.copy(self._table, table)
        else:
            self._table = self.runtime.allocate_mapped(self.split.devices[0], table.nbytes)
            self._table.array(np.float32)[:] = table.reshape(-1)

    def _pack(self) -> Iterator[Use]:
        """Puts every weight where it belongs; each as the pointer that a stage will be given."""
        model, first = self.model, self.kernels[self.split.devices[0]]
        if self.mistake == "pair":
            for name in PAIR:
                for kernels in self.kernels.values():
                    use_anothers(model, name, kernels, first)
        drafter = ["mtp"] if self.config.mtp_layers else []
        for device in dict.fromkeys([self.split.device_of(0), *([self.split.device_of("mtp")] if drafter else [])]):
            layer = 0 if device == self.split.device_of(0) else "mtp"
            yield Use(layer, "embedding", TABLE, self._table.pointer, self._table.nbytes, device)
        for layer in [*range(self.config.layers), *drafter]:
            device = self.split.device_of(layer)
            kernels = self.kernels[device]
            w = layer_weights(model, layer, kernels)
            named = [("D", PAIR[0], w.down), ("U", PAIR[1], w.up)]
            for part, weights in (("ffn_gate_exps", w.gate_exps), ("ffn_up_exps", w.up_exps), ("ffn_down_exps", w.down_exps)):
                named.append((STAGE_OF[part], model.layer(layer, part).name, weights))
            names = [model.layer(layer, part).name for part in ATTENTION] + (["mtp.fc.weight"] if layer == "mtp" else [])
            named += [("linear", name, packed(model, name, kernels)) for name in names]
            for stage, tensor, weights in named:
                raw = weights.on_device.raw
                yield Use(layer, stage, tensor, raw.pointer, raw.nbytes, device)

    def uses(self) -> tuple[Use, ...]:
        """Every pointer that a stage is given, with the device that reads it."""
        return self._uses

    # ---- rows between devices ------------------------------------------------------------------------------------------------
    def _run(self, device: int, name: str, blocks: int, *args: Any) -> None:
        kernel = self.runtime.kernel(self._modules[device], name)
        self.runtime.launch(kernel, blocks, 256, args, stream=self._streams[device])

    def _embed(self, ids: np.ndarray, layer: int | str) -> np.ndarray:
        device, width = self.split.device_of(layer), self.config.hidden
        ops = self.kernels[device].ops
        with self._told(layer, "embedding", device):
            try:
                there, out = ops.upload(ids), ops.buffer(4 * len(ids) * width)
                self.runtime.synchronise(device)  # the stream of the kernel does not wait for the upload's
                sizes = ctypes.c_int64(len(ids)), ctypes.c_int(width)
                self._run(device, "e0_gather_rows", -(-len(ids) * width // 256), self._table, there, out, *sizes)
                self.runtime.synchronise(device, self._streams[device])
                return ops.download(out, np.float32, (len(ids), width))
            finally:
                ops.release()

    def _enter(self, layer: int | str, x: np.ndarray) -> np.ndarray:
        """The rows as the layer's device has them: handed over where the layer before is on another."""
        if layer in (0, "mtp"):
            return x
        source, target = self.split.device_of(layer - 1), self.split.device_of(layer)
        if source == target:
            return x
        ops, runtime = (self.kernels[source].ops, self.kernels[target].ops), self.runtime
        with self._told(layer, "hand-off", target):
            try:
                here, there = ops[0].upload(x), ops[1].buffer(x.nbytes)
                runtime.synchronise(source)
                hop, size, blocks = self._hand_off(source, x.nbytes), ctypes.c_int64(x.nbytes), -(-x.nbytes // MOVE_BYTES)
                event = runtime.event(source)
                self._run(source, "e0_move_bytes", blocks, here, hop, size)
                runtime.record(event, self._streams[source])
                runtime.wait(event, self._streams[target])
                self._run(target, "e0_move_bytes", blocks, hop, there, size)
                runtime.synchronise(target, self._streams[target])
                return ops[1].download(there, np.float32, x.shape)
            finally:
                for each in ops:
                    each.release()

    def _hand_off(self, device: int, nbytes: int) -> Buffer:
        if self._hop is None or self._hop.nbytes < nbytes:
            if self._hop is not None:
                self.runtime.free(self._hop)
            self._hop = self.runtime.allocate_mapped(device, nbytes)
        return self._hop.at(0, nbytes)

    # ---- faults --------------------------------------------------------------------------------------------------------------
    def _layer(self, layer: int | str, x: np.ndarray, tap: Tap | None, names: Names) -> np.ndarray:
        with self._told(layer, None, self.split.device_of(layer)):
            return super()._layer(layer, x, tap, names)

    @contextmanager
    def _told(self, layer: int | str, stage: str | None, device: int) -> Iterator[None]:
        """Turns a device's error into one that says which pointer of this layer (and stage) was out of reach."""
        log = getattr(self.runtime, "log", None)
        if log is not None:
            log.where = f"layer {layer}"
        try:
            yield
        except DeviceError as error:
            uses = [u for u in self._uses if u.layer == layer or u.stage == stage == "embedding"]
            uses = [u for u in uses if u.reader == device and (stage is None or u.stage == stage)]
            where = f"layer {layer}" + (f", {stage}" if stage else "")
            hit = self._at_fault(device, uses) or check_uses(self.runtime, uses)
            raise SplitFault(where, f"{self.runtime.name}:{device}", error, hit) from error

    def _at_fault(self, device: int, uses: list[Use]) -> list:
        """The uses that hold the address the device died on, where the runtime knows it."""
        address = getattr(self.runtime, "faults", {}).get(device)
        if address is None:
            return []
        return check_uses(self.runtime, [u for u in uses if u.pointer <= address < u.pointer + u.nbytes])
