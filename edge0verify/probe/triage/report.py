"""Puts the logs together: joins the kernel's lines to the engine's by device, process and time, and weighs causes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edge0verify.engine.split import Split
from edge0verify.probe.triage.causes import SYMPTOMS, Case, Cause, weigh
from edge0verify.probe.triage.events import FAILED, Cards, Event, stack_events
from edge0verify.probe.triage.lines import gap, has_boot_clock, read_lines
from edge0verify.probe.triage.logs import Log, read_engine, read_kernel
from edge0verify.records import status as statuses

SCHEMA = "edge0verify.triage/1"
WINDOW_S = 120.0
"""How far a kernel's line may be from the engine's trouble and still belong to it."""
KERNEL_TROUBLE = (
    "page fault", "kernel exception", "device error", "device reset", "ring time-out", "sq_intr", "out of memory kill",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """One line of the engine (or waiting threads) that shows trouble."""

    kind: str
    where: str
    text: str
    device: int | None = None
    layer: int | str | None = None


@dataclass(frozen=True, kw_only=True)
class Triage:
    """symptoms, ranked causes, and what stands in the way of a better answer."""

    status: str
    symptoms: tuple[Symptom, ...]
    causes: tuple[Cause, ...]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        return statuses.exit_code(self.status)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "status": self.status,
            "symptoms": [asdict(s) for s in self.symptoms],
            "causes": [
                {
                    "cause": c.name,
                    "explains": c.explains,
                    "score": c.score,
                    "for": [asdict(e) for e in c.supporting],
                    "against": [asdict(e) for e in c.against],
                    "probe": c.probe,
                }
                for c in self.causes
            ],
            "notes": list(self.notes),
        }

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n"


def triage(engine: Path, *, kernel: Path | None = None, stacks: Path | None = None, split: Split | None = None) -> Triage:
    """Read the logs and weigh causes.  PASS where the engine shows no trouble, INCONCLUSIVE where no line tells why, else FAIL.

    InputError for a file that is no text.
    """
    log = read_engine(read_lines(engine, "engine"))
    if log.empty:
        return Triage(status=statuses.INCONCLUSIVE, symptoms=(), causes=(), notes=("the engine's log is empty",))
    from_kernel = Log() if kernel is None else read_kernel(read_lines(kernel, "kernel"))
    threads = list(stack_events(read_lines(stacks, "stacks"))) if stacks is not None else []
    known, events = log.cards, log.events
    waiting = [e for e in threads if e.kind == "waiting thread"]
    unfinished = not any(e.kind == "finished" for e in events)
    trouble = [e for e in events if e.kind in SYMPTOMS] or [e for e in events if e.kind == FAILED]
    joined, notes = join(trouble, [*log.of_kernel, *from_kernel.of_kernel], known)
    hangs = bool(waiting) and unfinished
    own = [e for e in joined if decides_alone(e, known, unfinished)]
    notes += [text for text in (log.left_out, from_kernel.left_out) if text]
    if not trouble and not hangs and not own:
        kinds = ", ".join(dict.fromkeys(e.kind for e in joined if e.kind in KERNEL_TROUBLE))
        if kinds:
            notes.append(f"the kernel log has a {kinds} that no line of the engine belongs to")
        return Triage(status=statuses.PASS, symptoms=(), causes=(), notes=tuple(notes))
    case = Case(
        engine=events,
        kernel=joined,
        stacks=threads,
        has_kernel=kernel is not None,
        devices=_devices(known, split, events),
        pids=frozenset(known.pids),
        borders=borders(split),
    )
    notes += missing(trouble, kernel, stacks, split)
    causes = tuple(weigh(case))
    shown = [_symptom(e) for e in [*trouble, *(waiting if hangs else []), *([] if trouble else own)]]
    return Triage(
        status=statuses.FAIL if causes else statuses.INCONCLUSIVE, symptoms=tuple(shown), causes=causes, notes=tuple(notes)
    )


def decides_alone(event: Event, known: Cards, unfinished: bool) -> bool:
    """Whether a kernel's event is trouble although the engine says nothing: about its process, or about a card of an open run."""
    if event.pid is not None and event.pid in known.pids:
        return event.kind in ("out of memory kill", "page fault", "kernel exception", "device error")
    return event.kind == "device error" and event.pid is None and event.device is not None and unfinished


