"""The status of an entry: its causes against its limits, a sentence for each that is not a pass, and the limit that would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edge0verify.compare import explain
from edge0verify.compare.causes import biased
from edge0verify.compare.causes.rest import Finding
from edge0verify.compare.entry import Entry, in_layer
from edge0verify.compare.metrics import Metrics
from edge0verify.compare.policy import Limits, Policy, stage_of
from edge0verify.records import causes as names
from edge0verify.records.evidence import Evidence
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS, worst_status
from edge0verify.records.verdict import Worst

NOTED = ("route-flip", "permuted")
"""Causes that are said also where they pass: a pass that rests on a near tie or on a limit is to be seen."""
SHARED = ("stale", "structured", "unexplained")
"""Causes that a share of matched elements may excuse."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of an entry when its status is decided."""

    evidence: Evidence
    entry: Entry
    labels: np.ndarray
    counts: Mapping[str, int]
    """Elements per cause, rows on one side only included."""
    found: Mapping[str, Finding]
    metrics: Metrics
    shown: tuple[Worst, ...]
    total: int
    """Elements, rows on one side only included."""


@dataclass(frozen=True)
class Answer:
    """What one cause makes of the entry, why, and the smallest limit that would have passed ('' where none would)."""

    outcome: str
    why: str = ""
    limit: str = ""


def decide(facts: Facts, policy: Policy) -> tuple[str, list[str]]:
    """(status, reasons) of one entry."""
    evidence, name = facts.evidence, facts.entry.name
    limits = policy.limits(evidence.stage or stage_of(name), name, evidence.layer)
    unmatched = limits is None
    limits = limits or Limits(loose_share=policy.loose_share)
    outcomes, reasons = [PASS], []
    answers = [(cause, _answer(cause, facts, limits)) for cause in facts.counts]
    for cause, answer in sorted(answers, key=lambda one: (FAIL, INCONCLUSIVE, PASS).index(one[1].outcome)):
        outcomes.append(answer.outcome)
        if answer.outcome != PASS or cause in NOTED or (cause == names.CASCADE.name and evidence.earlier):
            reasons.append(_sentence(cause, facts, answer))
    for side in _biased(facts, limits):
        outcomes.append(FAIL)
        text = f"{in_layer(evidence.layer)} {name}: biased ({side.side} conforms and its error is systematic): {side.text}"
        reasons.append(text + "; " + " and ".join(_at_most(key, value) for key, value in side.limits.items()))
    if unmatched:
        outcomes.append(INCONCLUSIVE)
        reasons.append(f"{in_layer(evidence.layer)} {name}: error, no rule of {policy.source or 'the policy'} matches this tensor")
    return worst_status(o for o in outcomes if o != PASS) if set(outcomes) != {PASS} else PASS, reasons


def _biased(facts: Facts, limits: Limits) -> list[biased.Biased]:
    if facts.entry.name != facts.evidence.tensor or not biased.plan(facts.evidence):
        return []
    kept = {"a": facts.metrics.kept_a, "b": facts.metrics.kept_b}
    return biased.execute(facts.evidence, limits, conforming={side: n == facts.metrics.n for side, n in kept.items()})


def _answer(cause: str, facts: Facts, limits: Limits) -> Answer:
    if cause == names.LOOSE.name:
        return _loose(facts, limits)
    if cause == names.NONFINITE.name and facts.metrics.lone_nonfinite == 0:
        return Answer(INCONCLUSIVE, "the same on both sides, so nothing is proven")
    side = explain.which_side(facts.metrics.kept_a, facts.metrics.kept_b, facts.metrics.n)
    if cause == names.ROUTE_FLIP.name:
        return _route_flip(facts, limits)
    if cause == names.PERMUTED.name:
        share = facts.counts[cause] / facts.total
        return Answer(PASS, side) if share <= limits.permuted_share else Answer(FAIL, side, _at_most("permuted_share", share))
    if cause in SHARED:
        matched = _matched(facts)
        if limits.matched is not None and matched >= limits.matched:
            return Answer(PASS)
        return Answer(FAIL, side, _at_least("matched", matched))
    outcome = names.CAUSES[cause].outcome
    if outcome == PASS:                                 # its elements conform, whatever others of the entry do
        return Answer(PASS)
    return Answer(outcome, side, "no limit excuses it" if outcome == FAIL else "")


def _matched(facts: Facts) -> float:
    """Share of elements whose cause passes."""
    missing = {*SHARED, names.NONFINITE.name, names.UNWRITTEN.name}
    if _unjudged(facts):
        missing.add(names.LOOSE.name)
    return 1 - sum(n for cause, n in facts.counts.items() if cause in missing) / facts.total


def _unjudged(facts: Facts) -> bool:
    return facts.metrics.kept_a is None or facts.metrics.kept_b is None


def _loose(facts: Facts, limits: Limits) -> Answer:
    if _unjudged(facts):
        if limits.matched is None:
            return Answer(INCONCLUSIVE, "they differ and no bound says by how much they may")
        matched = _matched(facts)
        if matched >= limits.matched:
            return Answer(PASS)
        return Answer(FAIL, f"{matched:.6g} match, policy asks for {limits.matched:g}", _at_least("matched", matched))
    share = facts.counts[names.LOOSE.name] / facts.total
    if share <= limits.loose_share:
        return Answer(PASS)
    why = f"the bound cannot tell; share {share:.3g}, policy allows {limits.loose_share:g}"
    return Answer(INCONCLUSIVE, why, _at_most("loose_share", share))


def _route_flip(facts: Facts, limits: Limits) -> Answer:
    """Flips by their gap and number; rows on one side only follow from them."""
    found = facts.found.get(names.ROUTE_FLIP.name)
    outcome, said = PASS, []
    if found is not None:
        gap, flips = found.figures.get("gap"), int(found.figures["flips"])
        if gap is None:
            outcome = INCONCLUSIVE
        elif gap > limits.route_gap:
            outcome = FAIL
            said.append(_at_most("route_gap", gap))
        if limits.route_flips is not None and flips > limits.route_flips:
            outcome = FAIL
            said.append(_at_most("route_flips", flips))
    lone = facts.evidence.lone
    if lone is not None and (len(lone.a) or len(lone.b)) and not lone.within:
        outcome = FAIL if lone.within is False or outcome == FAIL else INCONCLUSIVE
    if outcome == FAIL and not said:
        said.append("no limit excuses it")
    return Answer(outcome, "", " and ".join(said))


def _at_most(name: str, value: float) -> str:
    return f"{name} = {float(value)!r} would have passed" if not isinstance(value, int) else f"{name} = {value} would have passed"


def _at_least(name: str, value: float) -> str:
    return f"{name} = {float(value)!r} would have passed"


def _sentence(cause: str, facts: Facts, answer: Answer) -> str:
    found = facts.found.get(cause)
    note = found.note if found is not None else ""
    if cause == names.ROUTE_FLIP.name and facts.evidence.lone is not None:
        lone = facts.evidence.lone
        alone = f"{len(lone.a)} rows only in a, {len(lone.b)} only in b"
        note = f"{note}; {alone}" if note else alone
    if cause == names.CASCADE.name and facts.evidence.earlier:
        note = f"began in {facts.evidence.earlier}"
    text = explain.cause_sentence(
        facts.evidence.layer, facts.entry, facts.labels, cause, n=facts.counts[cause], total=facts.total, worst=facts.shown,
        key_names=facts.evidence.key_names, side=answer.why, note=note,
    )
    return f"{text}; {answer.limit}" if answer.limit else text
