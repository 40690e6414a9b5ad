"""Two runs side by side, chunk by chunk and up the layers, with what it takes to judge each step on its own inputs.

Memory holds one chunk of tokens, however long the prompt is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge0verify.engine import Engine, Step
from edge0verify.model import Model
from edge0verify.numerics.blocks import Blocks
from edge0verify.variants.kernels import Kernels

CHUNK = 512
BETWEEN = frozenset({"ffn-in", "route-logits", "route-ids", "route-weights"})
"""What lies between two layers' stages."""
Seen = dict[int | str, dict[str, np.ndarray | Blocks]]
KernelsFor = Callable[[Any, str], Kernels | None]


@dataclass(frozen=True, kw_only=True)
class Runner:
    """One side: whose weights, which variants, which kernels."""

    model: Model
    variants: Mapping[Any, str]
    """As Engine takes them."""
    kernels_for: KernelsFor | None = None

    def engine(self, kernels: Kernels, threads: int) -> Engine:
        return Engine(self.model, kernels=kernels, variants=dict(self.variants), threads=threads, kernels_for=self.kernels_for)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One chunk of tokens through all layers.

    a, b: every tensor of both runs, by layer.  forced: what a's weights make of b's own u of each layer: the tensors of
    `BETWEEN` and the logits that follow if everything between the stages is right.  oracle: ffn-in and u of the float mode.
    rows int32 [n, 3].
    """

    rows: np.ndarray
    a: Seen
    b: Seen
    forced: Seen
    oracle: Seen
    step_a: Step
    step_b: Step
    step_forced: Step


class _Given:
    """Stands in for the stages: hands back the u that another run made, so that only the rest of the engine computes."""

    def __init__(self, ops: Any) -> None:
        self._ops = ops
        self.seen: Seen = {}

    def linear(self, layer: int | str, part: str, x: np.ndarray) -> np.ndarray:
        return self._ops.linear(layer, part, x)

    def experts(self, layer, h, ids, weights, emit, capture) -> np.ndarray:
        return np.array(self.seen[layer]["u"], np.float32)


def walk(a: Runner, b: Runner, tokens: np.ndarray, *, kernels: Kernels, threads: int = 1, chunk: int = CHUNK,
         counted: Callable[[str, Callable[[], Step]], Step] | None = None) -> Iterator[Piece]:
    """Both runs over `tokens` int32 [n], a piece per chunk.  counted(side, run) may wrap each forward, to count launches."""
    count = counted or (lambda side, run: run())
    engines = {"a": a.engine(kernels, threads), "b": b.engine(kernels, threads)}
    oracle = Engine(a.model, float_mode=True, threads=threads)
    forced = Engine(a.model, kernels=kernels, threads=threads)
    given = _Given(forced.ops)
    forced.ops = given
    for at in range(0, len(tokens), chunk):
        part, following = tokens[at : at + chunk], tokens[at + 1 : at + chunk + 1]
        seen_a, step_a = _forward(engines["a"], part, following, None, lambda run: count("a", run))
        seen_b, step_b = _forward(engines["b"], part, following, None, lambda run: count("b", run))
        given.seen = seen_b
        seen_forced, step_forced = _forward(forced, part, following, BETWEEN)
        seen_oracle, _ = _forward(oracle, part, following, frozenset({"ffn-in", "u"}))
        yield Piece(rows=step_a.rows * np.array([0, 1, 1], np.int32), a=seen_a, b=seen_b, forced=seen_forced, oracle=seen_oracle,
                    step_a=step_a, step_b=step_b, step_forced=step_forced)


def _forward(
    engine: Engine, tokens: np.ndarray, following: np.ndarray, names: frozenset[str] | None, count=lambda run: run()
) -> tuple[Seen, Step]:
    """One chunk through the main layers, then through the drafter layer as far as the next token is known."""
    seen: Seen = {}

    def tap(layer, name, first, value):
        seen.setdefault(layer, {})[name] = value

    def run() -> Step:
        step = engine.forward(tokens, tap=tap, names=names)
        if engine.config.mtp_layers and len(following):
            engine.draft(step.hidden[: len(following)], following, tap=tap, names=names)
        return step

    return seen, count(run)
