"""`probe capture`: operations put into a graph capture one by one; which are refused, and which are taken and then break.

Each operation is captured between a first and a last kernel, the graph is replayed on other bytes, and the result is compared with
what plain launches give.  A process each, since a broken capture may leave its stream unusable.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edge0verify.probe.memory import run_child
from edge0verify.probe.operations import SOURCE
from edge0verify.probe.patterns import pattern
from edge0verify.probe.types import Machine
from edge0verify.records import status as statuses
from edge0verify.runtime.protocol import Buffer, DeviceError, Runtime

SCHEMA = "edge0verify.capture-probe/1"
BYTES = 8192
RIGHT, REFUSED, AT_END, SILENT = "replays right", "refused", "breaks the capture", "breaks silently"
NOT_TRIED = "not tried"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of one operation.  rule: what a driver should do with it; status: PASS where it does, or refuses more loudly."""

    operation: str
    rule: str
    outcome: str
    status: str
    why: str = ""
    error: dict[str, Any] | None = None


class Scene:
    """A stream with three buffers: `first` is moved to `middle`, the operation happens, `middle` is moved to `last`."""

    def __init__(self, runtime: Runtime, device: int) -> None:
        self.runtime, self.device = runtime, device
        self.module = runtime.load(device, SOURCE)
        self.stream = runtime.stream(device)
        self.first, self.middle, self.last = (runtime.allocate(device, BYTES) for _ in range(3))
        self.mapped = runtime.allocate_mapped(device, BYTES)
        self.host = np.zeros(BYTES, np.uint8)
        self.made: list[Buffer] = []
        self.event = runtime.event(device)

    def move(self, source: Buffer, to: Buffer, stream: Any = None) -> None:
        kernel = self.runtime.kernel(self.module, "e0_move_bytes")
        args = [source, to, ctypes.c_int64(source.nbytes)]
        self.runtime.launch(kernel, -(-source.nbytes // 4096), 256, args, stream=self.stream if stream is None else stream)

    def feed(self, seed: int) -> np.ndarray:
        """New input bytes; clears what a run must write."""
        data = pattern(seed, BYTES)
        self.runtime.copy(self.first, data)
        for buffer in (self.middle, self.last):
            self.runtime.memset(buffer, 0xEE)
        self.mapped.array()[:] = 0xEE
        self.host[:] = 0xEE
        self.runtime.synchronise(self.device)
        return data

    def read(self, buffer: Buffer) -> np.ndarray:
        out = np.empty(BYTES, np.uint8)
        self.runtime.copy(out, buffer)
        return out


Do = Callable[[Scene], None]
Expect = Callable[[Scene, np.ndarray], dict[str, tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True)
class Operation:
    """`do` during the capture; `check` gives pairs of (expected, found) after a replay."""

    name: str
    rule: str
    do: Do
    check: Expect


def _moved(scene: Scene, data: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {"the kernel after it": (data, scene.read(scene.last))}


def _filled(scene: Scene, data: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {"the bytes it sets": (np.full(BYTES, 7, np.uint8), scene.read(scene.last))}


def _on_host(scene: Scene, data: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return _moved(scene, data) | {"the host's copy": (data, scene.host)}


def _on_mapped(scene: Scene, data: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return _moved(scene, data) | {"the dump in mapped memory": (data, scene.mapped.array().copy())}


def _event(scene: Scene) -> None:
    scene.runtime.record(scene.event, scene.stream)
    scene.runtime.wait(scene.event, scene.stream)


OPERATIONS = (
    Operation("kernel", RIGHT, lambda s: None, _moved),
    Operation("dump kernel into mapped memory", RIGHT, lambda s: s.move(s.middle, s.mapped), _on_mapped),
    Operation("copy on the stream", RIGHT, lambda s: s.runtime.copy(s.mapped, s.middle, s.stream), _on_mapped),
    Operation("memset on the stream", RIGHT, lambda s: s.runtime.memset(s.middle, 7, 1, s.stream), _filled),
    Operation("event recorded and waited for", RIGHT, _event, _moved),
    Operation("copy without a stream", REFUSED, lambda s: s.runtime.copy(s.host, s.middle), _on_host),
    Operation("memset without a stream", REFUSED, lambda s: s.runtime.memset(s.middle, 7), _filled),
    Operation("synchronise the stream", REFUSED, lambda s: s.runtime.synchronise(s.device, s.stream), _moved),
    Operation("synchronise the device", REFUSED, lambda s: s.runtime.synchronise(s.device), _moved),
    Operation("allocate", REFUSED, lambda s: s.made.append(s.runtime.allocate(s.device, BYTES)), _moved),
)


def run_operation(runtime: Runtime, device: int, operation: Operation, begun: Callable[[], None] = lambda: None) -> Answer:
    """Capture it, replay it on two other inputs, judge.  begun: called when all is ready and the capture begins."""
    try:
        scene = Scene(runtime, device)
        scene.feed(1)
    except DeviceError as error:
        return not_tried(operation, str(error))
    begun()
    try:
        runtime.begin_capture(scene.stream)
        scene.move(scene.first, scene.middle)
        operation.do(scene)
        scene.move(scene.middle, scene.last)
    except DeviceError as error:
        _leave(runtime, scene)
        return _answer(operation, REFUSED, str(error), error)
    try:
        graph = runtime.end_capture(scene.stream)
    except DeviceError as error:
        return _answer(operation, AT_END, str(error), error)
    wrong: list[str] = []
    try:
        for seed in (11, 12):
            data = scene.feed(seed)
            runtime.launch_graph(graph, scene.stream)
            runtime.synchronise(device, scene.stream)
            for what, (expected, found) in operation.check(scene, data).items():
                if not np.array_equal(expected, found):
                    wrong.append(f"{what}: {np.count_nonzero(expected != found)} of {BYTES} bytes are not those of this replay")
    except DeviceError as error:
        return _answer(operation, SILENT, f"accepted, and the replay fails: {error}", error)
    if wrong:
        return _answer(operation, SILENT, f"accepted, and left out of the graph; {wrong[0]}")
    if operation.rule == REFUSED:
        return _answer(operation, SILENT, "accepted without an error; it waits for nothing and is no part of the graph")
    return _answer(operation, RIGHT)


def _leave(runtime: Runtime, scene: Scene) -> None:
    with contextlib.suppress(DeviceError):  # the capture is broken already: that is what was to be seen
        runtime.end_capture(scene.stream)


def not_tried(operation: Operation, why: str) -> Answer:
    """The answer where it never came to a capture."""
    return Answer(operation=operation.name, rule=operation.rule, outcome=NOT_TRIED, status=statuses.INCONCLUSIVE, why=why)


def _answer(operation: Operation, outcome: str, why: str = "", error: DeviceError | None = None) -> Answer:
    loud = outcome == operation.rule or (operation.rule == REFUSED and outcome == AT_END)
    detail = None if error is None else {"call": error.call, "code": error.code, "name": error.name}
    return Answer(
        operation=operation.name, rule=operation.rule, outcome=outcome, status=statuses.PASS if loud else statuses.FAIL, why=why,
        error=detail,
    )  # fmt: skip


def probe_capture(machine: Machine, device: int, *, timeout_s: float = 60.0, progress: Any = None) -> CaptureReport:
    """Every operation in a process of its own."""
    name, answers = f"{machine.runtime}:{device}", []
    for done, operation in enumerate(OPERATIONS):
        if progress is not None:
            progress("capturing", done, len(OPERATIONS))
        said, trouble = run_child({"capture": operation.name, "machine": asdict(machine), "device": device}, timeout_s)
        absent = next((line["absent"] for line in said if "absent" in line), None)
        if absent is not None:
            return conclude(name, (), absent)
        found = next((Answer(**line["answer"]) for line in said if "answer" in line), None)
        ended = f"the process {trouble or 'ended early'}"
        if found is None and any("begin" in line for line in said):
            found = _answer(operation, SILENT, f"accepted, and then {ended}")
        answers.append(found or not_tried(operation, ended))
    return conclude(name, answers)


@dataclass(frozen=True, kw_only=True)
class CaptureReport:
    """All answers of one device."""

    device: str
    status: str
    reasons: tuple[str, ...]
    answers: tuple[Answer, ...]

    @property
    def exit_code(self) -> int:
        return statuses.exit_code(self.status)

    def dumps(self) -> str:
        data = {"schema": SCHEMA, "status": self.status, "reasons": list(self.reasons), "device": self.device}
        data["operations"] = [asdict(answer) for answer in self.answers]
        return json.dumps(data, indent=1, allow_nan=False) + "\n"


def conclude(device: str, answers: Sequence[Answer], absent: str | None = None) -> CaptureReport:
    """PASS where every operation is treated by the rule; INCONCLUSIVE where nothing ran."""
    if absent is not None or not answers:
        return CaptureReport(device=device, status=statuses.INCONCLUSIVE, reasons=(absent or "nothing ran",), answers=())
    bad = [f"{a.operation}: {a.outcome}" for a in answers if a.status == statuses.FAIL]
    status = statuses.FAIL if bad else statuses.worst_status(a.status for a in answers)
    open_why = () if bad else dict.fromkeys(a.why for a in answers if a.status == statuses.INCONCLUSIVE)
    return CaptureReport(device=device, status=status, reasons=(*bad, *open_why), answers=tuple(answers))


def capture_text(report: CaptureReport) -> str:
    """The table for a terminal."""
    from tabulate import tabulate

    rows = [(a.operation, a.rule, a.outcome, a.status, a.why) for a in report.answers]
    heads = ("operation during capture", "rule", "outcome", "answer", "why")
    table = tabulate(rows, headers=heads, tablefmt="plain", maxcolwidths=[None, None, None, None, 60])
    last = f"{report.status}: {'; '.join(report.reasons) or 'what is forbidden is refused, what is allowed replays right'}"
    return f"{report.device}\n\n{table}\n\n{last}" if rows else last
