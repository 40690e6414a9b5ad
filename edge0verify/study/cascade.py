"""Run the whole model with a and with b and see how far what it says next moves, beside how far accepted variants move it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from edge0verify.compare import movement
from edge0verify.model import Model
from edge0verify.records.status import INCONCLUSIVE
from edge0verify.records.verdict import Verdict
from edge0verify.study.on_device import CPU, close_kernels, open_kernels
from edge0verify.study.spread import FOUR, EngineFor, Voices, plan_for, yardstick

__all__ = ["FOUR", "plan_for", "top8_movement", "with_top8"]


def top8_movement(
    model: Model,
    stage: str,
    a: str,
    b: str,
    *,
    threads: int = 1,
    engine_for: EngineFor | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    device: str = CPU,
) -> dict:
    """The verdict's `top8` field: the four prompts through the whole model, stage on a against stage on b.

    Its `spread` says how far the accepted variants, a and b left out unless they are the reference, differ among themselves.
    """
    kernels = open_kernels(device, threads=threads)
    voices = Voices(model, stage, threads=threads, engine_for=engine_for, progress=progress, kernels=kernels)
    try:
        return _moved(voices, a, b)
    finally:
        close_kernels(kernels)


def _moved(voices: Voices, a: str, b: str) -> dict:
    return {**movement(voices[a].last, voices[b].last), "spread": yardstick(voices, a, b)}


def with_top8(verdict: Verdict, top8: dict) -> Verdict:
    """The verdict with its top-8 movement.  Movement decides nothing here, but a reference far from the oracle does: no variant is
    blamed by it."""
    suspect = (top8.get("spread") or {}).get("suspect")
    if not suspect:
        return replace(verdict, top8=top8)
    return replace(verdict, top8=top8, status=INCONCLUSIVE, reasons=(suspect, *verdict.reasons))
