"""Arrays as goldens: what a test computes, kept as a dump of a made-up layer, and compared element by element."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from edge0verify.compare import Policy, judge
from edge0verify.dump.reader import Dump
from edge0verify.dump.store import STORED
from edge0verify.dump.writer import DumpWriter
from edge0verify.golden.whole import frame
from edge0verify.numerics.rounding import ulp_distance
from edge0verify.records import causes as names
from edge0verify.records.errors import InputError
from edge0verify.records.manifest import DeviceInfo, EngineInfo, Manifest, PromptInfo, Signature
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import LayerResult, Verdict, Worst, percent

ENGINE = "arrays"
"""Engine name of such a dump: no kernel was asked for, so none need be shown to have run."""
LONE = "value"
"""Name of an array that was given alone."""


def write_arrays(value: np.ndarray | Mapping[str, np.ndarray], out: Path) -> None:
    """Put arrays into a dump. InputError for a dtype that a dump cannot hold, or nothing at all."""
    named = {LONE: value} if isinstance(value, np.ndarray) else dict(value)
    manifest = Manifest(
        engine=EngineInfo(name=ENGINE),
        device=DeviceInfo(name=ENGINE),
        prompt=PromptInfo(),
        signature=Signature(tensors=(), layers=(), rows=0),
        level="full",
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
        launches=None,
    )
    if not named:
        raise InputError("expected at least one array, found none")
    with DumpWriter(out, manifest=manifest) as writer:
        for name, array in named.items():
            array = np.atleast_1d(np.asarray(array))
            if array.dtype.name not in STORED:
                raise InputError(f"array {name}: expected {', '.join(STORED)}, found {array.dtype}")
            writer.write(0, name, array)


def is_arrays(dump: Dump) -> bool:
    return dump.manifest.engine.name == ENGINE


def compare_arrays(fresh: Dump, golden: Dump, *, exact: bool, policy: Policy) -> Verdict:
    """The verdict on arrays of the same names and shapes. exact: no bit may change (any NaN is like any other); else a rule's
    `matched` says which share must be equal."""
    results = [_compare(fresh, golden, info.tensor, exact, policy) for info in golden.arrays.values()]
    return judge(results, policy=Policy(allow_foreign=True), **{**frame(fresh, golden), "a": "now", "b": "golden"})


def _compare(fresh: Dump, golden: Dump, tensor: str, exact: bool, policy: Policy) -> LayerResult:
    x, y = fresh.read(0, tensor), golden.read(0, tensor)
    floats = x.dtype.kind == "f"
    nan = np.isnan(x) & np.isnan(y) if floats else np.zeros(x.shape, bool)
    same = (x.view(f"u{x.dtype.itemsize}") == y.view(f"u{y.dtype.itemsize}")) | nan
    lost = ~same & (~np.isfinite(x) | ~np.isfinite(y)) if floats else np.zeros(x.shape, bool)
    n, equal, nonfinite = x.size, int(same.sum()), int(lost.sum())
    counts = {names.EQUAL.name: equal, names.NONFINITE.name: nonfinite, names.UNEXPLAINED.name: n - equal - nonfinite}
    both = ~lost & ~nan & (np.isfinite(x) if floats else True)
    a, b = x[both].astype(np.float64), y[both].astype(np.float64)
    size = float(np.sqrt(np.square(b).sum()))
    status, why = _status(tensor, n, equal, nonfinite, exact, policy)
    at = np.argwhere(~same)[: policy.worst]
    worst = tuple(
        Worst(
            index=tuple(int(i) for i in place),
            key=None,
            a=_number(x[tuple(place)]),
            b=_number(y[tuple(place)]),
            bound=None,
            cause=names.NONFINITE.name if lost[tuple(place)] else names.UNEXPLAINED.name,
        )
        for place in at
    )
    reasons = ()
    if status != PASS:
        shown = f"; first at {list(worst[0].index)}: now {worst[0].a!r}, golden {worst[0].b!r}" if worst else ""
        reasons = (
            f"{tensor}: {n - equal} of {n} elements changed, largest difference {np.abs(a - b).max(initial=0.0):.3g}{shown}{why}",
        )
    return LayerResult(
        layer=0,
        tensor=tensor,
        n=n,
        equal=equal,
        equal_pct=percent(equal, n),
        max_code_diff=None,
        code_diffs=None,
        scale_equal_pct=None,
        rel_l2=float(np.sqrt(np.square(a - b).sum())) / size if size else None,
        max_abs=float(np.abs(a - b).max(initial=0.0)),
        max_ulp=int(ulp_distance(x[both], y[both]).max(initial=0)) if x.dtype.name in ("float16", "float32") else None,
        corr=None,
        conforming={"a": None, "b": None},
        causes={cause: count for cause, count in counts.items() if count},
        worst=worst,
        status=status,
        reasons=reasons,
    )


def _status(tensor: str, n: int, equal: int, nonfinite: int, exact: bool, policy: Policy) -> tuple[str, str]:
    if equal == n:
        return PASS, ""
    limits = policy.limits("", tensor, 0)
    if exact:
        return FAIL, "; this golden allows no change"
    if nonfinite:
        return FAIL, f"; {nonfinite} are no number on one side"
    if limits is None or limits.matched is None:
        return INCONCLUSIVE, "; no rule with `matched` says how many may"
    if equal / n >= limits.matched:
        return PASS, ""
    return FAIL, f"; {equal / n:.6g} match, policy asks for {limits.matched:g}"


def _number(value: Any) -> float | int:
    return value.item()
