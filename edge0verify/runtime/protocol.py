"""What every device runtime offers, whichever driver stands behind it.

A runtime is one driver on this machine (`cpu`, `cuda`, `hip`, `sim:N`, `gfx11emu`) with devices numbered from 0.  All calls raise
`DeviceError` with the driver's own call and error name; nothing returns a code that a caller could forget.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np


class DeviceError(RuntimeError):
    """A driver call that failed: `call`, `code` and `name` are the driver's own."""

    def __init__(self, call: str, code: int, name: str, detail: str = "") -> None:
        super().__init__(f"{call}: {name} ({code}){': ' + detail if detail else ''}")
        self.call, self.code, self.name, self.detail = call, code, name, detail


@dataclass(frozen=True)
class Device:
    """One device as its driver describes it; memory in bytes, None where the driver does not say."""

    runtime: str
    index: int
    name: str
    arch: str
    memory: int | None
    driver: str
    units: int | None = None
    pci: str | None = None
    link: str | None = None
    peer_link: str | None = None
    """A direct link to other devices, where there is one."""

    def __str__(self) -> str:
        return f"{self.runtime}:{self.index}"


@dataclass(frozen=True)
class Buffer:
    """Memory as a kernel sees it.  kind: 'device', 'mapped' (host memory the device can read), 'managed' or 'host'."""

    pointer: int
    nbytes: int
    device: int
    kind: str = "device"
    owner: Any = field(default=None, repr=False, compare=False)

    def at(self, offset: int, nbytes: int | None = None) -> Buffer:
        """The part that starts at byte `offset`."""
        size = self.nbytes - offset if nbytes is None else nbytes
        if offset < 0 or size < 0 or offset + size > self.nbytes:
            raise ValueError(f"bytes {offset}..{offset + size} of a buffer of {self.nbytes}")
        return Buffer(self.pointer + offset, size, self.device, self.kind, self.owner)

    def array(self, dtype: Any = np.uint8) -> np.ndarray:
        """The host's view of mapped or host memory."""
        if self.kind == "device":
            raise ValueError("device memory has no host view")
        raw = (ctypes.c_ubyte * self.nbytes).from_address(self.pointer)
        raw.owner = self.owner  # a view keeps the memory's owner
        return np.frombuffer(raw, dtype)


@dataclass(frozen=True)
class Pointer:
    """Pointer attributes: what the driver knows of an address."""

    kind: str
    device: int | None
    device_pointer: int | None
    host_pointer: int | None


Argument = Buffer | ctypes._SimpleCData | None


@runtime_checkable
class Runtime(Protocol):
    """The protocol.  `stream` None is the device's default stream; handles (module, kernel, stream, event, graph) are opaque."""

    name: str

    def devices(self) -> tuple[Device, ...]: ...
    def allocate(self, device: int, nbytes: int) -> Buffer: ...
    def allocate_mapped(self, device: int, nbytes: int) -> Buffer: ...
    def allocate_managed(self, device: int, nbytes: int) -> Buffer: ...
    def managed_safe(self, device: int) -> bool: ...
    def pageable_access(self, device: int) -> bool: ...
    def host_atomics(self, device: int) -> bool: ...
    def free(self, buffer: Buffer) -> None: ...
    def copy(self, to: Buffer | np.ndarray, source: Buffer | np.ndarray, stream: Any = None) -> None: ...
    def copy_peer(self, to: Buffer, source: Buffer, stream: Any = None) -> None: ...
    def memset(
        self, buffer: Buffer, value: int, width: int = 1, stream: Any = None, *, device: int | None = None
    ) -> None: ...
    def compile(self, arch: str, source: str | None = None) -> bytes: ...
    def load(self, device: int, source: str | bytes | None = None) -> Any: ...
    def kernel(self, module: Any, name: str) -> Any: ...
    def launch(
        self, kernel: Any, blocks: int, threads: int, args: Sequence[Argument], *, shared: int = 0, stream: Any = None
    ) -> None: ...
    def synchronise(self, device: int, stream: Any = None) -> None: ...
    def attributes(self, pointer: int) -> Pointer: ...
    def can_access_peer(self, device: int, peer: int) -> bool: ...
    def enable_peer(self, device: int, peer: int) -> None: ...
    def disable_peer(self, device: int, peer: int) -> None: ...
    def stream(self, device: int) -> Any: ...
    def event(self, device: int) -> Any: ...
    def record(self, event: Any, stream: Any = None) -> None: ...
    def wait(self, event: Any, stream: Any = None) -> None: ...
    def elapsed(self, start: Any, end: Any) -> float: ...


@dataclass(frozen=True)
class Detected:
    """A runtime that is here (`runtime`), or the reason it is not."""

    name: str
    runtime: Runtime | None
    reason: str | None = None
