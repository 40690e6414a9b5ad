"""Causes and what speaks for and against each.  A cause is only named where a line of a log speaks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edge0verify.probe.triage.events import Event

SYMPTOMS = (
    "time-out", "illegal access", "fault by node", "bad address", "launch failure", "device hang", "device error", "killed",
    "told to end", "out of memory kill", "crashed", "capture error", "unresolved symbol", "no code for the card", "fallback",
    "device memory gone", "host memory gone", "memory gone",
)  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """One reason for or against: what it is, and the line that says it; None for what a whole log does not say."""

    text: str
    where: str | None
    weight: int


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One explanation.  score: weights for minus weights against; only the order matters."""

    name: str
    explains: str
    probe: str
    supporting: tuple[Evidence, ...]
    against: tuple[Evidence, ...]

    @property
    def score(self) -> int:
        return sum(e.weight for e in self.supporting) - sum(e.weight for e in self.against)


@dataclass
class Case:
    """All that is known: events of the engine, those of the kernel that belong to it, the waiting threads, the split's borders."""

    engine: list[Event]
    kernel: list[Event]
    stacks: list[Event]
    has_kernel: bool
    devices: int
    """How many take part; 0 where nothing says."""
    pids: frozenset[int] = frozenset()
    """Processes that the engine's log names."""
    borders: frozenset[int | str] = field(default_factory=frozenset)
    """Layers that are the first of their device, those after a hand-off."""

    def of(self, *kinds: str) -> list[Event]:
        return [e for e in self.engine + self.kernel if e.kind in kinds]

    @property
    def layers(self) -> set:
        return {e.layer for e in self.engine if e.kind in SYMPTOMS and e.layer is not None}


class Weighing:
    """Collects evidence; equal lines count once per text."""

    def __init__(self) -> None:
        self.supporting: list[Evidence] = []
        self.against: list[Evidence] = []

    def speaks(self, text: str, events: Sequence[Event], weight: int) -> bool:
        if events:
            more = f" ({len(events)} lines)" if len(events) > 1 else ""
            self.supporting.append(Evidence(text + more, events[0].line.where, weight))
        return bool(events)

    def denies(self, text: str, events: Sequence[Event], weight: int) -> None:
        if events:
            self.against.append(Evidence(text, events[0].line.where, weight))

    def lacks(self, text: str, missing: bool, weight: int) -> None:
        if missing:
            self.against.append(Evidence(text, None, weight))


def _border(w: Weighing, case: Case, weight: int) -> None:
    at = [e for e in case.engine if e.kind in SYMPTOMS and e.layer in case.borders]
    if at:
        w.speaks(f"layer {at[0].layer} is the first behind a hand-off between devices", at, weight)
    elif case.borders and case.layers:
        w.lacks(f"layer {sorted(map(str, case.layers))[0]} is not the first of its device", True, 1)


def _same(events: Sequence[Event], others: Sequence[Event]) -> list[Event]:
    """Those that are about a device of the others, or about one that is not known."""
    devices = {e.device for e in others if e.device is not None}
    return [e for e in events if e.device is None or not devices or e.device in devices]


def peer_read(case: Case, w: Weighing) -> None:
    """A kernel that faults, best with the kernel's word for it, on a device that has no peer access."""
    faults, late = case.of("illegal access", "fault by node"), case.of("time-out")
    seen = case.of("page fault", "fault address", "sq_intr")
    if not w.speaks("a kernel touched an address that its device may not", faults, 2):
        failed = w.speaks("a kernel ended with an error, as one does that touches what it may not", case.of("launch failure"), 1)
        if not failed and not w.speaks("a wait that never ends: a device that faulted answers nobody", late, 1):
            return
        w.lacks("the kernel's log names no fault", case.has_kernel and not seen, 1)
    w.speaks(
        "the kernel's log names a page fault on the device that reads", _same(case.of("page fault", "fault address"), faults), 2
    )
    w.speaks("sq_intr errors on the reading card", _same(case.of("sq_intr"), faults), 2)
    w.speaks("peer access is off", case.of("peer off"), 3)
    w.speaks("the IOMMU refused a device's access", case.of("blocked DMA"), 2)
    _border(w, case, 3 if faults else 2)
    w.denies("peer access was enabled", case.of("peer on"), 2)
    w.denies("user pages were taken away at that time", case.of("pages evicted"), 3)
    w.lacks("only one device takes part", case.devices == 1, 6)


