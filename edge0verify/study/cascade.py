"""Run the whole model with a and with b and see how far what it says next moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edge0verify import model as models
from edge0verify.compare import movement
from edge0verify.engine import Engine
from edge0verify.records.evidence import Tokens
from edge0verify.records.verdict import Verdict
from edge0verify.study.capture import REFERENCE
from edge0verify.study.replay import PARTS
from edge0verify.variants.kernels import Kernels

FOUR = ("prose", "questions", "code", "list")


def end_to_end(
    model: models.Model, plan: dict[str, str], prompts=FOUR, *, threads: int = 1, kernels: Kernels | None = None
) -> Tokens:
    """First generated token of each prompt: top-8 ids and log-probs, and the logits, with the variants of `plan` per stage part."""
    engine = Engine(model, kernels=kernels, variants=plan, threads=threads)
    steps = [engine.prefill(models.encode(models.prompt(name))) for name in prompts]
    return Tokens(
        ids=np.stack([s.top8_ids for s in steps]),
        logprobs=np.stack([s.top8_logprobs for s in steps]),
        logits=np.stack([s.logits_last for s in steps]),
        names=tuple(prompts),
    )


def plan_for(stage: str, variant: str) -> dict[str, str]:
    """The reference path with every part of `stage` on `variant`."""
    return {**REFERENCE, **dict.fromkeys(PARTS[stage], variant)}


def top8_movement(
    model: models.Model, stage: str, a: str, b: str, *, threads: int = 1, progress: Callable[[str, int, int], None] | None = None
) -> dict:
    """The verdict's `top8` field: the four prompts through the whole model, stage on a against stage on b."""
    sides = []
    for at, variant in enumerate((a, b)):
        if progress:
            progress("whole model", at, 2)
        sides.append(end_to_end(model, plan_for(stage, variant), threads=threads))
    if progress:
        progress("whole model", 2, 2)
    return movement(*sides)


def with_top8(verdict: Verdict, top8: dict) -> Verdict:
    """The verdict with its top-8 movement; movement is shown and decides nothing here."""
    return replace(verdict, top8=top8)
