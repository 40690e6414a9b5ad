"""How far the accepted variants of a stage differ among themselves: the yardstick for a new one's movement.

Every registered variant that has a kernel for the model's weights is accepted.  The one under judgement is left out, so that it
cannot excuse itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge0verify import model as models
from edge0verify.compare import movement
from edge0verify.engine import Engine
from edge0verify.engine.native import top_logprobs
from edge0verify.model import Model
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Tokens
from edge0verify.study.capture import REFERENCE
from edge0verify.study.drift_logits import apart, near_ties
from edge0verify.study.replay import PARTS
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.registry import VARIANTS, resolve

FOUR = ("prose", "questions", "code", "list")
FAR = 10.0
"""A run is far from the float oracle where its mean KL to it exceeds this many times the median of the others'.  The largest
ratio among the four variants of D, A and U of the embedded model is 2.7; two exchanged experts make 2,400."""
ORACLE = "oracle"
EngineFor = Callable[[str], Engine]


@dataclass(frozen=True)
class Said:
    """What one run says on some prompts: top 8 after each, and the logits of every position, prompts joined."""

    last: Tokens
    logits: np.ndarray

    @classmethod
    def by(cls, engine: Engine, prompts: Sequence[str], tokens: Sequence[np.ndarray]) -> Said:
        steps = [engine.prefill(ids, all_logits=True) for ids in tokens]
        last = Tokens(
            ids=np.stack([s.top8_ids for s in steps]),
            logprobs=np.stack([s.top8_logprobs for s in steps]),
            logits=np.stack([s.logits_last for s in steps]),
            names=tuple(prompts),
        )
        return cls(last, np.concatenate([s.logits for s in steps]))


def accepted(model: Model, stage: str) -> tuple[str, ...]:
    """Registered variants of `stage` ('D', 'A', 'U') that have a kernel for the model's weights in every part of it."""
    names = dict.fromkeys(v.name for v in VARIANTS if v.stage in PARTS[stage])
    return tuple(name for name in names if not any(resolve(p, name, format_of(model, p)).fell_back for p in PARTS[stage]))


def format_of(model: Model, part: str) -> str:
    """Weight format of a part: 'D', 'A1', 'A2', 'U'."""
    return {"D": model.tensor("latent_down.weight"), "U": model.tensor("latent_up.weight"),
            "A1": model.layer(0, "ffn_gate_exps"), "A2": model.layer(0, "ffn_down_exps")}[part].fmt


def idle(kernels: Kernels, before: Mapping[str, int], model: Model, stage: str, names: Iterable[str]) -> list[str]:
    """For each variant of `names` whose counters did not move since `before`: that it was not engaged."""
    after = kernels.launches()
    found = []
    for name in dict.fromkeys(names):
        wanted = [f"{part}/{name}/{format_of(model, part)}" for part in PARTS[stage]]
        still = [key for key in wanted if after.get(key, 0) == before.get(key, 0)]
        if still:
            found.append(f"not engaged: {name} was asked for, {', '.join(still)} launched 0 times")
    return found


def plan_for(stage: str, variant: str) -> dict[str, str]:
    """The reference path with every part of `stage` on `variant`."""
    return {**REFERENCE, **dict.fromkeys(PARTS[stage], variant)}


class Voices:
    """Runs of the whole model, each made once: a variant's name, or `ORACLE` for decoded weights and no quantised activations.

    engine_for(name) may build the engine; tests plant faults with it.  kernels: others than this processor's.  Kept in memory,
    never on disk.
    """

    def __init__(self, model: Model, stage: str, *, prompts: Sequence[str] = FOUR, threads: int = 1,
                 engine_for: EngineFor | None = None, progress: Callable[[str, int, int], None] | None = None,
                 kernels: Kernels | None = None) -> None:
        if not model.quantised:
            raise InputError(f"{model.path}: expected quantised weights for the variants, found float ones")
        self.model, self.stage, self.prompts, self.threads = model, stage, tuple(prompts), threads
        self._tokens = [models.encode(models.prompt(name)) for name in prompts]
        self._kernels = kernels or Kernels(threads=threads)
        self._engine_for = engine_for or self._engine
        self._said: dict[str, Said] = {}
        self._progress = progress or (lambda what, done, total: None)

    def _engine(self, name: str) -> Engine:
        if name == ORACLE:
            return Engine(self.model, float_mode=True, threads=self.threads)
        return Engine(self.model, kernels=self._kernels, variants=plan_for(self.stage, name), threads=self.threads)

    def __getitem__(self, name: str) -> Said:
        if name not in self._said:
            self._progress("whole model", len(self._said), len(self._said) + 1)
            self._said[name] = Said.by(self._engine_for(name), self.prompts, self._tokens)
        return self._said[name]


