"""What single lines say: one event per line and kind, with device, address, layer and process where they are named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from edge0verify.probe.triage.lines import Line
from edge0verify.probe.triage.wording import (
    ABOUT,
    BEFORE,
    ENGINE,
    FAILURE,
    FAILURE_WORDS,
    KERNEL,
    KERNEL_LINE,
    KERNEL_LINE_WORDS,
    NEGATED,
    SETTING,
    TRACING,
    WAITING,
    Rule,
)

MEMORY = {"device memory gone", "host memory gone"}
FAILED = "failure"
"""An error that no rule knows: it keeps a log from being called healthy, and no cause rests on it."""
_DEVICE = re.compile(r"\b(?:device|gpu|hip|cuda|rocm|sim)[ :#=]*(\d{1,3})\b(?![.:]\d)", re.IGNORECASE)
_DEVICE_WORDS = ("device", "gpu", "hip", "cuda", "rocm", "sim")
_COUNT = re.compile(r"\bfound (\d+) (?:ROCm|HIP|CUDA) devices?\b", re.IGNORECASE)
_LAYER = re.compile(r"(?:\blayers?[ =:#_.]*|\bblk\.)\[?(\d+|mtp)\b", re.IGNORECASE)
_ADDRESS = re.compile(r"\b(?:at|@|address)\s*(0x[0-9a-f_]{5,})", re.IGNORECASE)
_PID = re.compile(r"\bpid[ =:]*(\d+)", re.IGNORECASE)
_PCI = re.compile(r"\b(?:[0-9a-f]{4,8}:)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.\d)?\b", re.IGNORECASE)
_LONG_PCI = re.compile(r"\b(?:[0-9a-f]{4,8}:)[0-9a-f]{2}:[0-9a-f]{2}(?:\.\d)?\b", re.IGNORECASE)
_NODE = re.compile(r"\bnode[ -]?(\d+)\b", re.IGNORECASE)
KERNEL_WORDS = tuple(dict.fromkeys(w for rule in KERNEL for w in rule.words))
ENGINE_WORDS = tuple(dict.fromkeys([*(w for r in ENGINE for w in r.words), *FAILURE_WORDS, *KERNEL_WORDS, *_DEVICE_WORDS, "pid"]))
"""A line without any of them says nothing to triage."""


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


def has(low: str, words: Sequence[str]) -> bool:
    """Whether a text in lower case holds one of some words."""
    for word in words:  # noqa: SIM110 - half the time of any() with a generator, on millions of lines
        if word in low:
            return True
    return False


def meant(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The first match that no word before it turns round and no value behind it switches off."""
    for found in pattern.finditer(text):
        turned = NEGATED.search(text, max(0, found.start() - BEFORE), found.start()) or SETTING.match(text, found.end())
        if turned is None:
            return found
    return None


def is_kernels(line: Line, low: str) -> bool:
    """Whether a line of an engine's log was written by the kernel."""
    return has(low, KERNEL_LINE_WORDS) and KERNEL_LINE.search(line.text[:400]) is not None


def engine_events(line: Line, low: str) -> Iterator[Event]:
    """Events of a line of an engine's log; of two rules for one kind the first that fits.  low: the text in lower case."""
    seen: set[str] = set()
    for rule in ENGINE:
        if rule.kind in seen or (rule.kind == "memory gone" and seen & MEMORY) or not has(low, rule.words):
            continue
        found = meant(rule.pattern, line.text)
        if found is not None and (rule.kind not in ABOUT or ABOUT[rule.kind].search(line.text)):
            seen.add(rule.kind)
            yield _event(rule.kind, line, found)
    if not seen and has(low, FAILURE_WORDS):
        found = meant(FAILURE, line.text)
        if found is not None:
            yield _event(FAILED, line, found)


def _event(kind: str, line: Line, found: re.Match[str]) -> Event:
    groups = found.groupdict()
    device, layer, address = _DEVICE.search(line.text), _LAYER.search(line.text), _ADDRESS.search(line.text)
    pid = _PID.search(line.text)
    return Event(
        kind, line,
        device=_number(device[1]) if device else None,
        layer=_layer(groups.get("layer") or (layer[1] if layer else None)),
        address=_number(groups.get("address") or (address[1] if address else None)),
        node=_number(groups.get("node")),
        pid=_number(pid[1]) if pid else None,
    )  # fmt: skip


def _fitting(rules: Sequence[Rule], line: Line, low: str) -> tuple[Rule, re.Match[str]] | None:
    for rule in rules:
        found = rule.pattern.search(line.text) if has(low, rule.words) else None
        if found is not None:
            return rule, found
    return None


def kernel_events(line: Line, low: str) -> Iterator[Event]:
    """The event of a line of a kernel's log."""
    fitting = _fitting(KERNEL, line, low)
    if fitting is not None:
        g = fitting[1].groupdict()
        yield Event(
            fitting[0].kind, line, address=_number(g.get("address")), pci=bus(g.get("pci")), pid=_number(g.get("pid")),
            name=g.get("name"), code=_number(g.get("code")),
        )  # fmt: skip


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
        if re.search(TRACING, line.text, re.IGNORECASE):
            yield Event("tracing tool", line)


@dataclass
class Cards:
    """How an engine's device numbers, PCI addresses and node numbers belong together, as far as its log says.

    count: devices that it says it found; None where it does not say.
    """

    pci: dict[int, str] = field(default_factory=dict)
    node: dict[int, int] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    count: int | None = None

    def learn(self, line: Line, low: str) -> None:
        """Takes what a line such as 'device 1: 0000:1d:00.0 ready, node 2' tells."""
        if "pid" in low:
            self.pids.update(int(m) for m in _PID.findall(line.text))
        if not has(low, _DEVICE_WORDS):
            return
        found = _COUNT.search(line.text) if "found " in low else None
        if found:
            self.count = int(found[1])
        device = _DEVICE.search(line.text)
        address = _LONG_PCI.search(line.text) if device else None
        if address:
            self.pci.setdefault(int(device[1]), bus(address[0]))
            node = _NODE.search(line.text)
            if node:
                self.node.setdefault(int(device[1]), int(node[1]))

    def device_of(self, event: Event) -> int | None:
        """The engine's number of the device an event is about."""
        if event.device is not None:
            return event.device
        for device, address in self.pci.items():
            if event.pci is not None and address == event.pci:
                return device
        return next((device for device, node in self.node.items() if event.node is not None and node == event.node), None)
