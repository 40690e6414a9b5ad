"""What single lines say: one event per line and kind, with device, address, layer and process where they are named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from edge0verify.probe.triage.lines import Line

# kind, pattern; named groups: device, layer, address, node, pci, pid, name, code
_ENDED = r"(?:\b(?:exit(?:ed)?(?: with)?(?: code| status)?|return(?:ed)?(?: code)?|rc)[ =:]*)"
_WATCH = r"(?:timed[ -]?out|watchdog (?:fired|expired))"
_CAPTURE = "unsupported|invalidated|implicit|merge|unmatched|unjoined|isolation|wrong ?thread"
_PCI_OF = r"amdgpu (?P<pci>[0-9a-f:.]+): .*"
_MAYBE_PCI = r"^(?:.*?amdgpu (?P<pci>[0-9a-f:.]+): )?.*"
_XID = r"NVRM: Xid \(PCI:(?P<pci>[0-9a-f:.]+)\): "
ENGINE = (
    ("time-out", rf"(?:{_WATCH}|time-?out (?:at|in|on|while|waiting)).{{0,40}}?layer[ =:#]*(?P<layer>\d+|mtp)"),
    ("time-out", rf"layer[ =:#]*(?P<layer>\d+|mtp)\b.{{0,60}}{_WATCH}"),
    ("time-out", rf"\b{_WATCH}\b"),
    (
        "illegal access",
        r"illegal (?:memory access|address)|(?:hip|cuda)ErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS|\berror 700\b",
    ),
    ("fault by node", r"memory access fault by GPU node-?(?P<node>\d+).{0,60}?(?:on|at) address (?P<address>0x[0-9a-f]+|\(nil\))"),
    ("killed", r"^\s*Killed\s*$"),
    ("killed", rf"{_ENDED}(?:-9|137)\b|\bSIGKILL\b|killed by signal 9|signal 9\b"),
    ("crashed", rf"{_ENDED}(?:-11|139|-6|134)\b|\bSIGSEGV\b|segmentation fault"),
    ("capture error", r"not permitted when stream is capturing|capture (?:was )?(?:invalidated|failed)|\berror 90[0-8]\b"),
    ("capture error", rf"stream ?capture ?(?:{_CAPTURE})|capturing.{{0,40}}(?:failed|error)"),
    ("unresolved symbol", r"undefined symbol|symbol lookup error|unresolved (?:external )?symbol|named symbol not found"),
    ("unresolved symbol", r"cannot open shared object"),
    ("no code for the card", r"no kernel image is available|ErrorNoBinaryForGpu|NO_BINARY_FOR_GPU|invalid device function"),
    ("no code for the card", r"no (?:binary|code object) for (?:gpu|gfx\w+|this)"),
    ("fallback", r"fall(?:ing|s|en)? ?back (?:to|on)|not (?:supported|available).{0,40}using .{1,40} instead"),
    ("fallback", r"using .{1,40}kernel instead"),
    ("device memory gone", r"(?:hip|cuda)Error(?:OutOfMemory|MemoryAllocation)|CUDA_ERROR_OUT_OF_MEMORY|ERROR_OUT_OF_RESOURCES"),
    (
        "device memory gone",
        r"(?:hip|cuda)(?:Host)?Malloc\w* (?:of .{1,30})?failed|failed to allocate .{1,40}(?:device|vram|gpu|buffer)",
    ),
    ("host memory gone", r"std::bad_alloc|cannot allocate memory|\bMemoryError\b"),
    ("memory gone", r"\bout of memory\b|\bfailed to allocate\b|allocation (?:of .{1,30})?failed"),
    ("peer off", r"peer (?:access|copies|to peer).{0,30}(?:off|disabled|unsupported|not (?:enabled|supported|possible|available))"),
    ("peer off", r"no peer access"),
    ("peer on", r"peer access.{0,40}(?:\bon\b|enabled)|enabled peer access"),
    ("tracing tool", r"rocprof\w*|roctracer|librocprofiler\S*|omnitrace|ROCTX|HSA_TOOLS_LIB\s*=\s*\S+"),
    ("tracing tool", r"libcupti|CUPTI|nsys profile|Nsight|compute-sanitizer|LD_PRELOAD\s*=\s*\S*(?:trac|prof)\S*"),
    ("finished", rf"{_ENDED}0\b|all (?:done|tokens generated)|generated \d+ tokens"),
)
MEMORY = {"device memory gone", "host memory gone"}
_USERPTR = r"failed to (?:get|restore|validate) (?:user ?pages|userptr)|userptr .{0,40}(?:invalid|evict|fail)"
KERNEL = (
    ("page fault", rf"{_PCI_OF}page fault \("),
    ("fault address", rf"{_PCI_OF}in page starting at address (?P<address>0x[0-9a-f]+)"),
    ("fault process", rf"{_PCI_OF}in process (?P<name>\S*) pid (?P<pid>\d+)"),
    ("sq_intr", rf"{_MAYBE_PCI}\bsq_intr: error"),
    ("page fault", rf"{_XID}31,(?:.*pid=(?P<pid>\d+))?(?:.*faulted @ (?P<address>0x[0-9a-f_]+))?"),
    ("device error", rf"{_XID}(?P<code>13|43|45|48|6[1-4]|69|74|79|94|95|119|120|140)\b(?:.*pid=(?P<pid>\d+))?"),
    ("ring time-out", rf"{_MAYBE_PCI}(?:ring \S+ timeout|amdgpu_job_timedout|fence wait loop timeout expired)"),
    ("device reset", rf"{_MAYBE_PCI}GPU (?:reset begin|recovery|has fallen off the bus)"),
    ("pages evicted", rf"{_MAYBE_PCI}(?:evicting (?:PASID|process|queues)|queues? evicted|{_USERPTR})"),
    ("pages evicted", rf"{_MAYBE_PCI}(?:get_user_pages.{{0,30}}fail|svm_range.{{0,40}}(?:evict|fail))"),
    ("out of memory kill", r"(?:out of memory|memory cgroup out of memory): killed process (?P<pid>\d+) \((?P<name>[^)]*)\)"),
    ("out of memory kill", r"oom-kill:.*task=(?P<name>[^,]+),pid=(?P<pid>\d+)"),
    ("link error", r"pcieport .*AER:|\bPCIe Bus Error\b|\bBadTLP\b|link is down"),
    ("blocked DMA", r"AMD-Vi: Event logged \[IO_PAGE_FAULT.*device=(?P<pci>[0-9a-f:.]+)|DMAR: .*fault"),
    ("crashed", r"(?P<name>\S+)\[(?P<pid>\d+)\]: segfault at"),
    ("tracing tool", r"amdgpu.*debug trap|kfd.*debugger attached"),
)
WAITING = (
    r"(?:Stream|Device|Event|Context)Synchronize|stream_synchron|\bsynchronize\b|hsa_signal_wait"
    r"|WaitRelaxed|WaitAcquire|BusyWaitSignal|InterruptSignal"
)
# Words before a match that turn its meaning round or make it a condition, and values after it that switch it off.
_NOT = re.compile(
    r"(?:\b(?:no|not|never|without|would|may|might|could|avoids?|avoiding|prevents?|against|detects?)\s+(?:\w+\s+)?"
    r"|\b(?:if|unless|whether|when|in case of|checks? for)\s+(?:\w+\s+){0,3}"
    r"|(?:^|[,(;\]]\s*|:\s+|\bwith\s+|\band\s+|\b(?:[DIWEN]|INFO|DEBUG|WARN\w*)\s+)(?:0|zero)\s+(?:\w+\s+){0,2})$",
    re.IGNORECASE,
)
_OFF = re.compile(r"^[\w.-]*\s*[=:]\s*(?:0|off|none|no|disabled|false)\b", re.IGNORECASE)
_ENGINE = tuple((kind, re.compile(text, re.IGNORECASE)) for kind, text in ENGINE)
_KERNEL = tuple((kind, re.compile(text, re.IGNORECASE)) for kind, text in KERNEL)
_DEVICE = re.compile(r"\b(?:device|gpu|hip|cuda|sim)[ :#=]*(\d+)\b", re.IGNORECASE)
_LAYER = re.compile(r"\blayer[ =:#]*(\d+|mtp)\b", re.IGNORECASE)
_ADDRESS = re.compile(r"\b(?:at|@|address)\s*(0x[0-9a-f_]{5,})", re.IGNORECASE)
_PID = re.compile(r"\bpid[ =:]*(\d+)", re.IGNORECASE)
_PCI = re.compile(r"\b(?:[0-9a-f]{4,8}:)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.\d)?\b", re.IGNORECASE)


@dataclass(frozen=True)
class Event:
    """One thing that a line says.  device: the engine's number, once known; pci as 'bb:dd'."""

    kind: str
    line: Line
    device: int | None = None
    layer: int | str | None = None
    address: int | None = None
    node: int | None = None
    pci: str | None = None
    pid: int | None = None
    name: str | None = None
    code: int | None = None


