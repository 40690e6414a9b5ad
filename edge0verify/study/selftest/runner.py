"""Run the self test: every trial, then the broken comparators against the reduced battery."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edge0verify.records.causes import FAILING
from edge0verify.study.selftest.comparators import BROKEN, Broken
from edge0verify.study.selftest.judging import outcome
from edge0verify.study.selftest.trials import need_mutants, trials
from edge0verify.study.selftest.types import (
    CAUGHT,
    FALSE_ALARM,
    MISNAMED,
    MISSED,
    NOT_EXERCISED,
    PASSED,
    Outcome,
    Trial,
    Tried,
)

SCHEMA = "edge0verify.selftest/1"
MOST_MISNAMED = 2
FEWEST = {"planted faults": 40, "compiled faults": 15, "faults of a cause": 3, "blind faults": 10, "legitimate changes": 30}
"""What the whole form must hold at least: a battery that shrinks proves less."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Survivor:
    """What became of one broken comparator."""

    name: str
    caught_by: str
    """The first trial that came out wrong; '' where none did, so that nobody would notice."""
    how: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """The whole self test."""

    quick: bool
    outcomes: tuple[Outcome, ...]
    comparators: tuple[Survivor, ...]
    seconds: float

    @property
    def counts(self) -> dict[str, int]:
        """Outcomes by result; every result stands, 0 included."""
        found = Counter(o.result for o in self.outcomes)
        return {result: found[result] for result in (CAUGHT, MISNAMED, MISSED, NOT_EXERCISED, PASSED, FALSE_ALARM)}

    @property
    def faults(self) -> int:
        """Trials that must not pass."""
        return sum(o.source != "legitimate" for o in self.outcomes)

    @property
    def unnoticed(self) -> list[str]:
        """Broken comparators that the battery does not notice."""
        return [c.name for c in self.comparators if not c.caught_by]

    def short_of(self) -> list[str]:
        """What the whole form lacks; the reduced form is not held to it."""
        if self.quick:
            return []
        planted = [o for o in self.outcomes if o.source in ("compiled", "doctored", "blind", "route")]
        have = {
            "planted faults": len(planted),
            "compiled faults": len({o.name.split()[0] for o in planted if o.source == "compiled"}),
            "blind faults": sum(o.source == "blind" for o in planted),
            "legitimate changes": sum(o.source == "legitimate" for o in self.outcomes),
        }
        short = [f"{have[name]} {name}, expected at least {FEWEST[name]}" for name in have if have[name] < FEWEST[name]]
        for cause in sorted(FAILING):
            n = sum(cause in o.expect[:1] for o in planted)
            if n < FEWEST["faults of a cause"]:
                short.append(f"{n} faults of cause {cause}, expected at least {FEWEST['faults of a cause']}")
        return short

    @property
    def reasons(self) -> list[str]:
        """Why the self test fails; empty where it does not."""
        counts = self.counts
        said = [f"{counts[what]} {what}" for what in (MISSED, NOT_EXERCISED, FALSE_ALARM) if counts[what]]
        if counts[MISNAMED] > MOST_MISNAMED:
            said.append(f"{counts[MISNAMED]} misnamed, at most {MOST_MISNAMED} allowed")
        if not self.outcomes:
            said.append("nothing was tried")
        said += [f"nobody would notice a comparator that {name}" for name in self.unnoticed]
        return said + self.short_of()

    @property
    def ok(self) -> bool:
        return not self.reasons

    def to_json(self) -> dict[str, Any]:
        """Plain values, schema first."""
        return {
            "schema": SCHEMA,
            "status": "PASS" if self.ok else "FAIL",
            "reasons": self.reasons,
            "quick": self.quick,
            "counts": self.counts,
            "faults": self.faults,
            "trials": [{**asdict(o), "expect": list(o.expect)} for o in self.outcomes],
            "comparators": [asdict(c) for c in self.comparators],
            "seconds": round(self.seconds, 1),
        }


def selftest(*, quick: bool = False, progress: Progress | None = None) -> Report:
    """Every trial, or with `quick` those of the reduced form, and the broken comparators. InputError without the mutant module."""
    need_mutants()
    report = progress or (lambda what, done, total: None)
    started = time.monotonic()
    chosen = [trial for trial in trials() if trial.quick or not quick]
    outcomes: list[Outcome] = []
    battery: list[tuple[Trial, Tried]] = []
    for at, trial in enumerate(chosen):
        report("trials", at, len(chosen))
        tried = trial.make()
        outcomes.append(outcome(trial, tried))
        if trial.quick:
            battery.append((trial, tried))
    report("trials", len(chosen), len(chosen))
    right = [pair for pair, found in zip(battery, (o for o, t in zip(outcomes, chosen) if t.quick)) if _right(found)]
    survivors: list[Survivor] = []
    for at, broken in enumerate(BROKEN):
        report("broken comparators", at, len(BROKEN))
        survivors.append(try_broken(broken, right))
    report("broken comparators", len(BROKEN), len(BROKEN))
    return Report(quick=quick, outcomes=tuple(outcomes), comparators=tuple(survivors), seconds=time.monotonic() - started)


def _right(found: Outcome) -> bool:
    return found.result in (CAUGHT, PASSED)


def try_broken(broken: Broken, battery: Sequence[tuple[Trial, Tried]]) -> Survivor:
    """Judge the battery with a broken comparator until the self test would fail.

    That is a fault missed, a false alarm, more misnamed causes than are allowed, or an error of the suite.
    """
    first = broken.by.split("; ")
    ordered = sorted(battery, key=lambda pair: first.index(pair[0].name) if pair[0].name in first else len(first))
    misnamed: list[str] = []
    with broken.planted():
        for trial, tried in ordered:
            try:
                found = outcome(trial, tried)
            except Exception as error:
                return Survivor(name=broken.name, caught_by=trial.name, how=f"error: {error}")
            if found.result in (MISSED, FALSE_ALARM):
                return Survivor(name=broken.name, caught_by=trial.name, how=found.result)
            if found.result == MISNAMED:
                misnamed.append(trial.name)
            if len(misnamed) > MOST_MISNAMED:
                return Survivor(name=broken.name, caught_by=", ".join(misnamed), how=MISNAMED)
    return Survivor(name=broken.name, caught_by="", how=f"unnoticed, {len(misnamed)} misnamed")


def by_source(outcomes: Iterable[Outcome]) -> dict[str, Counter]:
    """Counts of results by source, in the order met."""
    found: dict[str, Counter] = {}
    for o in outcomes:
        found.setdefault(o.source, Counter())[o.result] += 1
    return found
