"""Compare two sides of one tensor: cut it into elements, give each its cause, and report."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np

from edge0verify.compare import causes, comparators, explain, worst
from edge0verify.compare.entry import Entry, where
from edge0verify.compare.metrics import Metrics
from edge0verify.compare.policy import DEFAULT, Policy
from edge0verify.records import causes as names
from edge0verify.records.evidence import Evidence
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
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
        for name, (chunk_labels, chunk_metrics) in chunk.items():
            labels[name][part] = chunk_labels
            metrics[name].merge(chunk_metrics)
    for entry in entries:
        rest = causes.Rest(evidence=evidence, unit=entry.unit, open=labels[entry.name] == causes.OPEN)
        causes.label_rest(labels[entry.name], rest)
    scales = metrics.get(evidence.tensor + ".d")
    return [
        _result(evidence, entry, comparator, labels[entry.name], metrics[entry.name], scales, policy) for entry in entries
    ]


def compare_all(evidences: Iterable[Evidence], *, policy: Policy = DEFAULT, threads: int = 2) -> list[LayerResult]:
    """Results of many tensors, in the order given."""
    return [result for evidence in evidences for result in compare(evidence, policy=policy, threads=threads)]


def _run(evidence: Evidence, comparator: ModuleType, parts: list[slice], threads: int) -> Iterable[Chunk]:
    """Chunks in order, so that the sums, and with them the report, do not depend on the number of threads."""
    if threads <= 1 or len(parts) == 1:
        return (_chunk(evidence, comparator, part) for part in parts)
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda part: _chunk(evidence, comparator, part), parts))


def _chunk(evidence: Evidence, comparator: ModuleType, part: slice) -> Chunk:
    found: Chunk = {}
    for name, elements in comparator.elements(evidence, part).items():
        figures = Metrics.of(elements)
        if name == evidence.tensor and evidence.kind != "ids":
            figures.add_oracle(elements, *(_cut(x, part) for x in _oracles(evidence)))
        labels = causes.label_chunk(elements)
        if evidence.inherited is not None:
            causes.mark_inherited(labels, elements, evidence.inherited[part])
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
    policy: Policy,
) -> LayerResult:
    counts = causes.count(labels)
    if sum(counts.values()) != m.n:
        raise AssertionError(f"{where(evidence)}: causes count {sum(counts.values())} of {m.n} elements")
    shown = worst.pick(evidence, entry, comparator, labels, policy.worst)
    status, reasons = _status(evidence, entry, labels, counts, m, shown, policy)
    codes, ids = entry.unit == "code", entry.unit == "id"
    differing = m.histogram()
    return LayerResult(
        layer=evidence.layer,
        tensor=entry.name,
        n=m.n,
        equal=m.same,
        equal_pct=percent(m.same, m.n),
        max_code_diff=max(map(int, differing), default=0) if codes else None,
        code_diffs=differing if codes else None,
        scale_equal_pct=percent(scales.same, scales.n) if scales is not None and codes else None,
        rel_l2=None if ids else m.pair.relative,
        max_abs=None if ids else m.max_abs,
        max_ulp=m.max_ulp,
        corr=None if ids else m.moments.correlation,
        conforming={"a": m.kept_a, "b": m.kept_b},
        poison={"a": m.poison_a, "b": m.poison_b},
        causes=counts,
        worst=shown,
        triangle=_triangle(m, evidence) if codes or entry.unit == "row" else None,
        status=status,
        reasons=tuple(reasons),
    )


def _status(
    evidence: Evidence, entry: Entry, labels: np.ndarray, counts: dict[str, int], m: Metrics, shown, policy: Policy
) -> tuple[str, list[str]]:
    """The entry's status by its causes, with a sentence for each cause that is not a pass."""
    status, reasons = PASS, []
    for cause, n in counts.items():
        if cause == names.LOOSE.name:
            outcome, why = _loose(evidence, entry, n, m, policy)
        elif cause == names.NONFINITE.name and m.lone_nonfinite == 0:
            outcome, why = INCONCLUSIVE, "the same on both sides, so nothing is proven"
        else:
            outcome, why = names.CAUSES[cause].outcome, explain.which_side(m.kept_a, m.kept_b, m.n)
        if outcome == PASS:
            continue
        status = FAIL if FAIL in (status, outcome) else INCONCLUSIVE
        reasons.append(
            explain.cause_sentence(
                evidence.layer, entry, labels, cause, worst=shown, key_names=evidence.key_names, side=why
            )
        )
    return status, reasons


def _loose(evidence: Evidence, entry: Entry, n: int, m: Metrics, policy: Policy) -> tuple[str, str]:
    if m.kept_a is None or m.kept_b is None:
        return INCONCLUSIVE, "they differ and no bound says by how much they may"
    share = n / m.n
    if share > policy.loose_share:
        return INCONCLUSIVE, f"the bound cannot tell; share {share:.3g}, policy allows {policy.loose_share:g}"
    return PASS, ""
