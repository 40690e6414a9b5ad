"""Streams, events and graphs of simulated devices.

A stream is a queue of work that starts when somebody waits for it: later than most real devices would, and never later than they
may.  What a program does not order is therefore seen out of order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from edge0verify.runtime.protocol import DeviceError
from edge0verify.runtime.sim_knobs import FORBIDDEN, Knobs, Plan
from edge0verify.runtime.sim_process import DeviceProcess, Reply

ERRORS = {
    1: "invalid value", 2: "out of memory", 217: "peer access unsupported", 400: "invalid handle", 500: "not found",
    700: "illegal memory access", 702: "launch timed out", 704: "peer access already enabled", 705: "peer access not enabled",
    719: "launch failed", 900: "operation not permitted when stream is capturing", 901: "capture invalidated", 999: "device lost",
}  # fmt: skip


@dataclass(eq=False)
class SimStream:
    """A queue of one device; `capturing` is the list that a capture fills."""

    device: int
    number: int
    pending: deque[Callable[[], None]] = field(default_factory=deque)
    capturing: list[Callable[[], None]] | None = None
    broken: bool = False


@dataclass(eq=False)
class SimEvent:
    """`mark` is the latest record: (stream, [time or None])."""

    device: int
    mark: tuple[SimStream, list[float | None]] | None = None


@dataclass(frozen=True)
class SimKernel:
    device: int
    name: str


@dataclass(frozen=True)
class SimGraph:
    device: int
    work: tuple[Callable[[], None], ...]


def error(call: str, code: int, detail: str = "") -> DeviceError:
    return DeviceError(call, code, ERRORS.get(code, "unknown error"), detail)


class Queues:
    """The part of the runtime that orders work."""

    knobs: Knobs
    plan: Plan
    patience_s: float | None
    _streams: list[list[SimStream]]
    _crossed: int

    def _check(self, call: str, device: int) -> None:
        raise NotImplementedError

    def _process(self, device: int) -> DeviceProcess:
        raise NotImplementedError

    def _done(self, call: str, device: int, reply: Reply) -> None:
        raise NotImplementedError

    # ---- queues ------------------------------------------------------------------------------------------------------------
    def _submit(
        self, device: int, stream: SimStream | None, work: Callable[[], None], *, wait: bool = False, crosses: bool = False
    ) -> None:
        queue = stream or self._streams[device][0]
        if queue.capturing is not None:
            queue.capturing.append(work)
            return
        queue.pending.append(self._lose(device, work) if crosses else work)
        if wait:
            self._drain(queue)

    def _lose(self, device: int, work: Callable[[], None]) -> Callable[[], None]:
        """Counts submissions that involve two devices; from the seed's own on, the doorbell of one device is lost."""
        if self.knobs.doorbell != "lost":
            return work
        self._crossed += 1
        if self._crossed < self.plan.lost_after:
            return work
        return lambda: self._done("synchronise", device, self._process(device).hang(self.patience_s))

    def _drain(self, stream: SimStream, until: Callable[[], bool] | None = None) -> None:
        while stream.pending and not (until and until()):
            stream.pending.popleft()()

    def synchronise(self, device: int, stream: SimStream | None = None) -> None:
        self._check("synchronise", device)
        if any(s.capturing is not None for s in self._streams[device]):
            self._forbidden(device, FORBIDDEN[3] if stream is None else FORBIDDEN[2])
            return
        for queue in self._streams[device] if stream is None else [stream]:
            self._drain(queue)

    def stream(self, device: int) -> SimStream:
        self._check("create stream", device)
        self._streams[device].append(SimStream(device, len(self._streams[device])))
        return self._streams[device][-1]

    def event(self, device: int) -> SimEvent:
        self._check("create event", device)
        return SimEvent(device)

    def record(self, event: SimEvent, stream: SimStream | None = None) -> None:
        queue = stream or self._streams[event.device][0]
        self._check("record event", queue.device)
        if queue.device != event.device:
            raise error("record event", 400, f"event of device {event.device} on a stream of device {queue.device}")
        happened: list[float | None] = [None]
        event.mark = (queue, happened)
        self._submit(queue.device, queue, lambda: happened.__setitem__(0, time.perf_counter()))

    def wait(self, event: SimEvent, stream: SimStream | None = None) -> None:
        """What follows on the stream starts after the event's latest record."""
        queue = stream or self._streams[event.device][0]
        self._check("wait for event", queue.device)
        if event.mark is None:
            return
        source, happened = event.mark
        self._submit(
            queue.device, queue, lambda: self._drain(source, lambda: happened[0] is not None), crosses=source.device != queue.device
        )

    def elapsed(self, start: SimEvent, end: SimEvent) -> float:
        """Milliseconds between two recorded events, after the second has happened."""
        times = []
        for event in (start, end):
            if event.mark is None:
                raise error("elapsed", 400, "an event that was never recorded")
            source, happened = event.mark
            self._drain(source, lambda happened=happened: happened[0] is not None)
            times.append(happened[0])
        return (times[1] - times[0]) * 1e3

    # ---- graphs ------------------------------------------------------------------------------------------------------------
    def begin_capture(self, stream: SimStream) -> None:
        self._check("begin capture", stream.device)
        stream.capturing, stream.broken = [], False

    def end_capture(self, stream: SimStream) -> SimGraph:
        work, stream.capturing = stream.capturing, None
        if work is None or stream.broken:
            raise error("end capture", 901)
        return SimGraph(stream.device, tuple(work))

    def launch_graph(self, graph: SimGraph, stream: SimStream) -> None:
        self._check("launch graph", graph.device)
        stream.pending.extend(graph.work)

    def _forbidden(self, device: int, operation: str) -> None:
        """Refuses what a capture forbids and breaks the capture, or lets the seed's one operation through."""
        capturing = [s for s in self._streams[device] if s.capturing is not None]
        if not capturing or (self.knobs.capture == "lax" and operation == self.plan.lax):
            return
        for stream in capturing:
            stream.broken = True
        raise error(operation, 900)
