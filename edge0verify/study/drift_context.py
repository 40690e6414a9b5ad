"""Growing contexts: where does a variant first choose another token than the reference, and by what margin?

Both continue each context, the variant on the reference's tokens, so that every step has the same text before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edge0verify.engine import Engine
from edge0verify.model import Model
from edge0verify.records.errors import InputError
from edge0verify.study.capture import join
from edge0verify.study.drift_batch import Pass, faults
from edge0verify.study.drift_logits import apart, near_ties
from edge0verify.study.drift_stability import MemoryTrace
from edge0verify.study.drift_types import Drift, settle
from edge0verify.study.environment import environment
from edge0verify.study.pair import describe_model, describe_prompt
from edge0verify.study.spread import ORACLE, idle, plan_for, top8_of
from edge0verify.variants.kernels import Kernels

STEPS = 16
SMALLEST = 32


def lengths(n: int, smallest: int = SMALLEST) -> tuple[int, ...]:
    """Powers of two from `smallest` below n, then n itself."""
    found = []
    size = smallest
    while size < n:
        found.append(size)
        size *= 2
    return (*found, n)


class _Voice:
    """One engine that reads on and on, and goes back after each continuation."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.engine.reset()

    def read_to(self, tokens: np.ndarray, length: int) -> np.ndarray:
        """Logits f32 [vocabulary] after the first `length` tokens; reads in chunks what is new."""
        step = None
        while self.engine.length < length:
            at = self.engine.length
            step = self.engine.forward(tokens[at : min(length, at + self.engine.chunk)], all_logits=False)
        if step is None:
            raise InputError(f"contexts: expected growing lengths, found {length} after {self.engine.length}")
        return step.logits_last

    def continue_with(self, first: np.ndarray, given: Sequence[int] | None, steps: int) -> tuple[list[int], Pass]:
        """`steps` tokens from the logits `first` on: its own choices, or `given`; then back to the context.

        Returns the tokens and everything the engine showed on the way; its logits are those that each token was chosen from.
        """
        seen: dict[Any, dict[str, list]] = {}

        def tap(layer, name, position, value):
            seen.setdefault(layer, {}).setdefault(name, []).append(value)

        length, logits, tokens, lists = self.engine.length, [first], [], [top8_of(first[None])]
        for i in range(steps):
            tokens.append(int(np.argmax(logits[-1])) if given is None else int(given[i]))
            step = self.engine.forward([tokens[-1]], tap=tap)
            logits.append(step.logits_last)
            lists.append((step.top8_ids[None], step.top8_logprobs[None]))
        self.engine.truncate(length)
        made = np.stack(logits[:-1])
        trace: dict[Any, dict[str, Any]] = {layer: {n: join(p) for n, p in named.items()} for layer, named in seen.items()}
        trace["head"] = {"top8-ids": np.concatenate([ids for ids, _ in lists[:-1]]),
                         "top8-logprobs": np.concatenate([lp for _, lp in lists[:-1]]), "logits": made}
        ops = self.engine.ops
        variants = {} if self.engine.float_mode else {stage: choice.runs.name for stage, choice in ops.choices.items()}
        return tokens, Pass(MemoryTrace(trace, variants), made, steps)


def over_context(
    model: Model,
    prompt: str,
    tokens: np.ndarray,
    stage: str,
    variant: str,
    *,
    reference: str = "mmvq",
    contexts: Sequence[int] | None = None,
    steps: int = STEPS,
    threads: int = 1,
    engine_for: Callable[[str], Engine] | None = None,
    kernels: Kernels | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Drift:
    """The first `contexts` tokens of a prompt, each continued by `steps` tokens by reference and variant.

    engine_for(name) may build the engines of `reference`, `variant` and the float oracle.  Tokens that differ are drift where both
    runs conform; what does not conform is a fault, also where every token is equal; a reference at fault makes it INCONCLUSIVE.
    """
    kernels = kernels or Kernels(threads=threads)

    def build(name: str) -> Engine:
        if name == ORACLE:
            return Engine(model, float_mode=True, threads=threads)
        return Engine(model, kernels=kernels, variants=plan_for(stage, name), threads=threads)

    make = engine_for or build
    before = kernels.launches()
    sizes = tuple(contexts) if contexts is not None else lengths(len(tokens))
    if not sizes or any(not 1 <= n <= len(tokens) for n in sizes) or list(sizes) != sorted(set(sizes)):
        raise InputError(f"contexts: expected growing lengths of at most {len(tokens)} tokens, found {list(sizes)}")
    tell = progress or (lambda what, done, total: None)
    voices = {"reference": _Voice(make(reference)), "variant": _Voice(make(variant)), "oracle": _Voice(make(ORACLE))}
    rows: list[dict[str, Any]] = []
    suspect: list[str] = []
    failures: list[str] = []
    for i, length in enumerate(sizes):
        tell("contexts", i, len(sizes))
        after = {name: voice.read_to(tokens, length) for name, voice in voices.items()}
        said, ref = voices["reference"].continue_with(after["reference"], None, steps)
        _, own = voices["variant"].continue_with(after["variant"], said, steps)
        _, truth = voices["oracle"].continue_with(after["oracle"], said, steps)
        wrong = {name: faults(model, run, threads=threads) for name, run in (("reference", ref), ("variant", own))}
        suspect += [f"the reference {reference} is suspect: context {length}: {text}" for text in wrong["reference"][:1]]
        failures += [f"context {length}: {text}" for text in wrong["variant"][:1]]
        rows.append(_row(length, ref, own, truth, wrong))
    tell("contexts", len(sizes), len(sizes))
    differing = next((r for r in rows if r["first_difference"]), None)
    asked = (reference, variant) if engine_for is None else ()
    status, reasons = settle(suspect=suspect[:1], failures=failures[:3], unproven=idle(kernels, before, model, stage, asked))
    if differing is not None:
        reasons = (*reasons, difference_text(differing, reference, variant))
    findings = {"steps": steps, "contexts": rows, "first_differing_context": differing["length"] if differing else None}
    return Drift(over="context", status=status, reasons=reasons, stage=stage, variant=variant, reference=reference,
                 model=describe_model(model), prompts=[describe_prompt(prompt, tokens)], findings=findings,
                 environment=environment(kernels, threads))


def _row(length: int, ref: Pass, own: Pass, truth: Pass, wrong: dict[str, list[str]]) -> dict[str, Any]:
    figures = apart(ref.logits, own.logits)
    changes = figures.pop("changes")
    first = None
    if changes:
        c = changes[0]
        first = {"step": c["position"], "reference": c["a"], "variant": c["b"],
                 **{key: c[key] for key in ("margin", "ulps", "moved", "tie")}}
    distance = {name: apart(truth.logits, run.logits)["mean_kl"] for name, run in (("reference", ref), ("variant", own))}
    return {"length": length, "first_difference": first, "differing_steps": len(changes), **figures,
            "oracle_kl": distance, "near_ties": near_ties(ref.logits),
            "conforms": {name: not found for name, found in wrong.items()}}


def difference_text(row: dict[str, Any], reference: str, variant: str) -> str:
    """'context 128, step 3: mmvq says 101, w11 says 116; margin 0.004 log-prob = 12 ulps, moved by 0.006'."""
    first = row["first_difference"]
    text = f"context {row['length']}, step {first['step']}: {reference} says {first['reference']}, "
    text += f"{variant} says {first['variant']}; margin {first['margin']:.3g} in log-prob, "
    text += f"{first['ulps']:.4g} ulps of the logit, moved by {first['moved']:.3g}"
    return text + (" (a tie)" if first["tie"] else "")
