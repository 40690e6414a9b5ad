"""CUDA and HIP behind one protocol: both drivers return (error, value...) tuples under the same names with their own prefix."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge0verify.runtime.protocol import Argument, Buffer, Device, DeviceError, Pointer

# Numbers that both drivers share.
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS = 1, 2, 3, 4
STREAM_NON_BLOCKING = 1
HOST_PORTABLE, HOST_MAPPED = 1, 2
MANAGED_GLOBAL = 1
MEMORY_KIND = {0: "unregistered", 1: "mapped", 2: "device", 3: "managed"}


NOT_FOUND = 500
"""The number that both drivers give for what is not there."""


def answer(table: Any, name: str, *args: Any) -> Any:
    """What a function of a driver's table returns.  DeviceError where the library, or in an older one the function, is not here."""
    try:
        return getattr(table, name)(*args)
    except (AttributeError, RuntimeError, OSError) as error:
        raise DeviceError(name, NOT_FOUND, "not found", str(error)) from error


@dataclass(frozen=True)
class Handle:
    """A driver's handle and the device it belongs to."""

    value: Any
    device: int
    name: str = ""


def pcie_link(pci: str | None) -> str | None:
    """'PCIe 5.0 x16' from sysfs; None where the machine does not say."""
    if not pci:
        return None
    folder = Path("/sys/bus/pci/devices") / pci.lower()
    try:
        speed = float((folder / "current_link_speed").read_text().split()[0])
        width = int((folder / "current_link_width").read_text())
    except (OSError, ValueError, IndexError):
        return None
    generation = {2.5: "1.0", 5.0: "2.0", 8.0: "3.0", 16.0: "4.0", 32.0: "5.0", 64.0: "6.0"}.get(speed)
    return f"PCIe {generation} x{width}" if generation and width else None


