"""One pass over a log: its events, and what it tells of cards and processes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from edge0verify.probe.triage.events import (
    ENGINE_WORDS,
    KERNEL_WORDS,
    Cards,
    Event,
    engine_events,
    has,
    is_kernels,
    kernel_events,
)
from edge0verify.probe.triage.lines import Line

MOST = 1000
"""Events of one kind that are weighed; a log that repeats one line a million times says no more than that."""
BATCH = 4096


@dataclass
class Log:
    """What a log says.  events: of the engine; of_kernel: of the kernel; left_out: what was more than is weighed."""

    events: list[Event] = field(default_factory=list)
    of_kernel: list[Event] = field(default_factory=list)
    cards: Cards = field(default_factory=Cards)
    empty: bool = True
    left_out: str | None = None

    def keep(self, found: Iterable[Event], seen: Counter[str], into: list[Event]) -> None:
        """Adds events, of each kind the first MOST."""
        for event in found:
            seen[event.kind] += 1
            if seen[event.kind] <= MOST:
                into.append(event)

    def close(self, seen: Counter[str]) -> None:
        """Says what was left out."""
        most = {kind: n for kind, n in seen.items() if n > MOST}
        if most:
            counts = ", ".join(f"{n} of {kind}" for kind, n in most.items())
            self.left_out = f"more lines than are weighed: {counts}; the first {MOST} of each are"


def telling(lines: Iterable[Line], words: Sequence[str]) -> Iterator[tuple[Line, str]]:
    """The lines that hold one of the words, each with its text in lower case; in batches, as most words are in no line."""
    rest = iter(lines)
    while batch := list(itertools.islice(rest, BATCH)):
        lows = [line.text.lower() for line in batch]
        whole = "\n".join(lows)
        present = [word for word in words if word in whole]
        if present:
            yield from ((line, low) for line, low in zip(batch, lows) if has(low, present))


def read_engine(lines: Iterator[Line]) -> Log:
    """An engine's log; lines that the kernel wrote into it are kept apart."""
    first = next(lines, None)
    log, seen = Log(empty=first is None), Counter()
    if first is None:
        return log
    for line, low in telling(itertools.chain([first], lines), ENGINE_WORDS):
        if is_kernels(line, low):
            log.keep(kernel_events(line, low), seen, log.of_kernel)
        else:
            log.cards.learn(line, low)
            log.keep(engine_events(line, low), seen, log.events)
    log.events = [replace(e, device=log.cards.device_of(e)) for e in log.events]
    log.close(seen)
    return log


def read_kernel(lines: Iterable[Line]) -> Log:
    """A kernel's log."""
    log, seen = Log(), Counter()
    for line, low in telling(lines, KERNEL_WORDS):
        log.keep(kernel_events(line, low), seen, log.of_kernel)
    log.close(seen)
    return log
