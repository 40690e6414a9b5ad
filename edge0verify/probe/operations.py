"""The operations of a memory probe, each with its check.  Runs in a process of its own, since a fault loses the devices.

Bytes are judged where the reader or the owner itself holds them: they come to the host by that device's own copy, which the control
arm has shown to be right.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from edge0verify.probe.patterns import PAD, Difference, Place, difference, pattern, places
from edge0verify.probe.types import CONTROL, NO_HOST_ATOMICS, OWN_MEMSET, Cell, Row
from edge0verify.runtime.protocol import Buffer, DeviceError, Runtime

SOURCE = '#include "probe/memory.h"\n'
BLOCK_BYTES = 4096  # of e0_move_bytes and e0_write_pattern
ADDS = 64  # blocks of e0_add_ones, 256 additions each
OLD, NEW = 0x5A, 0xC3  # bytes before and after a memset
TIMED = 3
BUSY = 4  # launches before a memset


class Bench:
    """One runtime with the probe's kernels on the two devices of a cell, and the memory that it is about."""

    def __init__(self, runtime: Runtime, cell: Cell, sizes: tuple[int, ...], seed: int) -> None:
        self.runtime, self.cell, self.sizes, self.seed = runtime, cell, sizes, seed
        self.rng = np.random.default_rng([seed, cell.reader, cell.owner])
        size = sizes[-1] + PAD
        self.kernels = {device: runtime.load(device, SOURCE) for device in {cell.reader, cell.owner}}
        self.shared = self._subject(size)
        self.of_reader = runtime.allocate(cell.reader, size)
        self.of_owner = runtime.allocate(cell.owner, size)

    def _subject(self, size: int) -> Buffer | None:
        """The memory that both sides use."""
        owner = self.cell.owner
        if self.cell.memory == "device":
            return self.runtime.allocate(owner, size)
        if self.cell.memory == "mapped host":
            return self.runtime.allocate_mapped(owner, size)
        if self.cell.memory == "managed":
            return self.runtime.allocate_managed(owner, size)
        return None

    def run(self, device: int, name: str, blocks: int, *args: Any, stream: Any = None) -> None:
        kernel = self.runtime.kernel(self.kernels[device], name)
        self.runtime.launch(kernel, blocks, 256, args, stream=stream)

    def move(self, device: int, source: Buffer, to: Buffer, *, stream: Any = None) -> None:
        self.run(
            device, "e0_move_bytes", -(-source.nbytes // BLOCK_BYTES), source, to, ctypes.c_int64(source.nbytes), stream=stream
        )

    def write(self, device: int, to: Buffer, seed: int, *, stream: Any = None) -> None:
        size, word = ctypes.c_int64(to.nbytes), ctypes.c_uint32(seed & 0xFFFFFFFF)
        self.run(device, "e0_write_pattern", -(-to.nbytes // BLOCK_BYTES), to, size, word, stream=stream)

    def put(self, to: Buffer, data: np.ndarray) -> None:
        """Bytes into memory by its owner's own path."""
        if to.kind == "device":
            self.runtime.copy(to, data)
            self.runtime.synchronise(to.device)  # other streams do not wait for a copy's last part
        else:
            to.array()[:] = data

    def get(self, source: Buffer) -> np.ndarray:
        out = np.empty(source.nbytes, np.uint8)
        self.runtime.copy(out, source)
        return out

    def clear(self, buffer: Buffer) -> None:
        """Bytes that no pattern has left behind."""
        self.runtime.memset(buffer, 0xEE)
        self.runtime.synchronise(buffer.device)


Transfer = Callable[[Bench, Place, int], tuple[Callable[[], None], Callable[[], np.ndarray]]]


def _to_reader(move: Callable[[Bench, Buffer, Buffer], None]) -> Transfer:
    """Owner's memory into the reader's own, by `move`."""

    def prepare(b: Bench, p: Place, seed: int) -> tuple[Callable[[], None], Callable[[], np.ndarray]]:
        source, to = b.shared.at(p.source, p.nbytes), b.of_reader.at(p.to, p.nbytes)
        b.put(source, pattern(seed, p.nbytes))
        b.clear(to)

        def go() -> None:
            move(b, source, to)
            b.runtime.synchronise(b.cell.reader)

        return go, lambda: b.get(to)

    return prepare


def _staged(b: Bench, source: Buffer, to: Buffer) -> None:
    b.runtime.copy(to, b.get(source))


def _kernel_write(b: Bench, p: Place, seed: int) -> tuple[Callable[[], None], Callable[[], np.ndarray]]:
    """The reader's kernel writes, the owner's kernel reads it back."""
    shared, back = b.shared.at(p.source, p.nbytes), b.of_owner.at(p.to, p.nbytes)
    b.put(shared, np.full(p.nbytes, 0xEE, np.uint8))
    b.clear(back)

    def go() -> None:
        b.write(b.cell.reader, shared, seed)
        b.runtime.synchronise(b.cell.reader)

    def read_back() -> np.ndarray:
        b.move(b.cell.owner, shared, back)
        b.runtime.synchronise(b.cell.owner)
        return b.get(back)

    return go, read_back


def _event_wait(b: Bench, p: Place, seed: int) -> tuple[Callable[[], None], Callable[[], np.ndarray]]:
    """The owner's stream writes and records, the reader's stream waits and reads, nobody else waits."""
    runtime, reader, owner = b.runtime, b.cell.reader, b.cell.owner
    shared, to = b.shared.at(p.source, p.nbytes), b.of_reader.at(p.to, p.nbytes)
    b.put(shared, np.full(p.nbytes, 0xEE, np.uint8))
    b.clear(to)
    first, second, event = runtime.stream(owner), runtime.stream(reader), runtime.event(owner)

    def go() -> None:
        b.write(owner, shared, seed, stream=first)
        runtime.record(event, first)
        runtime.wait(event, second)
        if b.cell.memory == "device" and not b.cell.peer:
            runtime.copy_peer(to, shared, second)
        else:
            b.move(reader, shared, to, stream=second)
        runtime.synchronise(reader, second)

    return go, lambda: b.get(to)


TRANSFERS: dict[str, Transfer] = {
    CONTROL: _to_reader(_staged),
    "copy": _to_reader(lambda b, source, to: b.runtime.copy(to, source)),
    "peer copy": _to_reader(lambda b, source, to: b.runtime.copy_peer(to, source)),
    "kernel read": _to_reader(lambda b, source, to: b.move(b.cell.reader, source, to)),
    "kernel write": _kernel_write,
    "event wait": _event_wait,
}


def _transfer(b: Bench, operation: str, prepare: Transfer) -> Row:
    worst: Difference | None = None
    latency = bandwidth = None
    todo = places(b.sizes, b.rng)
    for at, place in enumerate(todo):
        seed = int(b.rng.integers(1 << 32))
        go, result = prepare(b, place, seed)
        began = time.perf_counter()
        go()
        took = time.perf_counter() - began
        found = difference(pattern(seed, place.nbytes), result(), place.source)
        if found is not None and (worst is None or found.nbytes < worst.nbytes):
            worst = found
        if at == 0:
            latency = took
        if at == len(todo) - 1 and found is None:
            bandwidth = place.nbytes / _fastest(prepare, b, place, took)
    if worst is None:
        return Row(cell=b.cell, operation=operation, answer="PASS", sizes=len(todo), bandwidth=bandwidth, latency=latency)
    return Row(
        cell=b.cell, operation=operation, answer="FAIL", cause="bytes changed on the way", why=str(worst), sizes=len(todo),
        smallest_bad=worst.nbytes, latency=latency,
    )  # fmt: skip


def _fastest(prepare: Transfer, b: Bench, place: Place, first: float) -> float:
    """Seconds; a slow link is timed once."""
    best = first
    for _ in range(0 if first > 0.2 else TIMED):
        go, _result = prepare(b, place, 1)
        began = time.perf_counter()
        go()
        best = min(best, time.perf_counter() - began)
    return best


def _atomics(b: Bench) -> Row:
    """Both devices add to one word at the same time; nothing may be lost."""
    at = b.shared.at(64, 4)
    b.put(at, np.zeros(4, np.uint8))
    for device in (b.cell.reader, b.cell.owner):
        b.run(device, "e0_add_ones", ADDS, at)
    for device in (b.cell.reader, b.cell.owner):
        b.runtime.synchronise(device)
    found = int((b.get(at) if at.kind == "device" else at.array().copy()).view(np.uint32)[0])
    expected = 2 * ADDS * 256
    if found == expected:
        return Row(cell=b.cell, operation="atomics", answer="PASS", sizes=1)
    why = f"{found} after {expected} additions by both devices"
    lost = Row(cell=b.cell, operation="atomics", answer="FAIL", cause="additions lost", why=why, sizes=1, smallest_bad=4)
    both = (b.cell.reader, b.cell.owner)
    if b.cell.memory == "mapped host" and not all(b.runtime.host_atomics(device) for device in both):
        return replace(lost, cause=NO_HOST_ATOMICS, by_rule=True)  # the driver says so itself
    return lost


def _memset(b: Bench, operation: str) -> Row:
    """A memset with the reader (or the owner) current; the owner reads at once, and again when the issuer is done.

    The issuer is given other work first, since an idle device may finish a small memset before anybody can look.
    """
    runtime, owner = b.runtime, b.cell.owner
    issuer = owner if operation == OWN_MEMSET else b.cell.reader
    busy = b.of_owner if issuer == owner else b.of_reader
    stale, lost, smallest = 0, None, None
    for nbytes in b.sizes:
        shared, back = b.shared.at(0, nbytes), b.of_owner.at(0, nbytes)
        b.put(shared, np.full(nbytes, OLD, np.uint8))
        runtime.synchronise(issuer)
        for n in range(BUSY):
            b.write(issuer, busy, n)
        runtime.memset(shared, NEW, device=issuer)
        b.move(owner, shared, back)
        runtime.synchronise(owner)
        at_once = b.get(back)
        runtime.synchronise(issuer)
        b.move(owner, shared, back)
        runtime.synchronise(owner)
        later = b.get(back)
        if not np.all(later == NEW):
            lost = lost or difference(np.full(nbytes, NEW, np.uint8), later)
            smallest = smallest or nbytes
        elif not np.all(at_once == NEW):
            stale, smallest = stale + 1, smallest or nbytes
    if lost is not None:
        return Row(cell=b.cell, operation=operation, answer="FAIL", cause="memset lost", why=f"never arrives: {lost}",
                   sizes=len(b.sizes),
                   smallest_bad=smallest)  # fmt: skip
    if stale:
        why = (
            f"{stale} of {len(b.sizes)} sizes: the call returned, the owner still read the old bytes, and the new ones after "
            f"device {issuer} was synchronised"
        )
        return Row(cell=b.cell, operation=operation, answer="FAIL", cause="memset not ordered with the owner", why=why,
                   sizes=len(b.sizes), smallest_bad=smallest)  # fmt: skip
    return Row(cell=b.cell, operation=operation, answer="PASS", sizes=len(b.sizes))


def _pageable(b: Bench, operation: str) -> Row:
    """Ordinary host memory: copied to the reader, back from it, and read by a kernel where the device can."""
    b.shared = Buffer(0, 0, b.cell.owner, "host")
    host = np.empty(b.sizes[-1] + PAD, np.uint8)

    def prepare(b: Bench, p: Place, seed: int) -> tuple[Callable[[], None], Callable[[], np.ndarray]]:
        source, to = host[p.source : p.source + p.nbytes], b.of_reader.at(p.to, p.nbytes)
        expected = pattern(seed, p.nbytes)
        source[:] = expected
        b.clear(to)
        if operation == "copy back":
            b.runtime.copy(to, source)
            source[:] = 0xEE
            return lambda: b.runtime.copy(source, to), lambda: source
        if operation == "copy":
            return lambda: b.runtime.copy(to, source), lambda: b.get(to)
        there = Buffer(source.ctypes.data, p.nbytes, b.cell.reader, "host", host)

        def go() -> None:
            b.move(b.cell.reader, there, to)
            b.runtime.synchronise(b.cell.reader)

        return go, lambda: b.get(to)

    return _transfer(b, operation, prepare)


def run_operations(runtime: Runtime, cell: Cell, operations: tuple[str, ...], sizes: tuple[int, ...], seed: int) -> Iterator[Row]:
    """One row per operation, ended by the first that loses a device; the rest is for another process."""
    reason = obstacle(runtime, cell)
    if reason is not None:
        for operation in operations:
            yield Row(cell=cell, operation=operation, answer="INCONCLUSIVE", cause=reason[0], why=reason[1])
        return
    try:
        if cell.peer:
            runtime.enable_peer(cell.reader, cell.owner)
        b = Bench(runtime, cell, sizes, seed)
    except DeviceError as error:
        for operation in operations:
            yield Row(cell=cell, operation=operation, answer="INCONCLUSIVE", cause="could not be set up", why=str(error))
        return
    for operation in operations:
        if cell.memory == "pageable" and operation == "kernel read" and not runtime.pageable_access(cell.reader):
            continue  # the device says that it cannot: not an operation that a program may try
        try:
            if operation == "atomics":
                yield _atomics(b)
            elif operation in ("memset", OWN_MEMSET):
                yield _memset(b, operation)
            elif cell.memory == "pageable":
                yield _pageable(b, operation)
            else:
                yield _transfer(b, operation, TRANSFERS[operation])
        except DeviceError as error:
            yield failed(cell, operation, error)
            if lost(runtime, cell):
                return


def obstacle(runtime: Runtime, cell: Cell) -> tuple[str, str] | None:
    """Why a cell cannot be probed: (cause, sentence)."""
    if cell.peer and not runtime.can_access_peer(cell.reader, cell.owner):
        return "peer access not offered", f"the driver offers device {cell.reader} no peer access to device {cell.owner}"
    if cell.memory == "managed" and not all(runtime.managed_safe(device) for device in (cell.reader, cell.owner)):
        return "managed memory not safe", "host and device may not touch managed memory at the same time here"
    return None


def failed(cell: Cell, operation: str, error: DeviceError) -> Row:
    """The row of an operation that ended with a driver's error."""
    hang = error.code == 702
    detail = {"call": error.call, "code": error.code, "name": error.name, "detail": error.detail}
    cause = "no completion" if hang else "refused"
    return Row(cell=cell, operation=operation, answer="FAIL", cause=cause, why=str(error), error=detail)


def lost(runtime: Runtime, cell: Cell) -> bool:
    """Whether a device still fails when it is only asked to finish."""
    try:
        for device in (cell.reader, cell.owner):
            runtime.synchronise(device)
    except DeviceError:
        return True
    return False
