"""The main job: two variants of one stage, on one model and one prompt, judged layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from edge0verify.compare import DEFAULT, Policy, compare, judge
from edge0verify.engine import Engine
from edge0verify.model import Model
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Engagement, Evidence
from edge0verify.records.verdict import LayerResult, Verdict
from edge0verify.runtime.protocol import DeviceError
from edge0verify.study.capture import StageInputs, capture
from edge0verify.study.environment import environment
from edge0verify.study.evidence import Scene, evidence
from edge0verify.study.on_device import CPU, Refused, close_kernels, describe_kernels, open_kernels, settled
from edge0verify.study.replay import PARTS, StageOutput, replay
from edge0verify.study.suspect import doubts
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.registry import Variant, find

Progress = Callable[[str, int, int], None]
KernelsFor = Callable[[str, int | str], Kernels]
REFERENCE = "mmvq"
"""The variant of the reference path, whose inputs both sides are replayed on."""
MOST_DOUBTS = 6
"""Sentences about a suspect reference that are written out."""
Observe = Callable[[Evidence, list[LayerResult]], None]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to compare. `stage` is 'D', 'A' or 'U'; a and b are variant names or aliases."""

    model: Model
    prompt: str
    tokens: np.ndarray
    stage: str
    a: str
    b: str
    layers: tuple[int, ...] | None = None
    rows: slice = field(default_factory=lambda: slice(None))
    threads: int = 1
    policy: Policy = DEFAULT
    device_a: str = CPU
    device_b: str = CPU
    """Where a and b run: 'cpu', 'cuda:0', 'sim:1'; then they may be the same variant."""

    @property
    def devices(self) -> tuple[str, str]:
        return self.device_a, self.device_b


def canonical(stage: str, name: str) -> str:
    """The registry's name of a variant of every part of `stage`; InputError with the nearest name for an unknown one."""
    names = {find(part, name).name for part in PARTS[stage]}
    if len(names) != 1:
        raise InputError(f"variant {name}: expected one name for all of stage {stage}, found {', '.join(sorted(names))}")
    return names.pop()


def compare_variants(
    request: Request,
    *,
    kernels_for: KernelsFor | None = None,
    progress: Progress | None = None,
    observe: Observe | None = None,
    engine: Engine | None = None,
) -> Verdict:
    """Run the reference path once, replay `request.stage` with a and with b on its inputs, judge each layer.

    `kernels_for(side, layer)` may give other kernels for a side ('a', 'b') and layer: tests plant compiled faults with it.
    `observe(evidence, results)` sees each tensor with its entries while both are at hand (pictures).
    `engine` runs the reference pass instead of one made here (a layer split).
    Raises InputError for an unknown variant, layer or prompt.
    """
    names = (canonical(request.stage, request.a), canonical(request.stage, request.b))
    own = Kernels(threads=request.threads)
    here: dict[str, Kernels] = {CPU: own}
    try:
        for device in request.devices:                 # before the reference pass: what is absent is said at once
            if device not in here:
                here[device] = open_kernels(device, threads=request.threads)
        pick = kernels_for or (lambda side, layer: here[request.devices["ab".index(side)]])
        return _compare(request, names, own, pick, here, progress, observe, engine)
    except Refused as error:
        if kernels_for is not None:
            raise
        return refused(request, names, own, here, error)
    finally:
        for kernels in here.values():
            close_kernels(kernels)


def _compare(
    request: Request,
    names: tuple[str, str],
    own: Kernels,
    pick: KernelsFor,
    here: dict[str, Kernels],
    progress: Progress | None,
    observe: Observe | None,
    engine: Engine | None,
) -> Verdict:
    report = progress or (lambda what, done, total: None)
    inputs = capture(
        request.model,
        request.tokens,
        request.stage,
        kernels=own,
        layers=request.layers,
        rows=request.rows,
        threads=request.threads,
        progress=lambda done, total: report("reference pass", done, total),
        engine=engine,
        outputs=REFERENCE not in names,
    )
    counts: tuple[dict[str, int], dict[str, int]] = ({}, {})
    choices: list[tuple] = [(), ()]
    results: list[LayerResult] = []
    suspect: list[str] = []
    for at, layer in enumerate(inputs.layers):
        report("comparing", at, len(inputs.layers))
        outputs: list[StageOutput] = []
        for side, name in enumerate(names):
            kernels = pick("ab"[side], layer)
            try:
                before = kernels.launches()
                outputs.append(replay(request.model, request.stage, layer, name, inputs.tensors[layer], kernels))
                _add(counts[side], before, kernels.launches())
            except DeviceError as error:
                error.add_note(f"{'ab'[side]}: {labels(request, names)[side]}, layer {layer}")
                raise
            choices[side] = outputs[-1].choices
        scene = _scene(request, names, layer, inputs, outputs)
        if REFERENCE not in names:
            suspect += doubts(scene, request.stage, REFERENCE, inputs, own)
        results.extend(_judge_layer(request, scene, observe))
    report("comparing", len(inputs.layers), len(inputs.layers))
    engaged = [engagement(name, c, n) for name, c, n in zip(names, choices, counts)]
    shown = labels(request, names)
    alone = names[0] == names[1] and all(pick("a", layer) is pick("b", layer) for layer in inputs.layers)
    itself = f"a and b are one kernel, {names[0]} of {request.stage}: it was compared with nothing but itself"
    verdict = judge(
        results,
        stage=request.stage,
        a=shown[0],
        b=shown[1],
        engaged_a=engaged[0],
        engaged_b=engaged[1],
        reference=REFERENCE,
        suspect=_first(suspect),
        policy=request.policy,
        inconclusive=[itself] if alone else [],
        model=describe_model(request.model),
        prompt=describe_prompt(request.prompt, request.tokens),
        signature=signature(results, inputs),
        environment=_environment(request, own, here),
    )
    return _two_devices(request, names, verdict)


