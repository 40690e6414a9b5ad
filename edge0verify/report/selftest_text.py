"""The self test as text: what was tried and what came of it, by source and by cause, and everything that came out wrong."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from tabulate import tabulate

from edge0verify.records.causes import FAILING
from edge0verify.study.selftest.criteria import Score
from edge0verify.study.selftest.runner import Report, by_source
from edge0verify.study.selftest.types import (
    CAUGHT,
    FALSE_ALARM,
    MISNAMED,
    MISSED,
    NOT_EXERCISED,
    PASSED,
    Outcome,
)

WIDTH = 132
_SOURCES = {
    "legitimate": "legitimate changes",
    "compiled": "faults compiled into kernels",
    "doctored": "faults made in outputs",
    "blind": "faults by someone who has not read the comparator",
    "route": "faults of the router",
    "unproven": "runs that prove nothing",
}
_RESULTS = (CAUGHT, MISNAMED, MISSED, NOT_EXERCISED, PASSED, FALSE_ALARM)


def _table(lines: Sequence[Sequence[str]], headers: Sequence[str], text_columns: int = 1) -> str:
    align = ["left"] * text_columns + ["right"] * (len(headers) - text_columns)
    return tabulate(lines, headers, tablefmt="simple", disable_numparse=True, colalign=align)


def _count(n: int) -> str:
    return str(n) if n else "-"


def _by_source(report: Report) -> str:
    found = by_source(report.outcomes)
    lines = [[_SOURCES[s], *(_count(found[s][result]) for result in _RESULTS)] for s in _SOURCES if s in found]
    lines.append(["all", *(str(report.counts[result]) for result in _RESULTS)])
    return _table(lines, ["", *_RESULTS])


def _by_cause(report: Report) -> str:
    """Faults by the cause that is right for them (the first, where more than one is)."""
    found: dict[str, Counter] = {}
    for o in report.outcomes:
        if o.expect:
            found.setdefault(o.expect[0], Counter())[o.result] += 1
    lines = [
        [cause, *(_count(found[cause][result]) for result in (CAUGHT, MISNAMED, MISSED, NOT_EXERCISED))]
        for cause in sorted(FAILING)
        if cause in found
    ]
    return _table(lines, ["fault of cause", CAUGHT, MISNAMED, MISSED, NOT_EXERCISED])


def _line(o: Outcome) -> list[str]:
    said = o.cause or "-"
    return [o.result, o.source, o.stage, o.name, o.where, "|".join(o.expect) or "-", said, o.status]


def _wrong(report: Report) -> str:
    wrong = [o for o in report.outcomes if o.result not in (CAUGHT, PASSED)]
    if not wrong:
        return ""
    return _table([_line(o) for o in wrong], ["result", "source", "stage", "name", "on", "right cause", "found", "status"], 8)


def _every(report: Report) -> str:
    lines = [_line(o) for o in report.outcomes]
    return _table(lines, ["result", "source", "stage", "name", "on", "right cause", "found", "status"], 8)


def _comparators(report: Report, every: bool) -> str:
    noticed = len(report.comparators) - len(report.unnoticed)
    head = f"comparators broken on purpose: {noticed} of {len(report.comparators)} would be noticed"
    if not every:
        return head
    lines = [[c.name, c.caught_by or "-", textwrap.shorten(c.how, 40, placeholder=" ...")] for c in report.comparators]
    return head + "\n\n" + _table(lines, ["a comparator that", "is noticed by", "as"], 3)


def selftest_text(report: Report, *, every: bool = False) -> str:
    """Tables and the verdict; `every` lists each trial and each broken comparator. Ends without a newline."""
    form = "reduced form" if report.quick else "whole form"
    parts = [f"self test, {form}: {len(report.outcomes)} trials, {report.faults} of them faults"]
    if every:
        parts.append(_every(report))
    parts += [_by_source(report), _by_cause(report), _comparators(report, every)]
    wrong = _wrong(report)
    if wrong and not every:
        parts.append(wrong)
    closing = [f"verdict: {'PASS' if report.ok else 'FAIL'}"]
    for reason in report.reasons:
        closing += textwrap.wrap(reason, WIDTH - 4, initial_indent="  - ", subsequent_indent="    ")
    parts.append("\n".join(closing))
    return "\n\n".join(parts)


def criteria_text(scores: Sequence[Score], *, every: bool = False) -> str:
    """A line per criterion; `every` lists what each misses and refuses wrongly."""
    lines = [[s.name, f"{s.caught} of {s.faults}", f"{s.false_alarms} of {s.changes}"] for s in scores]
    parts = [_table(lines, ["stage D", "faults caught", "false alarms"])]
    if every:
        for s in scores:
            for what, names in (("misses", s.missed), ("refuses", s.alarms)):
                if names:
                    text = f"{s.name} {what}: {', '.join(names)}"
                    parts.append("\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False)))
    return "\n\n".join(parts)
