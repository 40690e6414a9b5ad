"""How far the accepted variants of a stage differ among themselves, and each from the float oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edge0verify.model import Model
from edge0verify.records.errors import InputError
from edge0verify.study.drift_types import Drift, settle
from edge0verify.study.environment import environment
from edge0verify.study.pair import describe_model
from edge0verify.study.spread import EngineFor, Voices, accepted, density, distances, far, far_text, pair, spread
from edge0verify.variants.kernels import Kernels


def over_variants(
    model: Model,
    stage: str,
    *,
    variant: str | None = None,
    reference: str = "mmvq",
    threads: int = 1,
    engine_for: EngineFor | None = None,
    kernels: Kernels | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Drift:
    """All pairs of accepted variants of `stage` on the four prompts.

    variant: one to set beside the spread of the rest.  A reference far from the float oracle
    makes it INCONCLUSIVE, another variant that is far is a fault.
    """
    names = accepted(model, stage)
    if variant is not None and variant not in names:
        known_names = ", ".join(names)
        raise InputError(f"variant {variant} of stage {stage}: expected one with a kernel for the weights, one of {known_names}")
    kernels = kernels or Kernels(threads=threads)
    voices = Voices(model, stage, threads=threads, engine_for=engine_for, progress=progress, kernels=kernels)
    known = distances(voices, names)
    wrong = far(known)
    suspect = [f"the reference {name} is suspect: {far_text(name, known)}" for name in wrong if name == reference]
    failures = [f"{name} is far from what the model says: {far_text(name, known)}" for name in wrong if name != reference]
    unproven = [] if len(names) > 1 else ["nothing was compared: fewer than two variants run on these weights"]
    everything = spread(voices, names)
    beside: dict[str, Any] | None = None
    if variant is not None and variant != reference:
        rest = [name for name in names if name != variant]
        beside = {"variant": variant, "movement": pair(voices, reference, variant), "others": rest,
                  "spread": spread(voices, rest)["max_move"]}
    status, reasons = settle(suspect=suspect, failures=failures, unproven=unproven)
    findings = {
        "accepted": list(names),
        "spread": everything,
        "oracle": known,
        "near_ties": density(voices, reference),
        "beside": beside,
    }
    prompts = [{"name": name} for name in voices.prompts]
    return Drift(over="variants", status=status, reasons=reasons, stage=stage, variant=variant, reference=reference,
                 model=describe_model(model), prompts=prompts, findings=findings,
                 environment=environment(kernels, threads))