def pair(voices: Voices, a: str, b: str) -> dict[str, Any]:
    """One pair: top-8 movement after the prompts, and everything `drift_logits.apart` says over all positions."""
    x, y = voices[a], voices[b]
    moved = movement(x.last, y.last)
    over_all = apart(x.logits, y.logits)
    return {"a": a, "b": b, "max_move": moved["max_move"], "set_changes": moved["set_changes"],
            "per_prompt": {p["name"]: p["move"] for p in moved["per_position"]},
            "max_move_anywhere": over_all.pop("max_move"), **over_all}


def spread(voices: Voices, names: Iterable[str]) -> dict[str, Any]:
    """All pairs among `names`: {variants, max_move, max_kl, pairs}; maxima None where there is no pair."""
    names = tuple(names)
    pairs = [pair(voices, a, b) for a, b in itertools.combinations(names, 2)]
    return {"variants": list(names), "max_move": max((p["max_move"] for p in pairs), default=None),
            "max_kl": max((p["mean_kl"] for p in pairs), default=None), "pairs": pairs}


def left_out(a: str, b: str, reference: str = "mmvq") -> tuple[str, ...]:
    """Which of a compared pair may not stand in the yardstick: those that are not the reference."""
    return tuple(dict.fromkeys(name for name in (a, b) if name != reference))


def distances(voices: Voices, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Of each variant to the float oracle: {mean_kl, kl_se, max_kl}."""
    truth = voices[ORACLE].logits
    found = {}
    for name in names:
        figures = apart(truth, voices[name].logits)
        found[name] = {key: figures[key] for key in ("mean_kl", "kl_se", "max_kl")}
    return found


def far(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names whose distance is no number, or more than `FAR` times the median of the others'."""
    wrong = []
    for name, figures in found.items():
        others = [f["mean_kl"] for n, f in found.items() if n != name and np.isfinite(f["mean_kl"])]
        kl = figures["mean_kl"]
        if not np.isfinite(kl) or (others and kl > FAR * float(np.median(others))):
            wrong.append(name)
    return wrong


def far_text(name: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """The figure and what it is measured by."""
    others = ", ".join(f"{n} {f['mean_kl']:.2g}" for n, f in found.items() if n != name)
    return f"mean KL {found[name]['mean_kl']:.2g} to the float oracle, where the others have {others or 'none'}"


def yardstick(voices: Voices, a: str, b: str, reference: str = "mmvq") -> dict[str, Any]:
    """What stands beside a movement: the spread without a and b, and whether the reference is far from the oracle.

    {variants, left_out, max_move, max_kl, pairs, oracle, suspect}; `suspect` is a reason, or None.
    """
    names = accepted(voices.model, voices.stage)
    out = left_out(a, b, reference)
    found = spread(voices, [name for name in names if name not in out])
    known = distances(voices, names)
    suspect = None
    if reference in far(known) and reference not in (a, b):
        suspect = f"the reference {reference} is suspect: {far_text(reference, known)}"
    return {**found, "left_out": list(out), "oracle": known, "suspect": suspect}


def density(voices: Voices, name: str) -> dict[str, Any]:
    """Near ties of one run over all positions of all prompts."""
    return near_ties(voices[name].logits)


def top8_of(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids i32 and log-probs f32 [positions, 8] of logits, as the engine forms them."""
    return top_logprobs(np.ascontiguousarray(logits, np.float32), 8)
