"""What came of a trial: caught, misnamed, missed, not exercised; passed or a false alarm."""

from __future__ import annotations

from collections.abc import Sequence

from edge0verify.compare import compare, judge
from edge0verify.records.causes import BIASED, FAILING
from edge0verify.records.status import FAIL, PASS
from edge0verify.records.verdict import LayerResult, Verdict
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


def verdict(tried: Tried) -> Verdict:
    """The suite's verdict on a trial, as `edge0verify compare` gives it."""
    results = [result for item in tried.items for result in compare(item, threads=1)]
    a, b = tried.names
    return judge(results, a=a, b=b, engaged_a=tried.engaged[0], engaged_b=tried.engaged[1])


def outcome(trial: Trial, tried: Tried) -> Outcome:
    """Judge a trial and set the verdict beside what is right."""
    found = verdict(tried)
    named = cause_of(found.layers, trial.tensor)
    first = next((r.tensor for r in found.layers if r.status != PASS), "")
    note = tried.broken or (found.reasons[0] if found.reasons else "")
    return Outcome(
        name=trial.name, source=trial.source, stage=trial.stage, where=trial.where, tensor=trial.tensor, expect=trial.expect,
        result=_result(trial, tried, found, named), status=found.status, cause=named, first=first, note=note,
    )  # fmt: skip


def _result(trial: Trial, tried: Tried, found: Verdict, named: str) -> str:
    if not tried.changed:
        return NOT_EXERCISED
    if trial.source == "legitimate":
        if found.status != trial.status or tried.broken:
            return FALSE_ALARM
        return PASSED if not trial.shows or found.totals["causes"].get(trial.shows) else MISNAMED
    if trial.source == "unproven":
        if found.status == PASS:
            return MISSED
        right = found.status == trial.status and any(trial.says in reason for reason in found.reasons)
        return CAUGHT if right else MISNAMED
    if found.status != FAIL:
        return MISSED
    return CAUGHT if named in trial.expect else MISNAMED


def cause_of(results: Sequence[LayerResult], tensor: str) -> str:
    """The failing cause with most elements in the entries of a tensor ('' for all), `biased` where no element has one."""
    counts: dict[str, int] = {}
    biased = False
    for result in results:
        if result.status != FAIL or (tensor and result.tensor.removesuffix(".d").removesuffix(".s") != tensor):
            continue
        for cause, n in result.causes.items():
            if cause in FAILING:
                counts[cause] = counts.get(cause, 0) + n
        biased |= any(": biased" in reason for reason in result.reasons)
    if counts:
        return max(counts, key=lambda cause: counts[cause])
    return BIASED.name if biased else ""
