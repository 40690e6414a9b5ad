"""How much each stage of each layer adds to what the model says: swap one in, swap one out.

`in`: a with this one swapped for b's; `out`: b with this one swapped back for a's.  The two differ, and neither adds up to the
whole, since what the layers above do with a difference depends on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edge0verify import model as models
from edge0verify.compare import movement
from edge0verify.compare.top8 import divergence
from edge0verify.engine import Engine
from edge0verify.model import Model, layer_prefix
from edge0verify.records.evidence import Tokens
from edge0verify.study.spread import FOUR
from edge0verify.variants.kernels import Kernels

PARTS = ("D", "A", "U")
REST, SHARED = "rest", "shared"
"""Weights that are no stage's: a layer's attention, router and norms; and those of no layer (with D's and U's, shared by all)."""
Unit = tuple[int | str, str]
"""(layer, part); layer 'all' for `shared`."""


@dataclass(frozen=True)
class Said:
    """What a run says: the top 8 after each prompt, and the logits of every position of every prompt."""

    last: Tokens
    logits: np.ndarray


def units(model: Model, parts: Iterable[str], other: Model | None) -> list[Unit]:
    """Everything that can be swapped: each part of each layer, and of another model what differs besides."""
    found: list[Unit] = [(layer, part) for layer in range(model.config.layers) for part in parts]
    if other is not None:
        found += [(layer, REST) for layer in range(model.config.layers) if _differ(model, other, _rest(model, layer))]
        if _differ(model, other, _shared(model)):
            found.append(("all", SHARED))
    return found


def attribute(
    model: Model,
    a: dict[str, str],
    b: dict[str, str],
    *,
    parts: tuple[str, ...] = PARTS,
    other: Model | None = None,
    prompts: tuple[str, ...] = FOUR,
    threads: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """The movement of the top 8 that each unit, each part over all layers, and each layer over all parts makes.

    a, b: variant names of D, A, U (canonical); `other`: the model of b.  Returns {prompts, positions, whole: {max_move, mean_kl},
    units, stages, layers: [{layer, part, in: {max_move, mean_kl}, out: {...}}]}; moves in nats of log-prob over the last
    positions, KL(without || with) in nats, mean over all positions of all prompts.
    """
    tokens = [models.encode(models.prompt(name)) for name in prompts]
    kernels = Kernels(threads=threads)
    every = units(model, parts, other)

    def say(swapped: frozenset[Unit]) -> Said:
        variants: dict[Any, str] = dict(a)
        variants |= {(layer, part): b[part] for layer, part in swapped if part in PARTS}
        mixed = model if other is None else _mixed(model, other, swapped)
        engine = Engine(mixed, kernels=kernels, variants=variants, threads=threads)
        steps = [engine.prefill(ids, all_logits=True) for ids in tokens]
        last = Tokens(ids=np.stack([s.top8_ids for s in steps]), logprobs=np.stack([s.top8_logprobs for s in steps]),
                      names=tuple(prompts))
        return Said(last, np.concatenate([s.logits for s in steps]))

    whole = frozenset(every)
    groups = [("units", layer, part, frozenset({(layer, part)})) for layer, part in every]
    groups += [("stages", "all", part, frozenset(u for u in every if u[1] == part)) for part in parts]
    groups += [("layers", layer, "all", frozenset(u for u in every if u[0] == layer)) for layer in range(model.config.layers)]
    said_a, said_b = say(frozenset()), say(whole)
    result: dict[str, Any] = {"prompts": list(prompts), "positions": len(said_a.logits), "whole": _moved(said_a, said_b),
                              "units": [], "stages": [], "layers": []}
    for i, (table, layer, part, group) in enumerate(groups):
        if progress:
            progress("swapping in and out", i, len(groups))
        moved_in, moved_out = _moved(said_a, say(group)), _moved(say(whole - group), said_b)
        result[table].append({"layer": layer, "part": part, "in": moved_in, "out": moved_out})
    return result


def _moved(a: Said, b: Said) -> dict[str, float | None]:
    return {"max_move": movement(a.last, b.last)["max_move"], "mean_kl": float(np.mean(divergence(a.logits, b.logits)))}


def _mixed(model: Model, other: Model, swapped: frozenset[Unit]) -> Model:
    """`model` with the weights of the swapped units from `other`."""
    names: set[str] = set()
    for layer, part in swapped:
        if part == "A":
            names |= {f"{layer_prefix(layer)}ffn_{p}_exps.weight" for p in ("gate", "up", "down")}
        elif part == REST:
            names |= _rest(model, layer)
        elif part == SHARED:
            names |= _shared(model)
    return replace(model, tensors={**model.tensors, **{name: other.tensor(name) for name in names}})


def _rest(model: Model, layer: int | str) -> set[str]:
    return {name for name in model.tensors if name.startswith(layer_prefix(layer)) and "_exps." not in name}


def _shared(model: Model) -> set[str]:
    return {name for name in model.tensors if not name.startswith(("blk.", "mtp."))}


def _differ(model: Model, other: Model, names: set[str]) -> bool:
    return any(not same_tensor(model, other, name) for name in names)


def same_tensor(model: Model, other: Model, name: str) -> bool:
    """Whether two models store one tensor with the same bytes."""
    a, b = model.tensor(name), other.tensor(name)
    return a.fmt == b.fmt and a.raw.shape == b.raw.shape and bool(np.array_equal(a.raw.view(np.uint8), b.raw.view(np.uint8)))
