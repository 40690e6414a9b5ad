"""One stage run twice and judged, as the comparison of variants does it; the runs that stay the same are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from edge0verify.compare import compare, judge
from edge0verify.numerics.blocks import Blocks, same_floats
from edge0verify.records.evidence import Engagement, Evidence
from edge0verify.records.verdict import LayerResult, Verdict
from edge0verify.study import pair
from edge0verify.study.evidence import Scene, evidence
from edge0verify.study.replay import StageOutput, replay
from edge0verify.study.selftest.scenes import THREADS, Stage
from edge0verify.study.selftest.types import Tensor, Tensors
from edge0verify.variants.kernels import Kernels

_KEPT: dict[tuple, tuple[Stage, Run]] = {}


@dataclass(frozen=True)
class Run:
    """What one variant wrote, and whether its kernels ran."""

    variant: str
    output: StageOutput
    engaged: Engagement

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        return self.output.tensors

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Run:
        return replace(self, output=replace(self.output, tensors=tensors))


@cache
def product(threads: int = THREADS, isa: str | None = None) -> Kernels:
    """The kernels that the package ships."""
    return Kernels(threads=threads, isa=isa)


@cache
def mutants() -> Kernels:
    """The kernels with planted faults; `_mutants.set_fault` chooses one."""
    from edge0verify.variants import _mutants

    return Kernels(native=_mutants, threads=THREADS)


def run(stage: Stage, variant: str, kernels: Kernels | None = None) -> Run:
    """Run a stage with a variant and count its launches."""
    kernels = kernels or product()
    before = kernels.launches()
    output = replay(stage.model, stage.stage, stage.layer, variant, stage.inputs, kernels)
    moved = {key: n - before.get(key, 0) for key, n in kernels.launches().items() if n > before.get(key, 0)}
    return Run(variant, output, pair.engagement(variant, output.choices, moved))


def kept(stage: Stage, variant: str) -> Run:
    """The product's run, made once per stage and variant."""
    key = (id(stage), variant)
    if key not in _KEPT:
        _KEPT[key] = (stage, run(stage, variant))  # holds the stage, so that its id is not given away again
    return _KEPT[key][1]


def planted(stage: Stage, variant: str, fault: str | None) -> Run:
    """A run of the mutant module with that fault."""
    from edge0verify.variants import _mutants

    _mutants.set_fault(fault)
    try:
        return run(stage, variant, mutants())
    finally:
        _mutants.set_fault(None)


def evidence_of(stage: Stage, a: Run, b: Run, *, keyed: bool = True) -> list[Evidence]:
    """Evidence of every tensor; without keys as from raw imports."""
    scene = Scene(
        model=stage.model,
        layer=stage.layer,
        inputs=stage.inputs,
        a=a.output,
        b=b.output,
        variants=(a.variant, b.variant),
        rows=stage.rows,
        threads=THREADS,
    )
    found = list(evidence(stage.stage, scene))
    return found if keyed else [replace(e, keys=None, key_names=()) for e in found]


def verdict_of(items: Iterable[Evidence], a: Run, b: Run) -> Verdict:
    """The verdict as `compare` gives it."""
    results: list[LayerResult] = [result for item in items for result in compare(item, threads=1)]
    return judge(results, a=a.variant, b=b.variant, engaged_a=a.engaged, engaged_b=b.engaged)


def copied(tensors: Mapping[str, Tensor]) -> Tensors:
    """A copy that may be changed in place."""
    return {name: _copy(value) for name, value in tensors.items()}


def _copy(value: Tensor) -> Tensor:
    if isinstance(value, Blocks):
        return Blocks(value.codes.copy(), value.d.copy(), None if value.s is None else value.s.copy(), value.quantiser)
    return value.copy()


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors in which a bit changed, a NaN being a NaN whatever its payload."""
    return [name for name in before if not _same(before[name], after[name])]


def _same(a: Tensor, b: Tensor) -> bool:
    if isinstance(a, Blocks) or isinstance(b, Blocks):
        return isinstance(a, Blocks) and isinstance(b, Blocks) and a.same_bits(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(same_floats(a, b).all()) if a.dtype.kind == "f" else bool(np.array_equal(a, b))
