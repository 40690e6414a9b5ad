"""Runs that prove nothing: idle kernels, nothing compared, faults that both sides share as inputs.  None of them may pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from edge0verify.numerics.blocks import POISON_F32_BITS
from edge0verify.records.evidence import Engagement, Evidence
from edge0verify.study.selftest import scenes, trial
from edge0verify.study.selftest.trial import Run


@dataclass(frozen=True, kw_only=True)
class Unproven:
    """A run of stage D, U or A that must not pass."""

    name: str
    stage: str
    status: str
    """The right status."""
    says: str
    """What one of the reasons must say."""
    make: Callable[[], tuple[list[Evidence], Run, Run]]
    quick: bool = False


def _judged(a: Run, b: Run, stage: scenes.Stage):
    return trial.evidence_of(stage, a, b), a, b


def _never_launched():
    """Asked for w11, and mmvq's kernel ran: every bit is equal."""
    stage = scenes.text("D")
    a = trial.kept(stage, "mmvq")
    b = replace(a, engaged=Engagement(asked="w11", wanted=("D/w11/Q8_0",), launches=a.engaged.launches))
    return _judged(a, b, stage)


def _fell_back():
    stage = scenes.text("U", "prose", "q4_0")
    return _judged(trial.kept(stage, "mmvq"), trial.kept(stage, "w11"), stage)


def _wrote_nothing():
    """Launched, and the output is what it was preset to."""
    stage = scenes.text("U")
    a, b = trial.kept(stage, "mmvq"), trial.kept(stage, "w11")
    tensors = trial.copied(b.tensors)
    tensors["u"].view(np.uint32)[...] = POISON_F32_BITS
    return _judged(a, b.with_tensors(tensors), stage)


def _launches_unknown():
    stage = scenes.text("U")
    a, b = trial.kept(stage, "mmvq"), trial.kept(stage, "w11")
    return _judged(a, replace(b, engaged=replace(b.engaged, launches=None)), stage)


def _nothing_left():
    stage = scenes.text("D")
    a, b = trial.kept(stage, "mmvq"), trial.kept(stage, "w11")
    return [], a, b


def _one_tensor_missing():
    stage = scenes.text("D")
    a, b = trial.kept(stage, "mmvq"), trial.kept(stage, "w11")
    items = [replace(e, b=replace(e.b, rows=None)) if e.tensor == "d-xl" else e for e in trial.evidence_of(stage, a, b)]
    return items, a, b


def _nan_on_both():
    """A NaN in the same place on both sides may be the input's."""
    stage = scenes.text("U")
    sides = []
    for variant in ("mmvq", "w11"):
        tensors = trial.copied(trial.kept(stage, variant).tensors)
        tensors["u"][7, 9] = np.nan
        sides.append(trial.kept(stage, variant).with_tensors(tensors))
    return _judged(*sides, stage)


def _without_bounds():
    """Rows that differ, and no oracle says by how much they may."""
    stage = scenes.text("U")
    a, b = trial.kept(stage, "mmvq"), trial.kept(stage, "w11")
    items = [e for e in trial.evidence_of(stage, a, b) if e.tensor == "u"]
    bare = [replace(e, **{name: replace(getattr(e, name), t=None, bound=None, bias=None) for name in "ab"}) for e in items]
    return bare, a, b


UNPROVEN: tuple[Unproven, ...] = (
    Unproven(name="kernel never launched", stage="D", status="INCONCLUSIVE", says="not engaged", make=_never_launched, quick=True),
    Unproven(name="Q4_0 weights, another variant ran", stage="U", status="INCONCLUSIVE", says="mmvq ran", make=_fell_back),
    Unproven(name="kernel wrote nothing", stage="U", status="FAIL", says="unwritten", make=_wrote_nothing, quick=True),
    Unproven(name="launches not known", stage="U", status="INCONCLUSIVE", says="not known", make=_launches_unknown),
    Unproven(name="nothing compared", stage="D", status="INCONCLUSIVE", says="nothing was", make=_nothing_left, quick=True),
    Unproven(name="tensor missing", stage="D", status="INCONCLUSIVE", says="missing on", make=_one_tensor_missing, quick=True),
    Unproven(name="NaN in the same place on both sides", stage="U", status="INCONCLUSIVE", says="both sides", make=_nan_on_both),
    Unproven(name="no bounds", stage="U", status="INCONCLUSIVE", says="no bound", make=_without_bounds),
)
