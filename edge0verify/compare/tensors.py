"""Compare two sides of one tensor: cut it into elements, give each its cause, and report."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np

from edge0verify.compare import causes, comparators, worst
from edge0verify.compare.causes import biased
from edge0verify.compare.entry import Entry, where
from edge0verify.compare.metrics import Metrics
from edge0verify.compare.policy import DEFAULT, Policy
from edge0verify.compare.status import Facts, decide
from edge0verify.records import causes as names
from edge0verify.records.evidence import Evidence
from edge0verify.records.status import INCONCLUSIVE
from edge0verify.records.verdict import LayerResult, percent

CHUNK = 1 << 17
"""Elements looked at together: large enough that threads do not wait for each other, and a few MB of temporaries each."""

Chunk = dict[str, tuple[np.ndarray, Metrics]]


def compare(evidence: Evidence, *, policy: Policy = DEFAULT, threads: int = 2) -> list[LayerResult]:
    """Results of one tensor: one entry for rows or ids; for blocks codes, scales (`.d`), and block sums (`.s`) if both
    sides store them.

    Raises InputError where the sides cannot be compared at all: unlike shapes or dtypes, unknown kind. A side without
    the tensor, and a tensor without elements, is INCONCLUSIVE.
    """
    # Inf and NaN are what is looked for here; numpy need not say it a second time.
    with np.errstate(all="ignore"):
        return _compare(evidence, policy, threads)


def _compare(evidence: Evidence, policy: Policy, threads: int) -> list[LayerResult]:
    comparator = comparators.find(evidence.kind)
    missing = [name for name, side in (("a", evidence.a), ("b", evidence.b)) if not side.present(evidence.kind)]
    if missing:
        return [_nothing(evidence, f"{where(evidence)}: missing on side {' and '.join(missing)}")]
    comparator.check(evidence)
    entries = comparator.entries(evidence)
    n = comparator.size(evidence.a)
    if n == 0 or any(entry.columns == 0 for entry in entries):
        return [_nothing(evidence, f"{where(evidence)}: empty, nothing compared")]
    labels = {entry.name: np.empty((n, entry.columns), np.uint8) for entry in entries}
    metrics = {entry.name: Metrics() for entry in entries}
    step = max(1, CHUNK // entries[0].columns)
    parts = [slice(lo, min(lo + step, n)) for lo in range(0, n, step)]
    for part, chunk in zip(parts, _run(evidence, comparator, parts, threads)):
        for name in labels:
            labels[name][part], figures = chunk[name]
            metrics[name].merge(figures)
    memory: dict = {}
    found = {
        entry.name: causes.label_rest(labels[entry.name], _rest(evidence, entry, labels[entry.name], metrics[entry.name], memory))
        for entry in entries
    }
    scales = metrics.get(evidence.tensor + ".d")
    return [
        _result(evidence, entry, comparator, labels[entry.name], metrics[entry.name], scales, found[entry.name], policy)
        for entry in entries
    ]


def _rest(evidence: Evidence, entry: Entry, labels: np.ndarray, m: Metrics, memory: dict) -> causes.Rest:
    """What is still without a cause: broken contracts, and where there is no contract at all, whatever differs."""
    unjudged = m.kept_a is None and m.kept_b is None
    still_open = labels == (causes.NUMBER[names.LOOSE.name] if unjudged else causes.OPEN)
    return causes.Rest(evidence=evidence, entry=entry, open=still_open, unjudged=unjudged, memory=memory)


def compare_all(evidences: Iterable[Evidence], *, policy: Policy = DEFAULT, threads: int = 2) -> list[LayerResult]:
    """Results of many tensors, in the order given."""
    return [result for evidence in evidences for result in compare(evidence, policy=policy, threads=threads)]


def _run(evidence: Evidence, comparator: ModuleType, parts: list[slice], threads: int) -> Iterable[Chunk]:
    """Chunks in order, so that the sums, and with them the report, do not depend on the number of threads."""
    if threads <= 1 or len(parts) == 1:
        return (_chunk(evidence, comparator, part) for part in parts)

    def quiet(part: slice) -> Chunk:
        with np.errstate(all="ignore"):  # each thread has a state of its own
            return _chunk(evidence, comparator, part)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(quiet, parts))


def _chunk(evidence: Evidence, comparator: ModuleType, part: slice) -> Chunk:
    found: Chunk = {}
    for name, elements in comparator.elements(evidence, part).items():
        figures = Metrics.of(elements)
        if name == evidence.tensor and evidence.kind != "ids":
            figures.add_oracle(elements, *(_cut(x, part) for x in _oracles(evidence)))
        labels = causes.label_chunk(elements)
        if evidence.inherited is not None:
            remains = None if evidence.remains is None else _cut(evidence.remains.get(name), part)
            causes.mark_inherited(labels, elements, evidence.inherited[part], remains)
        found[name] = (labels, figures)
    return found


def _oracles(evidence: Evidence) -> tuple[np.ndarray | None, ...]:
    """The stage oracle of each side and the own oracle of each side; own oracles that are one array differ by nothing."""
    of_a = evidence.oracle if evidence.oracle_a is None else evidence.oracle_a
    of_b = evidence.oracle if evidence.oracle_b is None else evidence.oracle_b
    return of_a, of_b, evidence.a.t, evidence.b.t


def _cut(x: np.ndarray | None, part: slice) -> np.ndarray | None:
    return None if x is None else x[part]


def _nothing(evidence: Evidence, reason: str) -> LayerResult:
    return LayerResult(
        layer=evidence.layer, tensor=evidence.tensor, n=0, equal=0, equal_pct=None, max_code_diff=None, code_diffs=None,
        scale_equal_pct=None, rel_l2=None, max_abs=None, max_ulp=None, corr=None, conforming={"a": None, "b": None},
        causes={}, status=INCONCLUSIVE, reasons=(reason,),
    )


def _triangle(m: Metrics, evidence: Evidence) -> dict[str, float | None] | None:
    of_a, of_b, t_a, t_b = _oracles(evidence)
    if of_a is None and of_b is None:
        return None
    return {
        "a_oracle": None if of_a is None else m.to_oracle_a.relative,
        "b_oracle": None if of_b is None else m.to_oracle_b.relative,
        "a_b": m.pair.relative,
        "oracles": None if t_a is None or t_b is None else m.oracles.relative,
    }


def _result(
    evidence: Evidence,
    entry: Entry,
    comparator: ModuleType,
    labels: np.ndarray,
    m: Metrics,
    scales: Metrics | None,
    found: dict[str, causes.Finding],
    policy: Policy,
) -> LayerResult:
    lone = _lone(evidence, entry)
    total = m.n + lone
    counts = causes.count(labels)
    if lone:
        cause = names.BY_DESIGN if evidence.lone.declared else names.ROUTE_FLIP
        counts[cause.name] = counts.get(cause.name, 0) + lone
    if sum(counts.values()) != total:
        raise AssertionError(f"{where(evidence)}: causes count {sum(counts.values())} of {total} elements")
    shown = worst.pick(evidence, entry, comparator, labels, policy.worst)
    facts = Facts(
        evidence=evidence, entry=entry, labels=labels, counts=counts, found=found, metrics=m, shown=shown, total=total
    )
    status, reasons = decide(facts, policy)
    codes, ids = entry.unit == "code", entry.unit == "id"
    differing = m.histogram()
    return LayerResult(
        layer=evidence.layer,
        tensor=entry.name,
        n=total,
        equal=m.same,
        equal_pct=percent(m.same, total),
        max_code_diff=max(map(int, differing), default=0) if codes else None,
        code_diffs=differing if codes else None,
        scale_equal_pct=percent(scales.same, scales.n) if scales is not None and codes else None,
        rel_l2=None if ids else m.pair.relative,
        max_abs=None if ids else m.max_abs,
        max_ulp=m.max_ulp,
        corr=None if ids else m.moments.correlation,
        conforming={"a": _kept(m.kept_a, lone), "b": _kept(m.kept_b, lone)},
        poison={"a": m.poison_a, "b": m.poison_b},
        causes=counts,
        bias=_bias(evidence, entry),
        worst=shown,
        triangle=_triangle(m, evidence) if codes or entry.unit == "row" else None,
        status=status,
        reasons=tuple(reasons),
    )


def _lone(evidence: Evidence, entry: Entry) -> int:
    """Elements of rows that one side alone has."""
    return 0 if evidence.lone is None else (len(evidence.lone.a) + len(evidence.lone.b)) * entry.columns


def _kept(kept: int | None, lone: int) -> int | None:
    """Rows on one side only break no contract that is known."""
    return None if kept is None else kept + lone


def _bias(evidence: Evidence, entry: Entry) -> dict | None:
    if entry.name != evidence.tensor or not biased.plan(evidence):
        return None
    return {"a": biased.statistics(evidence.a.bias), "b": biased.statistics(evidence.b.bias)}