def _two_devices(request: Request, names: tuple[str, str], verdict: Verdict) -> Verdict:
    """Says of one variant on two devices whether they gave the same bits, which conforming alone does not ask for."""
    if names[0] != names[1] or request.device_a == request.device_b or not verdict.totals["n"]:
        return verdict
    n, differ = verdict.totals["n"], verdict.totals["n"] - verdict.totals["equal"]
    says = f"{differ} of {n} elements differ in their bits" if differ else f"all {n} elements are equal bit for bit"
    note = f"{names[0]} on two devices, {request.device_a} and {request.device_b}: {says}"
    return replace(verdict, totals={**verdict.totals, "notes": [note, *verdict.totals["notes"]]})


def labels(request: Request, names: tuple[str, str]) -> tuple[str, str]:
    """What a verdict calls the sides: the variants, each with its device where those differ."""
    if request.device_a == request.device_b:
        return names
    return f"{names[0]} on {request.device_a}", f"{names[1]} on {request.device_b}"


def refused(request: Request, names: tuple[str, str], own: Kernels, here: dict[str, Kernels], error: Exception) -> Verdict:
    """The verdict where a device is absent, refuses or loses a kernel: its reason, and no number that came before it."""
    status, reason = settled(error, "; ".join(getattr(error, "__notes__", [])))
    shown = labels(request, names)
    sides = [Engagement(asked=name, launches=None) for name in shown]
    return replace(
        judge([], stage=request.stage, a=shown[0], b=shown[1], engaged_a=sides[0], engaged_b=sides[1], reference=REFERENCE,
              policy=request.policy, model=describe_model(request.model), prompt=describe_prompt(request.prompt, request.tokens),
              environment=_environment(request, own, here)),
        status=status,
        reasons=(reason,),
    )


def _environment(request: Request, own: Kernels, here: dict[str, Kernels]) -> dict:
    found = environment(own, request.threads)
    if request.devices == (CPU, CPU):
        return found
    sides = {side: describe_kernels(here[name]) if name in here else {"device": name} for side, name in zip("ab", request.devices)}
    binaries = {side: here[name].binary_sha256() for side, name in zip("ab", request.devices) if name in here}
    return {**found, "device": ", ".join(dict.fromkeys(request.devices)), "devices": sides, "device_binaries": binaries}


def _scene(request: Request, names: tuple[str, str], layer: int, inputs: StageInputs, outputs: list[StageOutput]) -> Scene:
    return Scene(
        model=request.model,
        layer=layer,
        inputs=inputs.tensors[layer],
        a=outputs[0],
        b=outputs[1],
        variants=names,
        rows=inputs.rows,
        threads=request.threads,
    )


def _judge_layer(request: Request, scene: Scene, observe: Observe | None) -> Iterator[LayerResult]:
    """The entries of one layer."""
    for item in evidence(request.stage, scene):
        results = compare(item, policy=request.policy, threads=request.threads)
        if observe is not None:
            observe(item, results)
        yield from results


def _first(reasons: list[str]) -> list[str]:
    """A few of many sentences about the reference, and how many there are."""
    left = len(reasons) - MOST_DOUBTS
    return reasons if left <= 0 else [*reasons[:MOST_DOUBTS], f"and {left} more doubts about the reference"]


def engagement(asked: str, choices: tuple, launches: dict[str, int]) -> Engagement:
    """Whether the kernels of the variant that was asked for moved their own counters.

    The counter's key is built from the name that was asked for, not from the registry entry that was picked: an entry that calls
    itself w11 and launches mmvq moves mmvq's counter and stays not engaged.
    """
    wanted = tuple(f"{choice.asked.stage}/{asked}/{choice.fmt}" for choice in choices)
    return Engagement(asked=asked, wanted=wanted, launches=launches)


def _add(total: dict[str, int], before: dict[str, int], after: dict[str, int]) -> None:
    for key, n in after.items():
        moved = n - before.get(key, 0)
        if moved:
            total[key] = total.get(key, 0) + moved


def describe_model(model: Model) -> dict:
    return {
        "name": model.config.name,
        "file": model.path.name,
        "sha256": model.sha256,
        "projection": model.projection and model.projection.name,
    }


def describe_prompt(name: str, tokens: np.ndarray) -> dict:
    import hashlib

    return {
        "name": name,
        "tokens": len(tokens),
        "sha256": hashlib.sha256(np.ascontiguousarray(tokens, "<i4").tobytes()).hexdigest(),
    }


def signature(results: list[LayerResult], inputs: StageInputs) -> dict:
    return {
        "tensors": sorted({r.tensor for r in results}),
        "layers": list(inputs.layers),
        "rows": len(inputs.rows),
        "keys": ["pass", "position", "accepted"],
    }


def variants_of(stage: str) -> list[Variant]:
    """Registry entries of every part of a stage, in the registry's order."""
    from edge0verify.variants.registry import VARIANTS

    return [v for v in VARIANTS if v.stage in PARTS[stage]]
