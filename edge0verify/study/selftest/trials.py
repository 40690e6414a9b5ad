"""All trials: each fault and each legitimate change as something that can be made and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from zlib import crc32

import numpy as np

from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Engagement, Evidence
from edge0verify.study.selftest import routes, scenes, trial
from edge0verify.study.selftest.blind import BLIND_FAULTS
from edge0verify.study.selftest.changes import CHANGES, Change
from edge0verify.study.selftest.doctored import DOCTORED
from edge0verify.study.selftest.planted import PLANTED, Planted
from edge0verify.study.selftest.trial import Run
from edge0verify.study.selftest.types import Doctored, Trial, Tried
from edge0verify.study.selftest.unproven import UNPROVEN, Unproven

QUICK_FAULTS = frozenset(
    {
        "next-block-scale D w11", "next-block-scale D w11 both sides", "skip-last-partial-tile D w11", "weight-row-shifted D w11",
        "stale-token D w11", "activation-scale-ulp D w11", "round-toward-zero D w11", "last-row-nan D w11", "store-truncates D w11",
        "store-next-scale D w11", "sum-of-codes D w11", "lanes-once D mmvq", "flip-hmask-bit A w11", "weight-scale-21 U mmq",
        "nan-value", "sum-overflow", "scales-unwritten", "half-tile-unwritten", "stale-row", "stale-every-16th", "rows-shuffled",
        "rows-rotated", "two-rows-swapped", "column-block-zero", "last-bit-cleared", "exponent-bits", "codes-off-by-one",
        "one-code",
    }
)  # fmt: skip
"""Faults of the reduced form: each cause, and each thing that a comparator may overlook."""


def need_mutants() -> None:
    """InputError where the mutant module was not built."""
    try:
        from edge0verify.variants import _mutants  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"selftest: expected edge0verify.variants._mutants, the kernels with planted faults, found: {error}"
        ) from None


def trials() -> Iterator[Trial]:
    """Every trial, legitimate changes first."""
    yield from map(_legitimate, CHANGES)
    yield from map(_compiled, PLANTED)
    yield from (_doctored(d, "doctored") for d in DOCTORED)
    yield from (_doctored(d, "blind") for d in BLIND_FAULTS)
    yield from map(_route, routes.ROUTES)
    yield from map(_unproven, UNPROVEN)


def _tried(items: list[Evidence], a: Run, b: Run, changed: bool, broken: str = "") -> Tried:
    return Tried(items=items, names=(a.variant, b.variant), engaged=(a.engaged, b.engaged), changed=changed, broken=broken)


def _legitimate(change: Change) -> Trial:
    def make() -> Tried:
        items, a, b = change.make(change.where())
        names = [n for n in a.tensors if n in b.tensors]
        differ = trial.changed({n: a.tensors[n] for n in names}, b.tensors)
        if change.bits:
            return _tried(items, a, b, True, f"bits changed in {', '.join(differ)}" if differ else "")
        return _tried(items, a, b, bool(differ))

    where = _where(change.where)
    return Trial(
        name=change.name, source="legitimate", stage=change.stage, where=where, tensor="", expect=(), make=make, quick=change.quick,
        status="PASS", shows=change.shows, changes_bits=not change.bits,
    )  # fmt: skip


def _where(source: Callable[[], scenes.Stage]) -> str:
    """Name of the inputs, without making them."""
    assert isinstance(source, partial)
    if source.func is scenes.text:
        return "text"
    return "long rows" + "".join(f", {kind}" for kind in source.args[1:])


def _compiled(planted: Planted) -> Trial:
    def make() -> Tried:
        stage = scenes.long_rows(planted.stage) if planted.long_rows else scenes.text(planted.stage)
        honest, faulty = trial.kept(stage, planted.variant), trial.planted(stage, planted.variant, planted.fault)
        other = faulty if planted.both else trial.kept(stage, "w11" if planted.variant == "mmvq" else "mmvq")
        return _tried(
            trial.evidence_of(stage, other, faulty), other, faulty, bool(trial.changed(honest.tensors, faulty.tensors))
        )  # fmt: skip

    return Trial(
        name=planted.name, source="compiled", stage=planted.stage, where="long rows" if planted.long_rows else "text",
        tensor=planted.tensor, expect=planted.expect, make=make, quick=planted.name in QUICK_FAULTS,
    )  # fmt: skip


def _doctored(fault: Doctored, source: str) -> Trial:
    def make() -> Tried:
        stage = scenes.text(fault.stage)
        honest, other = trial.kept(stage, fault.variant), trial.kept(stage, "mmvq" if fault.variant != "mmvq" else "w11")
        rng = np.random.default_rng(crc32(fault.name.encode()))
        faulty = honest.with_tensors(fault.apply(trial.copied(honest.tensors), rng, stage.inputs))
        items = trial.evidence_of(stage, other, faulty, keyed=fault.keyed)
        return _tried(items, other, faulty, bool(trial.changed(honest.tensors, faulty.tensors)))

    return Trial(
        name=fault.name, source=source, stage=fault.stage, where="text", tensor=fault.tensor, expect=fault.expect, make=make,
        quick=fault.name in QUICK_FAULTS,
    )  # fmt: skip


def _route(case: routes.RouteCase) -> Trial:
    def make() -> Tried:
        item = routes.evidence(case)
        ran = Engagement(asked="router", wanted=("route",), launches={"route": 1})
        return Tried(items=[item], names=("router", "router"), engaged=(ran, ran), changed=bool((item.a.ids != item.b.ids).any()))

    return Trial(
        name=case.name, source="route" if case.expect else "legitimate", stage="route", where="text",
        tensor="route-ids" if case.expect else "", expect=case.expect, make=make, quick=case.quick,
        status="FAIL" if case.expect else "PASS", shows="" if case.expect else "route-flip",
    )  # fmt: skip


def _unproven(case: Unproven) -> Trial:
    return Trial(
        name=case.name, source="unproven", stage=case.stage, where="text", tensor="", expect=(),
        make=lambda: _tried(*case.make(), changed=True), quick=case.quick, status=case.status, says=case.says,
    )  # fmt: skip
