"""Simulated devices: `sim:N` is N processes that run the compiled kernels, each in memory of its own.

Work is queued on streams and starts when somebody waits for it, which is as late as a real device may start it.  A kernel that
touches another device's memory without peer access dies of a real SIGSEGV; that device answers errors from then on.  `Knobs` break
the rules one by one, and a `LogBook` holds the lines that an engine and a kernel would have written.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Sequence

import numpy as np

from edge0verify.runtime.protocol import Argument, Buffer, Detected, Device, DeviceError, Pointer
from edge0verify.runtime.sim_knobs import FORBIDDEN, Knobs, Plan
from edge0verify.runtime.sim_log import LogBook
from edge0verify.runtime.sim_memory import Arena, make_arenas
from edge0verify.runtime.sim_process import POINTER, SCALAR, DeviceProcess, Reply
from edge0verify.runtime.sim_queue import Queues, SimKernel, SimStream, error
from edge0verify.runtime.sources import native_file

LANE_BYTES_S = 128e6
"""Bandwidth of one lane of the simulated link: x16 is 2 GB/s, about what the processes here can move."""
LINK = "simulated x{}"
DEFAULT_COUNT = 2
HEALTHY = Knobs()


def detect(count: int = DEFAULT_COUNT) -> Detected:
    """Simulated devices are here where the package was built; their processes start when they are first used."""
    missing = [name for name in ("_simdev", "_phase") if native_file(name) is None]
    return Detected("sim", None, f"{', '.join(missing)} not built") if missing else Detected("sim", SimRuntime(count))


class SimRuntime(Queues):
    """N simulated devices behind the protocol.

    seed: addresses, log lines and what a knob hits.  memory: bytes of a device, host_memory: of mapped memory, shared.
    patience_s: how long a wait for a device that never answers lasts before error 702; None waits for ever, as drivers do.
    """

    name = "sim"

    def __init__(
        self, count: int = DEFAULT_COUNT, *, knobs: Knobs = HEALTHY, seed: int = 0, memory: int = 1 << 30,
        host_memory: int = 1 << 29, patience_s: float | None = None, log: LogBook | None = None,
    ) -> None:  # fmt: skip
        if not 1 <= count <= 63:
            raise ValueError(f"1 to 63 simulated devices, not {count}")
        self.count, self.knobs, self.seed, self.memory, self.patience_s = count, knobs, seed, memory, patience_s
        rng = random.Random(f"sim {seed}")
        self.plan = Plan.draw(count, rng)
        self.log = log or LogBook(seed, devices=count)
        self._flip_seed = rng.randrange(1 << 32)
        self._host_memory, self._rng = host_memory, rng
        self._arenas: list[Arena] = []
        self._processes: dict[int, DeviceProcess] = {}
        self._lost: dict[int, int] = {}
        self.faults: dict[int, int] = {}
        """Device -> address that it died on."""
        self._peers: set[tuple[int, int]] = set()
        self._streams: list[list[SimStream]] = [[SimStream(i, 0)] for i in range(count)]
        self._managed: set[int] = set()
        self._crossed = 0
        self._finalizer = weakref.finalize(self, _close, self._processes, self._arenas)

    # ---- processes ---------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Ends every process and frees all memory; also done when the runtime is forgotten or the program ends."""
        self._finalizer()

    def _memory(self) -> list[Arena]:
        if not self._arenas:
            self._arenas.extend(make_arenas(self.count, self.memory, self._host_memory, self._rng))
        return self._arenas

    def _check(self, call: str, device: int) -> None:
        if not 0 <= device < self.count:
            raise DeviceError(call, 101, "invalid device", f"sim has devices 0 to {self.count - 1}")
        if device in self._lost:
            raise error(call, self._lost[device], f"device {device} failed before")

    def _process(self, device: int) -> DeviceProcess:
        if device not in self._processes:
            corrupt = self.knobs.peer == "corrupt" and self.plan.pair is not None and self.plan.pair[0] == device
            self._processes[device] = DeviceProcess(
                device,
                [(a.fd, a.base, a.size) for a in self._memory()],
                rate=LANE_BYTES_S * (1 if self.knobs.link == "x1" else 16),
                flip_seed=self._flip_seed,
                flip_from=self.plan.flip_from,
                corrupt_mask=1 << self.plan.pair[1] if corrupt else 0,
            )
            for reader, owner in self._peers:
                if reader == device:
                    self._processes[device].peer(owner, True)
        return self._processes[device]

    def _done(self, call: str, device: int, reply: Reply) -> None:
        """Raises what a reply says; a fault loses the device."""
        if reply.code == 0:
            return
        if reply.code not in (702,) and not reply.gone:
            raise error(call, reply.code)
        self._lost[device] = reply.code
        for stream in self._streams[device]:
            stream.pending.clear()
        if reply.address is not None:
            self.faults[device] = reply.address
            self.log.page_fault(device, reply.address, call=call)
            self._processes[device].ended()
            raise error(call, reply.code, f"device {device} at 0x{reply.address:x}")
        raise error(call, reply.code, f"device {device} does not answer")

    # ---- devices -----------------------------------------------------------------------------------------------------------
    def devices(self) -> tuple[Device, ...]:
        link = LINK.format(1 if self.knobs.link == "x1" else 16)
        return tuple(
            Device(
                "sim",
                i,
                f"simulated device {i}",
                "portable",
                self.memory,
                f"seed {self.seed}, {self.knobs}",
                1,
                self.log.cards[i].pci,
                link,
            )
            for i in range(self.count)
        )

    def can_access_peer(self, device: int, peer: int) -> bool:
        return device != peer and self.knobs.peer != "off"

    def enable_peer(self, device: int, peer: int) -> None:
        self._check("enable peer access", device)
        self._check("enable peer access", peer)
        if not self.can_access_peer(device, peer):
            raise error("enable peer access", 217)
        if (device, peer) in self._peers:
            raise error("enable peer access", 704)
        self._done("enable peer access", device, self._process(device).peer(peer, True))
        self._peers.add((device, peer))

    def disable_peer(self, device: int, peer: int) -> None:
        self._check("disable peer access", device)
        if (device, peer) not in self._peers:
            raise error("disable peer access", 705)
        self._done("disable peer access", device, self._process(device).peer(peer, False))
        self._peers.discard((device, peer))

    def peer_enabled(self, device: int, peer: int) -> bool:
        """Whether kernels of `device` may touch memory of `peer` now."""
        return (device, peer) in self._peers

    # ---- memory ------------------------------------------------------------------------------------------------------------
    def allocate(self, device: int, nbytes: int) -> Buffer:
        self._check("allocate", device)
        self._forbidden(device, "allocate")
        return Buffer(self._memory()[device].allocate(nbytes), nbytes, device)

    def allocate_mapped(self, device: int, nbytes: int) -> Buffer:
        self._check("allocate mapped", device)
        return Buffer(self._memory()[-1].allocate(nbytes), nbytes, device, "mapped", self)

    def allocate_managed(self, device: int, nbytes: int) -> Buffer:
        """Memory that migrates on a real device; here it stays in host memory."""
        buffer = self.allocate_mapped(device, nbytes)
        self._managed.add(buffer.pointer)
        return Buffer(buffer.pointer, nbytes, device, "managed", self)

    def managed_safe(self, device: int) -> bool:
        return True

    def pageable_access(self, device: int) -> bool:
        """Whether kernels may read the host's ordinary memory."""
        return False

    def host_atomics(self, device: int) -> bool:
        """Processes that share pages have them."""
        return True

    def free(self, buffer: Buffer) -> None:
        for arena in self._arenas:
            if buffer.pointer in arena.used:
                arena.free(buffer.pointer)
                self._managed.discard(buffer.pointer)
                return
        raise ValueError("a buffer that was not allocated here, or freed twice")

    def attributes(self, pointer: int) -> Pointer:
        for index, arena in enumerate(self._arenas):
            found = arena.allocation(pointer)
            if found is not None and index < self.count:
                return Pointer("device", index, pointer, None)
            if found is not None:
                return Pointer("managed" if found[0] in self._managed else "mapped", None, pointer, pointer)
        return Pointer("unregistered", None, None, pointer)

    def copy(self, to: Buffer | np.ndarray, source: Buffer | np.ndarray, stream: SimStream | None = None) -> None:
        """Copies source.nbytes; without a stream the call returns when the bytes have arrived.

        An array is staged in mapped host memory, so for one only the simulated part of the way can break.
        """
        if source.nbytes > to.nbytes:
            raise ValueError(f"{source.nbytes} bytes into {to.nbytes}")
        for side in (to, source):
            if isinstance(side, np.ndarray) and not side.flags.c_contiguous:
                raise ValueError("arrays must be contiguous")
        device = next(side.device for side in (to, source) if isinstance(side, Buffer)) if stream is None else stream.device
        call = "copy" if stream is None else "copy on a stream"
        self._check(call, device)
        if stream is None:
            self._forbidden(device, FORBIDDEN[0])
        if source.nbytes == 0:
            return
        if isinstance(to, np.ndarray) and isinstance(source, np.ndarray):
            to.reshape(-1).view(np.uint8)[: source.nbytes] = source.reshape(-1).view(np.uint8)
            return
        between = isinstance(to, Buffer) and isinstance(source, Buffer) and to.kind == source.kind == "device"
        wrong = self.knobs.copy == "wrong" and between and to.device != source.device and source.nbytes >= self.plan.flip_from
        if between and self.plan.pair not in (None, (to.device, source.device)):
            wrong = False
        stage = (
            self.allocate_mapped(device, source.nbytes) if not isinstance(to, Buffer) or not isinstance(source, Buffer) else None
        )
        if isinstance(source, np.ndarray):
            stage.array()[:] = np.frombuffer(source.reshape(-1).view(np.uint8), np.uint8)
        nbytes = source.nbytes
        target, origin = (
            (to if isinstance(to, Buffer) else stage).pointer,
            (source if isinstance(source, Buffer) else stage).pointer,
        )

        def work() -> None:
            self._done(call, device, self._process(device).copy(target, origin, nbytes, wrong=wrong))
            if isinstance(to, np.ndarray):
                to.reshape(-1).view(np.uint8)[:nbytes] = stage.array()

        def last() -> None:
            work()
            if stage is not None and not repeated:
                self.free(stage)

        repeated = stream is not None and stream.capturing is not None
        self._submit(device, stream, last, wait=stream is None, crosses=between and to.device != source.device)

    def copy_peer(self, to: Buffer, source: Buffer, stream: SimStream | None = None) -> None:
        """The call made for two devices; works without peer access as well."""
        self.copy(to, source, stream)

    def memset(
        self, buffer: Buffer, value: int, width: int = 1, stream: SimStream | None = None, *, device: int | None = None
    ) -> None:
        """Fills with `value` of 1, 2 or 4 bytes.  device: the one that is current when the call is made (default: the owner)."""
        if width not in (1, 2, 4) or buffer.nbytes % width:
            raise ValueError(f"width {width} for {buffer.nbytes} bytes")
        issuer = stream.device if stream is not None else buffer.device if device is None else device
        self._check("memset", issuer)
        if stream is None:
            self._forbidden(issuer, FORBIDDEN[1])
        across = buffer.kind == "device" and issuer != buffer.device
        if across and (issuer, buffer.device) not in self._peers:
            raise error("memset", 1, f"memory of device {buffer.device} with device {issuer} current")
        pointer, nbytes = buffer.pointer, buffer.nbytes

        def work() -> None:
            self._done("memset", issuer, self._process(issuer).fill(pointer, value & (1 << 8 * width) - 1, nbytes, width))

        hit = self.knobs.memset == "early" and across
        self._submit(issuer, stream, work, wait=across and stream is None and not hit)

    # ---- kernels -----------------------------------------------------------------------------------------------------------
    def compile(self, arch: str, source: str | None = None) -> bytes:
        """The library's own bytes: simulated devices run the kernels they were built with."""
        library = native_file("_phase")
        return library.read_bytes() if library else b""

    def load(self, device: int, source: str | bytes | None = None) -> int:
        self._check("load", device)
        return device

    def kernel(self, module: int, name: str) -> SimKernel:
        return SimKernel(module, name)

    def launch(
        self,
        kernel: SimKernel,
        blocks: int,
        threads: int,
        args: Sequence[Argument],
        *,
        shared: int = 0,
        stream: SimStream | None = None,
    ) -> None:
        """Queues the kernel; what it does wrong comes out at the next wait."""
        device = kernel.device
        self._check(f"launch {kernel.name}", device)
        packed = [
            (POINTER, (0 if a is None else a.pointer).to_bytes(8, "little"), 0 if a is None else a.nbytes)
            if a is None or isinstance(a, Buffer)
            else (SCALAR, bytes(a), 0)
            for a in args
        ]
        crosses = any(isinstance(a, Buffer) and a.kind == "device" and a.device != device for a in args)

        def work() -> None:
            self._done(f"launch {kernel.name}", device, self._process(device).launch(kernel.name, blocks, packed))

        self._submit(device, stream, work, crosses=crosses)


def _close(processes: dict[int, DeviceProcess], arenas: list[Arena]) -> None:
    for process in processes.values():
        process.close()
    for arena in arenas:
        arena.close()
    processes.clear()
    arenas.clear()