class GpuRuntime:
    """The calls that differ in their prefix alone.  A subclass names the tables and does modules, launches and compilation."""

    name = ""
    prefix = ""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._owned: dict[int, str] = {}

    # ---- every call checked and named --------------------------------------------------------------------------------------
    def _run(self, table: Any, name: str, *args: Any) -> Any:
        result = answer(table, name, *args)
        code, values = (result[0], result[1:]) if isinstance(result, tuple) else (result, ())
        if int(code) != 0:
            self._clear()
            raise DeviceError(name, int(code), getattr(code, "name", str(code)))
        return values[0] if len(values) == 1 else values

    def _call(self, name: str, *args: Any) -> Any:
        return self._run(self._table, self.prefix + name, *args)

    def _clear(self) -> None:
        """Takes a non-sticky error off the driver's last-error slot, so that no later call reports it as its own."""
        getattr(self._table, self.prefix + "GetLastError")()

    def _use(self, device: int) -> None:
        self._call("SetDevice", device)

    def _handle(self, stream: Handle | None) -> Any:
        return self._null_stream() if stream is None else stream.value

    def _null_stream(self) -> Any:
        return 0

    # ---- devices -----------------------------------------------------------------------------------------------------------
    def devices(self) -> tuple[Device, ...]:
        return tuple(self._describe(i) for i in range(int(self._call("GetDeviceCount"))))

    def _describe(self, index: int) -> Device:
        raise NotImplementedError

    def can_access_peer(self, device: int, peer: int) -> bool:
        return bool(self._call("DeviceCanAccessPeer", device, peer))

    def enable_peer(self, device: int, peer: int) -> None:
        self._use(device)
        self._call("DeviceEnablePeerAccess", peer, 0)

    def disable_peer(self, device: int, peer: int) -> None:
        self._use(device)
        self._call("DeviceDisablePeerAccess", peer)

    # ---- memory ------------------------------------------------------------------------------------------------------------
    def allocate(self, device: int, nbytes: int) -> Buffer:
        self._use(device)
        pointer = int(self._call("Malloc", max(nbytes, 1)))
        self._owned[pointer] = "Free"
        return Buffer(pointer, nbytes, device)

    def allocate_mapped(self, device: int, nbytes: int) -> Buffer:
        """Pinned host memory at the same address for the host and every device (unified addressing)."""
        self._use(device)
        pointer = int(self._call(self._host_alloc, max(nbytes, 1), HOST_PORTABLE | HOST_MAPPED))
        self._owned[pointer] = self._host_free
        return Buffer(pointer, nbytes, device, "mapped")

    def allocate_managed(self, device: int, nbytes: int) -> Buffer:
        """Memory that the driver moves to whoever touches it."""
        self._use(device)
        pointer = int(self._call("MallocManaged", max(nbytes, 1), MANAGED_GLOBAL))
        self._owned[pointer] = "Free"
        return Buffer(pointer, nbytes, device, "managed")

    def managed_safe(self, device: int) -> bool:
        """Whether host and device may touch managed memory at the same time."""
        return bool(self._attribute("ConcurrentManagedAccess", device))

    def pageable_access(self, device: int) -> bool:
        """Whether kernels may read the host's ordinary memory."""
        return bool(self._attribute("PageableMemoryAccess", device))

    def host_atomics(self, device: int) -> bool:
        """Whether the device's atomics on host memory are atomic for the host and for other devices too."""
        return bool(self._attribute("HostNativeAtomicSupported", device))

    def _attribute(self, name: str, device: int) -> int:
        raise NotImplementedError

    def free(self, buffer: Buffer) -> None:
        release = self._owned.pop(buffer.pointer, None)
        if release is None:
            raise ValueError("a buffer that was not allocated here, or freed twice")
        self._use(buffer.device)
        self._call(release, buffer.pointer)

    def copy(self, to: Buffer | np.ndarray, source: Buffer | np.ndarray, stream: Handle | None = None) -> None:
        """Copies source.nbytes; without a stream the call returns when the bytes have arrived."""
        if source.nbytes > to.nbytes:
            raise ValueError(f"{source.nbytes} bytes into {to.nbytes}")
        for side in (to, source):
            if isinstance(side, np.ndarray) and not side.flags.c_contiguous:
                raise ValueError("arrays must be contiguous")
        here = [side.device for side in (to, source) if isinstance(side, Buffer)]
        if here:
            self._use(here[0])
        kind = (
            HOST_TO_DEVICE if isinstance(source, np.ndarray) else DEVICE_TO_HOST if isinstance(to, np.ndarray) else DEVICE_TO_DEVICE
        )
        address = [side.ctypes.data if isinstance(side, np.ndarray) else side.pointer for side in (to, source)]
        if any(isinstance(side, Buffer) and side.kind != "device" for side in (to, source)):
            kind = BY_ADDRESS
        kind = self._copy_kind(kind)
        if source.nbytes == 0:
            return
        if stream is None:
            self._call("Memcpy", *address, source.nbytes, kind)
            if isinstance(source, np.ndarray):
                # From pageable memory the call may return when the bytes are staged; a stream of its own does not wait for them.
                self._call("StreamSynchronize", self._null_stream())
        else:
            self._call("MemcpyAsync", *address, source.nbytes, kind, stream.value)

    def _copy_kind(self, kind: int) -> Any:
        return kind

    def copy_peer(self, to: Buffer, source: Buffer, stream: Handle | None = None) -> None:
        """The driver's call for two devices, which needs no peer access."""
        if source.nbytes > to.nbytes:
            raise ValueError(f"{source.nbytes} bytes into {to.nbytes}")
        self._use(to.device)
        args = (to.pointer, to.device, source.pointer, source.device, source.nbytes)
        if stream is None:
            self._call("MemcpyPeer", *args)
        else:
            self._call("MemcpyPeerAsync", *args, stream.value)

    def memset(
        self, buffer: Buffer, value: int, width: int = 1, stream: Handle | None = None, *, device: int | None = None
    ) -> None:
        """Fills with `value` of 1, 2 or 4 bytes, ordered on the stream.

        device: the one that is current when the call is made; default the owner, since from another one nothing orders the bytes
        with the owner's streams.
        """
        if width not in (1, 2, 4) or buffer.nbytes % width:
            raise ValueError(f"width {width} for {buffer.nbytes} bytes")
        if buffer.nbytes == 0:
            return
        if device is not None and stream is None and width == 1:
            self._use(device)
            self._call("Memset", buffer.pointer, value, buffer.nbytes)  # the blocking form, which is not when it is far away
            return
        self._use(buffer.device if device is None else device)
        self._memset(buffer, value, width, self._handle(stream))

    def _memset(self, buffer: Buffer, value: int, width: int, stream: Any) -> None:
        raise NotImplementedError

    def attributes(self, pointer: int) -> Pointer:
        got = self._call("PointerGetAttributes", pointer)
        kind = MEMORY_KIND.get(int(got.type), str(int(got.type)))
        device = None if kind == "unregistered" else int(got.device)
        return Pointer(kind, device, int(got.devicePointer or 0) or None, int(got.hostPointer or 0) or None)

    # ---- streams, events, graphs -------------------------------------------------------------------------------------------
    def synchronise(self, device: int, stream: Handle | None = None) -> None:
        self._use(device)
        if stream is None:
            self._call("DeviceSynchronize")
        else:
            self._call("StreamSynchronize", stream.value)

    def stream(self, device: int) -> Handle:
        self._use(device)
        return Handle(self._call("StreamCreateWithFlags", STREAM_NON_BLOCKING), device)

    def event(self, device: int) -> Handle:
        self._use(device)
        return Handle(self._call("EventCreateWithFlags", 0), device)

    def record(self, event: Handle, stream: Handle | None = None) -> None:
        self._use(event.device if stream is None else stream.device)
        self._call("EventRecord", event.value, self._handle(stream))

    def wait(self, event: Handle, stream: Handle | None = None) -> None:
        """What follows on the stream starts after the event."""
        self._use(event.device if stream is None else stream.device)
        self._call("StreamWaitEvent", self._handle(stream), event.value, 0)

    def elapsed(self, start: Handle, end: Handle) -> float:
        """Milliseconds between two recorded events, after the second has happened."""
        self._call("EventSynchronize", end.value)
        return float(self._call("EventElapsedTime", start.value, end.value))

    def begin_capture(self, stream: Handle) -> None:
        self._use(stream.device)
        self._call("StreamBeginCapture", stream.value, self._capture_mode())

    def _capture_mode(self) -> Any:
        return 1  # thread local: another thread's calls do not break the capture

    def end_capture(self, stream: Handle) -> Handle:
        """The captured graph, ready to be launched."""
        graph = self._call("StreamEndCapture", stream.value)
        return Handle(self._instantiate(graph), stream.device)

    def _instantiate(self, graph: Any) -> Any:
        return self._call("GraphInstantiate", graph, 0)

    def launch_graph(self, graph: Handle, stream: Handle) -> None:
        self._use(graph.device)
        self._call("GraphLaunch", graph.value, stream.value)

    # ---- kernels -----------------------------------------------------------------------------------------------------------
    def load(self, device: int, source: str | bytes | None = None) -> Handle:
        """A module on the device: from source text, from a code object's bytes, or the project's kernels (None)."""
        image = source if isinstance(source, bytes) else self.compile(self.devices()[device].arch, source)
        self._use(device)
        return Handle(self._load(image), device)

    def compile(self, arch: str, source: str | None = None) -> bytes:
        raise NotImplementedError

    def _load(self, image: bytes) -> Any:
        raise NotImplementedError

    def kernel(self, module: Handle, name: str) -> Handle:
        raise NotImplementedError

    def launch(
        self, kernel: Handle, blocks: int, threads: int, args: Sequence[Argument], *, shared: int = 0, stream: Handle | None = None
    ) -> None:
        """Starts the kernel; a refused launch raises here, a fault in the kernel at the next synchronise."""
        self._use(kernel.device)
        plain = [
            ctypes.c_void_p(a.pointer if isinstance(a, Buffer) else None) if a is None or isinstance(a, Buffer) else a for a in args
        ]
        self._launch(kernel, blocks, threads, plain, shared, self._handle(stream))

    def _launch(self, kernel: Handle, blocks: int, threads: int, args: list, shared: int, stream: Any) -> None:
        raise NotImplementedError
