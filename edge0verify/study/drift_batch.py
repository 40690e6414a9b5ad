"""The same tokens read one at a time and in batches of up to eight: do the numbers depend on the width?

A width that changes bits and conforms is drift, not a fault: how often it changes a reply is decided by the near ties, so their
density stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edge0verify.engine import Engine
from edge0verify.model import Model
from edge0verify.numerics.blocks import Blocks
from edge0verify.study.bisect_judge import judge_route, judge_stages
from edge0verify.study.capture import join
from edge0verify.study.drift_logits import apart, near_ties, wrong_logprobs
from edge0verify.study.drift_runs import unstable_text
from edge0verify.study.drift_stability import MemoryTrace, stability
from edge0verify.study.drift_types import Drift, settle
from edge0verify.study.environment import environment
from edge0verify.study.pair import describe_model, describe_prompt
from edge0verify.study.spread import idle, plan_for, top8_of
from edge0verify.variants.kernels import Kernels

WIDTHS = tuple(range(1, 9))
EngineAt = Callable[[int], Engine]


@dataclass(frozen=True)
class Pass:
    """All tokens of a prompt read at one width: every tensor by layer, rows joined, and the logits of every position."""

    trace: MemoryTrace
    logits: np.ndarray
    forwards: int


def read_at(engine: Engine, tokens: np.ndarray, width: int) -> Pass:
    """Read `tokens` int32 [n] in batches of `width` on top of each other."""
    pieces: dict[int | str, dict[str, list]] = {}

    def tap(layer, name, first, value):
        pieces.setdefault(layer, {}).setdefault(name, []).append(value)

    engine.reset()
    steps = [engine.forward(tokens[at : at + width], tap=tap) for at in range(0, len(tokens), width)]
    seen: dict[int | str, dict[str, np.ndarray | Blocks]] = {
        layer: {name: join(parts) for name, parts in named.items()} for layer, named in pieces.items()
    }
    logits = np.concatenate([s.logits for s in steps])
    ids, logprobs = top8_of(logits)
    last = steps[-1]
    ids[-1], logprobs[-1] = last.top8_ids, last.top8_logprobs      # the engine's own list where it made one
    seen["head"] = {"top8-ids": ids, "top8-logprobs": logprobs, "logits": logits}
    variants = {stage: choice.runs.name for stage, choice in engine.ops.choices.items()}
    return Pass(MemoryTrace(seen, variants), logits, len(steps))


def faults(model: Model, run: Pass, *, threads: int = 1) -> list[str]:
    """Every entry of a pass that does not conform on its own inputs, lowest first, and a top 8 that its logits do not give."""
    found = []
    for layer, seen in run.trace.seen.items():
        if layer == "head":
            continue
        keys = np.zeros((len(seen["ffn-in"]), 3), np.int32)
        keys[:, 1] = np.arange(len(keys))
        stages = judge_stages(model, layer, run.trace.variants, seen, keys, threads=threads)
        for entry in (*judge_route(model, layer, seen, keys), *stages):
            n = int(entry.broken.sum())
            if n:
                row, column = map(int, np.argwhere(entry.broken)[0])
                found.append(f"layer {layer} stage {entry.stage} {entry.tensor}: {n} of {entry.broken.size} elements do not "
                             f"conform, first at row {row} column {column}; {entry.excuse}")
    head = run.trace.seen.get("head", {})
    wrong = wrong_logprobs(head["top8-ids"], head["top8-logprobs"], head["logits"]) if head else None
    return [*found, *([f"head: wrong log-probs: {wrong}"] if wrong else [])]


def over_batch(
    model: Model,
    prompt: str,
    tokens: np.ndarray,
    stage: str,
    variant: str,
    *,
    wide: str | None = None,
    widths: tuple[int, ...] = WIDTHS,
    threads: int = 1,
    engine_at: EngineAt | None = None,
    kernels: Kernels | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Drift:
    """Each width against width 1.  wide: the variant that widths above 1 use, as engines do that choose kernels by width.

    engine_at(width) may build the engine.  A fault is what does not conform at some width; bits that differ are drift.
    """
    kernels = kernels or Kernels(threads=threads)

    def build(width: int) -> Engine:
        name = wide if wide and width > 1 else variant
        return Engine(model, kernels=kernels, variants=plan_for(stage, name), threads=threads)

    make = engine_at or build
    before_all = kernels.launches()
    tell = progress or (lambda what, done, total: None)
    first, before = None, None
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    for i, width in enumerate(widths):
        tell("batch widths", i, len(widths))
        run = read_at(make(width), tokens, width)
        first = first or run
        if before is not None and stability(before[0].trace, run.trace, None).first is None:
            _, beside, wrong = before                  # bits that were judged once need no second judgement
            if beside is None:
                beside = stability(first.trace, run.trace, None)
        else:
            beside = stability(first.trace, run.trace, model, threads=threads) if run is not first else None
            wrong = faults(model, run, threads=threads)
            before = (run, beside, wrong)
        failures += [f"width {width}: {text}" for text in wrong[:3]]
        figures = apart(first.logits, run.logits)
        rows.append({"width": width, "forwards": run.forwards, "kind": beside.kind if beside else None,
                     "first": asdict(beside.first) if beside and beside.first else None,
                     "text": unstable_text(beside.first) if beside and beside.first else None, "faults": len(wrong), **figures})
    tell("batch widths", len(widths), len(widths))
    ties = near_ties(first.logits)
    asked = (variant, *([wide] if wide else [])) if engine_at is None else ()
    status, reasons = settle(suspect=[], failures=failures, unproven=idle(kernels, before_all, model, stage, asked))
    drifting = [r for r in rows if r["kind"] not in (None, "bitwise")]
    if drifting and not failures:
        changed = sum(r["argmax_changes"] for r in drifting)
        worst = max(drifting, key=lambda r: r["max_move"])
        reasons = (*reasons, f"drift, no fault: widths {', '.join(str(r['width']) for r in drifting)} change bits and conform; "
                   f"log-probs move by up to {worst['max_move']:.3g}, {changed} of {len(drifting) * len(tokens)} choices change, "
                   f"{100 * (ties['below']['0.1'] or 0):.3g} % of positions lead by less than 0.1")
    return Drift(over="batch", status=status, reasons=reasons, stage=stage, variant=variant, reference=f"width {widths[0]}",
                 model=describe_model(model), prompts=[describe_prompt(prompt, tokens)],
                 findings={"wide": wide, "widths": rows, "near_ties": ties}, environment=environment(kernels, threads))