def bus(text: str | None) -> str | None:
    """'0000:1d:00.0' and 'PCI:0000:1d:00' as '1d:00'."""
    found = _PCI.search(text or "")
    return f"{found[1]}:{found[2]}".lower() if found else None


def _number(text: str | None) -> int | None:
    return int(text.replace("_", ""), 0) if text and text.startswith("0x") else int(text) if text and text.isdigit() else None


def _layer(text: str | None) -> int | str | None:
    return int(text) if text and text.isdigit() else text


def engine_events(lines: Iterable[Line]) -> Iterator[Event]:
    """Events of an engine's log; of two patterns for one kind the first that fits a line."""
    for line in lines:
        seen: set[str] = set()
        for kind, pattern in _ENGINE:
            found = pattern.search(line.text)
            if found is None or kind in seen or (kind == "memory gone" and seen & MEMORY):
                continue
            if _NOT.search(line.text[: found.start()]) or _OFF.match(line.text[found.end() :]):
                continue
            seen.add(kind)
            groups = found.groupdict()
            device, layer, address = _DEVICE.search(line.text), _LAYER.search(line.text), _ADDRESS.search(line.text)
            pid = _PID.search(line.text)
            yield Event(
                kind, line,
                device=_number(device[1]) if device else None,
                layer=_layer(groups.get("layer") or (layer[1] if layer else None)),
                address=_number(groups.get("address") or (address[1] if address else None)),
                node=_number(groups.get("node")),
                pid=_number(pid[1]) if pid else None,
            )  # fmt: skip


