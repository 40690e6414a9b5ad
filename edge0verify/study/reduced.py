"""Two dumps that hold no whole tensors: by the hashes of tiles (level sketch) or of whole tensors (level hash).

What is equal is known; what differs cannot be judged, since neither values nor inputs are there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edge0verify.dump.reader import ArrayInfo, Dump
from edge0verify.dump.sketch import compare_sketches
from edge0verify.records.status import INCONCLUSIVE, PASS
from edge0verify.records.verdict import LayerResult, percent
from edge0verify.study.dump_tensors import nothing
from edge0verify.study.inheritance import OUTPUTS

SUFFIX = {None: "", "codes": "", "d": ".d", "s": ".s"}
KEYS = ("rows", "pairs")


def compare_reduced(a: Dump, b: Dump, stage: str | None) -> dict[str, Any]:
    """{results, unlike}: an entry per array of `stage` (None: all)."""
    keys = [path for path, info in a.arrays.items() if info.tensor in KEYS]
    other = [path for path in keys if path not in b.arrays or a.arrays[path].sha256 != b.arrays[path].sha256]
    rows = [path for path in other if path == "rows"]
    if rows:
        return {"results": [], "unlike": ["unlike runs: rows: their keys differ, and without whole tensors rows cannot be joined"]}
    wanted = None if stage is None else {*OUTPUTS[stage], "ffn-in"} if stage in ("route", "D") else set(OUTPUTS[stage])
    results = []
    for path in dict.fromkeys((*a.arrays, *b.arrays)):
        info = a.arrays.get(path) or b.arrays[path]
        if info.tensor in KEYS or (wanted is not None and info.tensor not in wanted):
            continue
        results.append(_entry(a, b, path, info))
    for layer, tensor in sorted(set(a.missing()) & set(b.missing()), key=str):
        if wanted is None or tensor in wanted:
            results.append(nothing(layer, tensor, f"layer {layer} {tensor}: missing on side a and b"))
    return {"results": results}


def _entry(a: Dump, b: Dump, path: str, info: ArrayInfo) -> LayerResult:
    name = info.tensor + SUFFIX[info.part]
    missing = [side for side, dump in (("a", a), ("b", b)) if path not in dump.arrays]
    if missing:
        return nothing(info.layer, name, f"layer {info.layer} {name}: missing on side {' and '.join(missing)}")
    x, y = a.arrays[path], b.arrays[path]
    n = int(np.prod(x.shape))
    if not n or x.shape != y.shape or x.dtype != y.dtype:
        return nothing(info.layer, name, f"layer {info.layer} {name}: unlike: a holds {x.dtype} {x.shape}, b {y.dtype} {y.shape}")
    if x.sha256 == y.sha256:
        return _result(info.layer, name, n, n, "")
    if x.stored == "sketch" and y.stored == "sketch":
        found = compare_sketches(a.sketch(x.layer, x.tensor, x.part), b.sketch(y.layer, y.tensor, y.part))
        rows = sum(last - first for first, last in found.spans())
        spans = ", ".join(f"{first}..{last - 1}" for first, last in found.spans()[:4])
        where = f"{len(found.tiles)} tiles of {found.tile_rows} rows differ (rows {spans}{', ...' if len(found.tiles) > 4 else ''})"
        differing = rows * (n // x.shape[0])
    else:
        where, differing = "the hashes differ", n
    reason = f"layer {info.layer} {name}: {where}, and a {x.stored} holds nothing to judge it by"
    return _result(info.layer, name, n, n - differing, reason)


def _result(layer: int | str, name: str, n: int, equal: int, reason: str) -> LayerResult:
    """Equal by hash is equal bit for bit; the rest is `loose`: at most those elements differ."""
    counts = {cause: count for cause, count in (("equal", equal), ("loose", n - equal)) if count}
    return LayerResult(
        layer=layer, tensor=name, n=n, equal=equal, equal_pct=percent(equal, n), max_code_diff=None, code_diffs=None,
        scale_equal_pct=None, rel_l2=None, max_abs=None, max_ulp=None, corr=None, conforming={"a": None, "b": None}, causes=counts,
        status=PASS if equal == n else INCONCLUSIVE, reasons=(reason,) if reason else (),
    )
