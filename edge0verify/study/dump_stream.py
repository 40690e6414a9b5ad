"""A large tensor that no contract can judge, compared in one pass over both files and in bounded memory."""

from __future__ import annotations

from edge0verify.dump.onepass import TensorDiff, compare_datasets
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS, worst_status
from edge0verify.records.verdict import LayerResult, percent
from edge0verify.study.dump_rows import LayerJoin

LARGE = 1 << 27
"""Bytes from which a tensor is not read whole where nothing is gained by it."""
SUFFIX = {None: "", "codes": "", "d": ".d", "s": ".s"}


def is_large(join: LayerJoin, tensor: str) -> bool:
    """Whether either side's arrays of the tensor hold more than LARGE bytes."""
    return any(info.nbytes > LARGE for side in (join.a, join.b) for info in side.infos(tensor))


def streamed(join: LayerJoin, tensor: str, threads: int) -> list[LayerResult]:
    """An entry per array that both sides hold, by number of row: codes of a block tensor by code, not by value."""
    layer, results = join.a.layer, []
    parts = {info.part for info in join.a.infos(tensor)} & {info.part for info in join.b.infos(tensor)}
    for part in (None, "codes", "d", "s"):
        if part in parts:
            a, b = (side.dump.dataset(layer, tensor, part) for side in (join.a, join.b))
            if a.dtype == b.dtype:
                found = compare_datasets(a, b, name=f"layer {layer} {tensor}", threads=threads)
                results.append(_result(layer, tensor + SUFFIX[part], found))
    return results


def _result(layer: int | str, name: str, d: TensorDiff) -> LayerResult:
    """Equal bits are `equal`; what differs is `loose`, since nothing bounds it."""
    nonfinite = d.n - d.finite
    same = d.equal - (nonfinite - d.unlike)
    counts = {"nonfinite": nonfinite, "equal": same, "loose": d.finite - same}
    outcomes, reasons = [], []
    if nonfinite:
        outcomes.append(FAIL if d.unlike else INCONCLUSIVE)
        how = f"{d.unlike} of them on one side only" if d.unlike else "the same on both sides, so nothing is proven"
        reasons.append(f"layer {layer} {name}: {nonfinite} of {d.n} values nonfinite ({how})")
    if counts["loose"]:
        outcomes.append(INCONCLUSIVE)
        how = "they differ and no bound says by how much they may"
        reasons.append(f"layer {layer} {name}: {counts['loose']} of {d.n} values loose ({how})")
    gaps = None
    if d.code_histogram is not None:
        both = {gap: int(d.code_histogram[255 + gap] + d.code_histogram[255 - gap]) for gap in range(1, 256)}
        gaps = {str(gap): n for gap, n in both.items() if n}
    return LayerResult(
        layer=layer,
        tensor=name,
        n=d.n,
        equal=d.equal,
        equal_pct=percent(d.equal, d.n),
        max_code_diff=d.max_code_diff,
        code_diffs=gaps,
        scale_equal_pct=None,
        rel_l2=d.rel_l2,
        max_abs=float(d.max_abs.value),
        max_ulp=None if gaps is not None else int(d.max_ulp.value),
        corr=d.corr,
        conforming={"a": None, "b": None},
        causes={cause: n for cause, n in counts.items() if n},
        status=worst_status(outcomes) if outcomes else PASS,
        reasons=tuple(reasons),
    )