def stray_address(case: Case, w: Weighing) -> None:
    """The same fault, where nothing speaks for another device's memory."""
    found = w.speaks("a kernel touched an address that its device may not", case.of("illegal access", "fault by node"), 2)
    found = w.speaks("the address itself is wrong: misaligned, or outside all memory", case.of("bad address"), 4) or found
    found = w.speaks("a kernel ended with an error of its own", case.of("launch failure"), 2) or found
    if not found:
        return
    w.speaks("the kernel's log names a page fault", case.of("page fault", "fault address"), 1)
    w.speaks("the kernel's log names an exception inside a kernel", case.of("kernel exception"), 2)
    w.denies("peer access is off while several devices take part", case.of("peer off") if case.devices != 1 else [], 2)
    w.denies("user pages were taken away at that time", case.of("pages evicted"), 2)
    if case.borders and case.layers & case.borders:
        w.lacks("it happens right behind a hand-off between devices", True, 2)


def lost_flag(case: Case, w: Weighing) -> None:
    """A wait that ends in a time-out or never, while no device reports a fault."""
    waits = [e for e in case.stacks if e.kind == "waiting thread"]
    late = case.of("time-out")
    found = w.speaks("the engine gave up waiting at a layer", late, 2)
    found = w.speaks("threads wait in a stream synchronise", waits, 3) or found
    found = w.speaks("a device was found hanging", case.of("device hang"), 2) or found
    if not found:
        return
    w.speaks("the device's ring made no progress", case.of("ring time-out"), 1)
    _border(w, case, 2)
    w.denies(
        "a device reported a fault, so the wait is its result",
        case.of("page fault", "sq_intr", "device error", "illegal access", "fault by node"),
        4,
    )
    w.denies("the process was killed", case.of("killed", "out of memory kill"), 2)
    w.denies("a tracing tool is loaded, which can hold completions back", case.of("tracing tool") or _tools(case), 1)


def _tools(case: Case) -> list[Event]:
    return [e for e in case.stacks if e.kind == "tracing tool"]


def evicted_pages(case: Case, w: Weighing) -> None:
    """A fault or a time-out, with the driver's word that it took pages or queues away."""
    evicted = case.of("pages evicted")
    trouble = case.of("fault by node", "illegal access", "time-out", "page fault", "crashed") or case.stacks
    if not trouble:
        return
    if not w.speaks("the driver took user pages or queues away at that time", evicted, 4):
        if w.speaks("pages that went away look like this too", case.of("fault by node", "illegal access", "time-out"), 1):
            absent = [e for e in case.of("fault by node") if "not present" in e.line.text.lower()]
            w.speaks("a page was not present for a device", absent, 2)
            w.lacks("the kernel's log names no eviction", case.has_kernel, 1)
        return
    w.speaks(
        "a page was not present for a device", [e for e in case.of("fault by node") if "not present" in e.line.text.lower()], 3
    )
    w.speaks("a device faulted", case.of("page fault", "fault address", "illegal access"), 1)
    w.denies("sq_intr errors speak for a wrong address", case.of("sq_intr"), 1)
    w.denies("peer access is off", case.of("peer off"), 2)


def tracing_tool(case: Case, w: Weighing) -> None:
    """Any trouble while a tool is loaded or holds a thread."""
    trouble = case.of("time-out", "illegal access", "fault by node", "crashed", "capture error", "unresolved symbol") or [
        e for e in case.stacks if e.kind == "waiting thread"
    ]
    if not trouble:
        return
    found = w.speaks("a tracing tool is loaded", case.of("tracing tool"), 3)
    found = w.speaks("a thread is inside a tracing tool", _tools(case), 4) or found
    if not found:
        if w.speaks("a tool that holds completions back looks like this too", case.of("time-out"), 1):
            w.lacks("no thread is inside one", bool(case.stacks), 1)
        return
    w.speaks("the run hangs or breaks while it is loaded", trouble, 1)
    w.denies("the kernel's log has a fault of its own", case.of("page fault", "sq_intr", "device error", "out of memory kill"), 3)


def out_of_memory(case: Case, w: Weighing) -> None:
    """A kill for memory, a failed allocation, or a signal 9 that nothing explains."""
    killed = case.of("out of memory kill")
    own = [e for e in killed if e.pid is None or e.pid in case.pids]
    found = w.speaks("the process was killed for memory", own, 6)
    others = [e for e in killed if e.pid is not None and e.pid not in case.pids]
    found = w.speaks("the kernel killed a process for memory; which is the engine's is not said", others, 4) or found
    found = w.speaks("the process ended with signal 9", case.of("killed"), 2) or found
    found = w.speaks("an allocation failed", case.of("device memory gone", "host memory gone", "memory gone"), 5) or found
    if not found:
        if w.speaks("a worker that was killed is waited for like this too", case.of("time-out"), 1):
            w.lacks("the kernel's log names no kill for memory", case.has_kernel, 1)
        return
    w.speaks("memory ran out at that time", case.of("memory pressure"), 3)
    only_killed = not killed and not case.of("device memory gone", "host memory gone", "memory gone", "memory pressure")
    w.lacks("no kernel log was given that would name it", only_killed and not case.has_kernel, 1)
    w.lacks("the kernel's log names no kill for memory", only_killed and case.has_kernel, 2)


