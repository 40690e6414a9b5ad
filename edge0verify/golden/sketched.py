"""A run against a golden of which only tiles' hashes are kept: which tiles changed, what the change breaks, what merely came in.

The golden's values are gone, so the cause is read off the run that is there: where its elements break their contract, the cause of
that; where they keep it, a change within the contract's bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edge0verify.compare import judge
from edge0verify.compare.policy import base_name
from edge0verify.dump import levels
from edge0verify.dump.reader import ArrayInfo, Dump
from edge0verify.golden.tiles import Change, Heritage, changes, trace
from edge0verify.golden.whole import SUFFIX, frame, reworded
from edge0verify.records import causes as names
from edge0verify.records.causes import FAILING
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import LayerResult, Verdict, percent
from edge0verify.study.inheritance import STAGE_OF

ORDER = {spec.name: i for i, spec in enumerate((*levels.LAYER_TENSORS, *levels.HEAD_TENSORS))}


def compare_sketched(fresh: Dump, golden: Dump, alone: Mapping[tuple, LayerResult], *, exact: bool) -> Verdict:
    """The verdict. alone: entries of the fresh run judged by itself, by (layer, entry), of layers that changed."""
    changed = changes(fresh, golden)
    heritage = trace(fresh, changed)
    results = []
    for info in sorted((i for i in fresh.arrays.values() if i.tensor not in levels.KEYS), key=_place):
        change, n = changed.get(info.path), info.nbytes // info.dtype.itemsize
        if change is None:
            results.append(_entry(info, n, {names.EQUAL.name: n}, None, PASS, ()))
        else:
            results.append(_changed(change, n, alone.get((info.layer, change.entry)), heritage, exact))
    failures = list(heritage.orphans) if exact else []
    verdict = judge(results, failures=failures, **frame(fresh, golden))
    began = heritage.began
    if verdict.status != PASS and began and not verdict.reasons[0].startswith(began):
        verdict = replace(verdict, reasons=(f"changes begin in {began}", *verdict.reasons))
    return verdict


def _place(info: ArrayInfo) -> tuple:
    layer = {None: -1, "mtp": 1 << 20, "head": 1 << 21}.get(info.layer, info.layer)
    return layer, ORDER.get(info.tensor, len(ORDER)), info.part or ""


def _changed(change: Change, n: int, alone: LayerResult | None, heritage: Heritage, exact: bool) -> LayerResult:
    info, elements = change.info, change.elements
    failing = {} if alone is None else {cause: k for cause, k in alone.causes.items() if cause in FAILING}
    broken = sum(failing.values())
    came_in, followed = heritage.explained(change)
    # What breaks a contract is not excused by what came in, so it is taken first; it may also lie in tiles that did not change.
    came_in = min(came_in, max(0, elements - broken))
    followed = min(followed, max(0, elements - broken - came_in))
    own = max(0, elements - broken - came_in - followed)
    judged = alone is not None and alone.conforming["a"] is not None
    by_itself = (
        names.LOOSE.name if not judged else names.ROUNDING.name if change.entry == info.tensor and not info.part else names.TIE.name
    )
    counts = {names.EQUAL.name: n - broken - came_in - followed - own, **failing, names.CASCADE.name: came_in}
    counts |= {names.OPERANDS.name: followed, by_itself: own}
    counts = {cause: k for cause, k in counts.items() if k > 0}
    stage = STAGE_OF.get(base_name(info.tensor))
    where = f"layer {info.layer} {f'stage {stage} ' if stage else ''}{change.entry}: {change.place()}"
    if broken:
        status, said = FAIL, f"{broken} elements break the contract, {_broken(alone, failing)}"
    elif not own and not followed:
        status, said = PASS, f"cascade: came in from {heritage.began or 'before the first stage'}"
    elif not own:
        status, said = FAIL if exact else PASS, "operands: follows from what the same stage wrote before"
    elif not judged:
        status, said = FAIL if exact else INCONCLUSIVE, "nothing judges these elements"
    else:
        status, said = FAIL if exact else PASS, f"{by_itself}: every element keeps its contract"
        said += ", and this golden allows no change" if exact else ""
    return _entry(info, n, counts, alone, status, (f"{where}; {said}",))


def _broken(alone: LayerResult, failing: Mapping[str, int]) -> str:
    """The first reason of a failing cause, in the words of one run: 'structured (column 5), all 48 rows, ...'."""
    reason = next((r for r in alone.reasons if any(f" {cause}" in r for cause in failing)), "")
    text = reworded(reason.partition(": ")[2], alone=True)
    return text or ", ".join(f"{cause} {n}" for cause, n in failing.items())


def _entry(
    info: ArrayInfo, n: int, counts: dict[str, int], alone: LayerResult | None, status: str, reasons: tuple[str, ...]
) -> LayerResult:
    equal = counts.get(names.EQUAL.name, 0)
    kept = None if alone is None else alone.conforming["a"]
    unknown = dict.fromkeys(("max_code_diff", "code_diffs", "scale_equal_pct", "rel_l2", "max_abs", "max_ulp", "corr"))
    return LayerResult(
        layer=info.layer,
        tensor=info.tensor + SUFFIX[info.part],
        n=n,
        equal=equal,
        equal_pct=percent(equal, n),
        conforming={"a": kept, "b": None},
        causes=counts,
        worst=() if alone is None else alone.worst,
        status=status,
        reasons=reasons,
        **unknown,
    )