def kernel_events(lines: Iterable[Line]) -> Iterator[Event]:
    """Events of a kernel's log."""
    for line in lines:
        for kind, pattern in _KERNEL:
            found = pattern.search(line.text)
            if found is None:
                continue
            g = found.groupdict()
            yield Event(
                kind, line, address=_number(g.get("address")), pci=bus(g.get("pci")), pid=_number(g.get("pid")), name=g.get("name"),
                code=_number(g.get("code")),
            )  # fmt: skip
            break


def stack_events(lines: Iterable[Line]) -> Iterator[Event]:
    """One event per thread that waits for a device, and per frame of a tracing tool."""
    thread: Line | None = None
    waits = False
    for line in lines:
        if re.match(r"\s*(?:Thread \S+|TID \d+|#?\s*LWP \d+)", line.text):
            thread, waits = line, False
        if not waits and re.search(WAITING, line.text, re.IGNORECASE):
            waits = True
            yield Event(
                "waiting thread", line if thread is None else Line(line.source, line.number, f"{thread.text} {line.text.strip()}")
            )
        if re.search(r"rocprofiler|roctracer|libcupti|cupti|omnitrace", line.text, re.IGNORECASE):
            yield Event("tracing tool", line)


@dataclass(frozen=True)
class Cards:
    """How an engine's device numbers, PCI addresses and node numbers belong together, as far as its log says."""

    pci: dict[int, str]
    node: dict[int, int]
    pids: frozenset[int]

    def device_of(self, event: Event) -> int | None:
        """The engine's number of the device an event is about."""
        if event.device is not None:
            return event.device
        for device, address in self.pci.items():
            if event.pci is not None and address == event.pci:
                return device
        return next((device for device, node in self.node.items() if event.node is not None and node == event.node), None)


def cards(lines: Iterable[Line]) -> Cards:
    """Read from lines such as 'device 1: 0000:1d:00.0 ready, node 2'."""
    pci: dict[int, str] = {}
    nodes: dict[int, int] = {}
    pids: set[int] = set()
    for line in lines:
        device = _DEVICE.search(line.text)
        address = re.search(r"\b(?:[0-9a-f]{4,8}:)[0-9a-f]{2}:[0-9a-f]{2}(?:\.\d)?\b", line.text, re.IGNORECASE)
        node = re.search(r"\bnode[ -]?(\d+)\b", line.text, re.IGNORECASE)
        if device and address:
            pci.setdefault(int(device[1]), bus(address[0]))
            if node:
                nodes.setdefault(int(device[1]), int(node[1]))
        pids.update(int(m) for m in _PID.findall(line.text))
    return Cards(pci, nodes, frozenset(pids))
