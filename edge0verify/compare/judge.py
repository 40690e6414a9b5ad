"""From entries to a verdict: the precedence of design, and the sentences that give the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from edge0verify.compare.entry import in_layer
from edge0verify.compare.ladder import widest_jump
from edge0verify.compare.policy import DEFAULT, Policy
from edge0verify.compare.top8 import hold
from edge0verify.records import causes as names
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Engagement
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import LayerResult, Verdict, percent

SHOWN = 12
"""Reasons of failing entries that are written out; the rest are counted."""


def judge(
    results: Iterable[LayerResult],
    *,
    a: str,
    b: str,
    engaged_a: Engagement,
    engaged_b: Engagement,
    stage: str | None = None,
    reference: str | None = None,
    policy: Policy = DEFAULT,
    input_error: str | None = None,
    unlike: Sequence[str] = (),
    suspect: Sequence[str] = (),
    inconclusive: Sequence[str] = (),
    failures: Sequence[str] = (),
    model: dict[str, Any] | None = None,
    prompt: dict[str, Any] | None = None,
    signature: dict[str, Any] | None = None,
    top8: dict[str, Any] | None = None,
    environment: dict[str, Any] | None = None,
) -> Verdict:
    """The verdict on `results`, variant `a` against variant `b`.

    First that applies: `input_error` (raises InputError), reasons `unlike` (unlike runs, one binary for two builds) or
    `suspect` (the reference) INCONCLUSIVE, a failing entry or one of `failures` FAIL, then INCONCLUSIVE for nothing
    compared, an entry that is, a side not engaged, launches unknown, or any of `inconclusive`; else PASS. The reasons of
    lower rank follow those that decided.
    """
    if input_error is not None:
        raise InputError(input_error)
    results = tuple(results)
    totals = total(results)
    first = [*unlike, *suspect]
    too_far, not_held = hold(top8, policy)
    failing = [*_of(results, FAIL), *too_far, *failures]
    engaged = {"a": _engaged(engaged_a, results, "a"), "b": _engaged(engaged_b, results, "b")}
    other = [
        *_nothing_compared(results),
        *_of(results, INCONCLUSIVE),
        *_not_engaged("a", engaged_a, engaged["a"], totals, policy),
        *_not_engaged("b", engaged_b, engaged["b"], totals, policy),
        *_unused(results, policy),
        *not_held,
        *inconclusive,
    ]
    if first:
        status = INCONCLUSIVE
    elif failing:
        status = FAIL
    elif other:
        status = INCONCLUSIVE
    else:
        status = PASS
    return Verdict(
        status=status,
        reasons=(*first, *_shortened(failing), *_shortened(other)),
        stage=stage,
        a=a,
        b=b,
        reference=reference,
        model=model,
        prompt=prompt,
        engaged=engaged,
        signature=signature if signature is not None else _signature(results),
        layers=results,
        totals=totals,
        top8=top8,
        environment=environment or {},
    )


def _of(results: Sequence[LayerResult], status: str) -> list[str]:
    """The reasons of the entries of that status. One without a reason still gets a sentence."""
    reasons: list[str] = []
    # What is no number, or was never written, comes first: no figure beside it means anything.
    first = {names.NONFINITE.name, names.UNWRITTEN.name}
    for result in sorted(results, key=lambda result: not first & set(result.causes)):
        if result.status == status:
            reasons.extend(result.reasons or (f"{in_layer(result.layer)} {result.tensor}: {status}",))
    return reasons


def _shortened(reasons: Sequence[str]) -> list[str]:
    """At most `SHOWN` of them in their order, one of each tensor and cause before a second one of any."""
    if len(reasons) <= SHOWN:
        return list(reasons)
    seen: set[str] = set()
    again = []
    for reason in reasons:
        kind = _kind(reason)
        again.append(kind in seen)
        seen.add(kind)
    shown = sorted(sorted(range(len(reasons)), key=lambda i: again[i])[:SHOWN])
    return [*(reasons[i] for i in shown), f"and {len(reasons) - SHOWN} more of this kind"]


def _kind(reason: str) -> str:
    """Tensor and cause of a reason that begins 'layer 3 d-xl: 7 of 96 values structured'; the reason itself of any other."""
    head, colon, rest = reason.partition(": ")
    cause = next((word.rstrip(",;") for word in rest.split() if word.rstrip(",;") in names.CAUSES), None)
    return f"{head.split()[-1]} {cause}" if colon and cause else reason


def hold_movement(verdict: Verdict, top8: dict[str, Any], policy: Policy) -> Verdict:
    """The verdict with a movement that was measured after it was given, held to the policy."""
    too_far, not_held = hold(top8, policy)
    reasons = (*too_far, *verdict.reasons, *not_held)
    status = FAIL if too_far else verdict.status
    if status == PASS and not_held:
        status = INCONCLUSIVE
    return replace(verdict, top8=top8, status=status, reasons=reasons)


def _unused(results: Sequence[LayerResult], policy: Policy) -> list[str]:
    """Rules that hold for nothing: what they were written for was not compared."""
    return [f"{name} matches no tensor that was compared" for name in policy.unused((r.tensor, r.layer) for r in results)]


def _nothing_compared(results: Sequence[LayerResult]) -> list[str]:
    return [] if any(result.n for result in results) else ["nothing was compared"]


def _engaged(engagement: Engagement, results: Sequence[LayerResult], side: str) -> bool | None:
    """Launched, and the poison is gone: a tensor that is poison all over was written by no kernel."""
    untouched = any(result.n and result.poison[side] == result.n for result in results)
    return False if untouched and engagement.engaged is not None else engagement.engaged


def _not_engaged(
    side: str, engagement: Engagement, engaged: bool | None, totals: dict[str, Any], policy: Policy
) -> list[str]:
    if engaged:
        return []
    if engaged is None:
        if policy.allow_foreign:
            return []
        return [f"{side}: launches of {engagement.asked} are not known, so nothing shows that it ran"]
    launches = engagement.launches or {}
    idle = [key for key in engagement.wanted if launches.get(key, 0) == 0]
    if idle:
        ran = ", ".join(f"{key} {n} times" for key, n in sorted(engagement.ran.items()) if key not in engagement.wanted)
        names_of = sorted({key.split("/")[1] for key in engagement.ran if key not in engagement.wanted and key.count("/") == 2})
        text = f"{side}: not engaged, {engagement.asked} was asked for and {' and '.join(names_of) or 'no kernel'} ran"
        text += f" ({', '.join(idle)} launched 0 times{'; ' + ran if ran else ''})"
    elif not engagement.wanted:
        text = f"{side}: not engaged, no kernel was named for {engagement.asked}"
    else:
        text = f"{side}: not engaged, {engagement.asked} was launched and its output still holds the poison it was preset to"
    if totals["n"] and totals["equal"] == totals["n"]:
        text += "; every compared bit is equal on both sides"
    return [text]


def _signature(results: Sequence[LayerResult]) -> dict[str, Any]:
    """What was compared: tensors and layers in the order met."""
    return {
        "tensors": list(dict.fromkeys(result.tensor for result in results)),
        "layers": list(dict.fromkeys(result.layer for result in results)),
    }


def total(results: Sequence[LayerResult]) -> dict[str, Any]:
    """Sums over entries: elements, equal ones, causes in order of decision, entries per status."""
    n, equal = sum(r.n for r in results), sum(r.equal for r in results)
    counts = {name: sum(r.causes.get(name, 0) for r in results) for name in names.CAUSES}
    codes = [r for r in results if r.code_diffs is not None]
    code_n, code_equal = sum(r.n for r in codes), sum(r.equal for r in codes)
    return {
        "entries": len(results),
        "n": n,
        "equal": equal,
        "equal_pct": percent(equal, n),
        "codes": code_n,
        "codes_equal": code_equal,
        "codes_equal_pct": percent(code_equal, code_n),
        "causes": {name: count for name, count in counts.items() if count},
        "notes": _shortened([reason for r in results if r.status == PASS for reason in r.reasons]),
        "biased": sum(any(": biased" in reason for reason in r.reasons) for r in results),
        "widest_jump": widest_jump(results),
        "status": {status: sum(r.status == status for r in results) for status in (PASS, FAIL, INCONCLUSIVE)},
    }