def ended_from_outside(case: Case, w: Weighing) -> None:
    """A signal 9 or an order to end."""
    found = w.speaks("the process was told to end", case.of("told to end"), 4)
    if w.speaks("the process ended with signal 9", case.of("killed"), 1) or found:
        w.denies("the kernel killed it for memory", case.of("out of memory kill"), 1)


def capture(case: Case, w: Weighing) -> None:
    """Only what the error itself says."""
    w.speaks("an operation was refused inside a graph capture", case.of("capture error"), 6)


def unresolved(case: Case, w: Weighing) -> None:
    """Only what the error itself says."""
    w.speaks("a symbol or library was not found", case.of("unresolved symbol"), 6)


def no_code(case: Case, w: Weighing) -> None:
    """Only what the error itself says."""
    w.speaks("the program holds no code for this card", case.of("no code for the card"), 6)


def fallback(case: Case, w: Weighing) -> None:
    """Only what the line itself says."""
    w.speaks("another kernel ran than the one asked for", case.of("fallback"), 3)


def broken_device(case: Case, w: Weighing) -> None:
    """Errors of the card or its link, unless a page fault came with them."""
    found = w.speaks("the device reported an error of its own", case.of("device error"), 5)
    found = w.speaks("the device was reset or is gone", case.of("device reset"), 3) or found
    found = w.speaks("the link reported errors", case.of("link error"), 3) or found
    found = w.speaks("a device was found hanging", case.of("device hang"), 2) or found
    if not found and not w.speaks("a broken card ends kernels like this too", case.of("launch failure"), 1):
        return
    w.denies("a page fault came with it, which a program causes", case.of("page fault"), 3)


Weigh = Callable[[Case, Weighing], None]
CAUSES: tuple[tuple[str, str, str, Weigh], ...] = (
    (
        "peer read",
        "a kernel of one device reads memory of another without peer access",
        "edge0verify probe audit --split; edge0verify probe memory (kernel read)",
        peer_read,
    ),
    (
        "lost flag",
        "a completion, event or flag of another device never arrived",
        "edge0verify probe memory (event wait, memset, atomics)",
        lost_flag,
    ),
    (
        "evicted user pages",
        "pages of ordinary host memory that a device used were moved or taken away",
        "edge0verify probe memory --memory pageable --memory 'mapped host', and a run with pinned memory",
        evicted_pages,
    ),
    (
        "tracing tool",
        "a profiler or tracer changes timing or holds completions back",
        "the same run without the tool",
        tracing_tool,
    ),
    (
        "out of memory",
        "host or device memory ran out",
        "the same run with half the context, beside `free` and the kernel log",
        out_of_memory,
    ),
    (
        "ended from outside",
        "a time limit, a container's limit or an operator ended the process",
        "the supervisor's own log; the same run without a limit",
        ended_from_outside,
    ),
    (
        "stray address",
        "a kernel computes an address outside its own buffers",
        "edge0verify kernel (shapes and tails)",
        stray_address,
    ),
    ("graph capture", "an operation that a graph capture forbids", "edge0verify probe capture", capture),
    ("unresolved symbol", "a library or symbol of another version is loaded", "edge0verify doctor", unresolved),
    ("no code for the card", "the build lacks this architecture", "edge0verify list devices; edge0verify doctor", no_code),
    ("silent fallback", "the asked kernel was not used", "edge0verify compare (engaged)", fallback),
    ("broken device or link", "hardware: memory, link or card", "edge0verify probe memory; the vendor's own test", broken_device),
)


def weigh(case: Case) -> list[Cause]:
    """Every cause that a line speaks for, the likeliest first."""
    found = []
    for name, explains, probe, look in CAUSES:
        w = Weighing()
        look(case, w)
        if w.supporting:
            cause = Cause(name=name, explains=explains, probe=probe, supporting=tuple(w.supporting), against=tuple(w.against))
            if cause.score > 0:
                found.append(cause)
    return sorted(found, key=lambda cause: -cause.score)