def missing(trouble: Sequence[Event], kernel: Path | None, stacks: Path | None, split: Split | None) -> list[str]:
    """What was not given and would tell more."""
    notes = []
    if kernel is None:
        notes.append("no kernel log: page faults, kills for memory and evictions cannot be seen (--kernel-log)")
    if stacks is None and any(e.kind == "time-out" for e in trouble):
        notes.append("no stacks: where threads wait cannot be seen (--stacks)")
    if split is None and any(e.layer is not None for e in trouble):
        notes.append("no --split: whether that layer is the first of its device is not known")
    return notes


def _devices(known: Cards, split: Split | None, events: Sequence[Event]) -> int:
    """How many devices take part; 0 where nothing says."""
    if split is not None:
        return len(split.devices)
    if known.count is not None:
        return known.count
    named = {e.device for e in events if e.device is not None} | set(known.pci)
    # Numbers start at 0: a device 1 is never alone. One number in the lines of a fault does not say that there is no other.
    return max(named) + 1 if known.pci or len(named) > 1 else 0


def _symptom(event: Event) -> Symptom:
    return Symptom(
        kind=event.kind, where=event.line.where, text=event.line.text.strip()[:200], device=event.device, layer=event.layer
    )


def borders(split: Split | None) -> frozenset[int | str]:
    """Layers right behind a hand-off; the drafter reads the table and the last device's rows."""
    if split is None or len(split.devices) < 2:
        return frozenset()
    return frozenset({part.first for part in split.parts[1:]} | {"mtp"})


def join(trouble: Sequence[Event], kernel: Sequence[Event], known: Cards) -> tuple[list[Event], list[str]]:
    """The kernel's events that belong to the engine's trouble, with the engine's device number; and notes on what was left out."""
    dated = [e.line for e in trouble if e.line.when is not None]
    killed = any(e.kind in ("killed", "out of memory kill") for e in trouble)
    kept, other = [], 0
    for event in kernel:
        event = replace(event, device=known.device_of(event))
        named = event.pid is not None and known.pids and event.pid not in known.pids
        foreign_card = event.pci is not None and known.pci and event.pci not in known.pci.values()
        far = bool(dated) and event.line.when is not None and min(gap(event.line, line) for line in dated) > WINDOW_S
        unknown_kill = event.kind == "out of memory kill" and not known.pids and not killed
        if named or foreign_card or far or unknown_kill:
            other += 1
        else:
            kept.append(event)
    notes = []
    if other:
        notes.append(
            f"{other} lines of the kernel log are about another process, card or time and were left out (a clock without a zone is "
            "taken as UTC)"
        )
    boot = any(has_boot_clock(e.line.text) for e in kernel)
    if dated and boot and not any(e.line.when is not None for e in kernel):
        notes.append(
            "the kernel log counts from boot: joined by device alone (dmesg -T or journalctl -k -o short-iso gives a wall clock)"
        )
    return kept, notes


def triage_text(result: Triage) -> str:
    """For a terminal."""
    if not result.symptoms:
        return "\n".join([*(f"note  {n}" for n in result.notes), f"{result.status}: " + (
            "no line shows a fault" if result.status == statuses.PASS else "nothing to read")])  # fmt: skip
    lines = [f"{s.kind:16} {s.where}{f'  device {s.device}' if s.device is not None else ''}"
             f"{f'  layer {s.layer}' if s.layer is not None else ''}\n    {s.text}" for s in result.symptoms[:8]]  # fmt: skip
    if len(result.symptoms) > 8:
        lines.append(f"    and {len(result.symptoms) - 8} lines more")
    for rank, cause in enumerate(result.causes, 1):
        lines.append(f"\n{rank}. {cause.name} ({cause.score}): {cause.explains}")
        lines += [f"   + {e.text}{f'  [{e.where}]' if e.where else ''}" for e in cause.supporting]
        lines += [f"   - {e.text}{f'  [{e.where}]' if e.where else ''}" for e in cause.against]
        lines.append(f"   decides: {cause.probe}")
    lines += ["", *(f"note  {note}" for note in result.notes)]
    count = len(result.causes)
    last = (
        f"{count} cause{'s' if count != 1 else ''} fit{'s' if count == 1 else ''}, the likeliest first"
        if result.causes
        else "trouble that no line explains"
    )
    return "\n".join([*lines, f"{result.status}: {last}"])
