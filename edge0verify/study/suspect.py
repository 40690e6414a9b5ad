"""Whether the reference path can be trusted where it is neither a nor b: asked layer by layer, before a variant is blamed.

Its own variant is replayed on the inputs that were captured. That must give the bits that its pass wrote (else it is unstable), and
on a sample of rows keep its own contract and lie about as near to the oracle as the variants under study.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edge0verify.compare import suspicions
from edge0verify.numerics.blocks import Blocks
from edge0verify.records.evidence import Evidence, Side
from edge0verify.study.capture import Fingerprint, StageInputs
from edge0verify.study.evidence import Scene, evidence
from edge0verify.study.replay import StageOutput, replay
from edge0verify.variants.kernels import Kernels

SAMPLE = 512
"""Token rows that are judged at most: a quarter from either end, where kernels go wrong, the others from between."""
_SEED = 20260102
Value = np.ndarray | Blocks


def doubts(scene: Scene, stage: str, reference: str, inputs: StageInputs, kernels: Kernels) -> list[str]:
    """A sentence for each tensor of the layer in which `reference` cannot be trusted."""
    made = replay(scene.model, stage, scene.layer, reference, scene.inputs, kernels)
    return [*_unstable(scene.layer, made, inputs), *_judged(scene, stage, reference, made)]


def _unstable(layer: int | str, made: StageOutput, inputs: StageInputs) -> list[str]:
    wrote = inputs.wrote.get(layer, {})
    return [
        f"layer {layer} {name}: the reference is suspect, its pass wrote other bits than it gives on the same inputs again"
        for name, before in wrote.items()
        if name in made.tensors and Fingerprint().add(made.tensors[name]).text() != before
    ]


def _judged(scene: Scene, stage: str, reference: str, made: StageOutput) -> list[str]:
    n = len(scene.rows)
    tokens = sample(n)
    a, b, own = (_cut(output, tokens, n) for output in (scene.a, scene.b, made))
    part = replace(
        scene,
        inputs={name: _take(value, tokens) for name, value in scene.inputs.items()},
        a=own,
        b=own,
        variants=(reference, reference),
        rows=scene.rows[tokens],
    )
    return suspicions(_beside(item, a, b) for item in evidence(stage, part))


def _beside(item: Evidence, a: StageOutput, b: StageOutput) -> Evidence:
    """The same tensor with what a and b hold, and the reference's side apart."""
    sides = [Side(**{item.kind: output.tensors.get(item.tensor)}) for output in (a, b)]
    return replace(item, a=sides[0], b=sides[1], reference=item.a)


def sample(n: int, limit: int = SAMPLE) -> np.ndarray:
    """int64: at most `limit` of n rows, ascending, the same every time."""
    if n <= limit:
        return np.arange(n)
    edge = limit // 4
    drawn = edge + np.random.default_rng(_SEED).choice(n - 2 * edge, limit - 2 * edge, replace=False)
    return np.sort(np.concatenate([np.arange(edge), drawn, np.arange(n - edge, n)]))


def _cut(output: StageOutput, tokens: np.ndarray, n: int) -> StageOutput:
    """The rows of the given tokens, of tensors with k rows a token those of their pairs."""
    def cut(value: Value) -> Value:
        k = (value.rows if isinstance(value, Blocks) else len(value)) // n
        return _take(value, (tokens[:, None] * k + np.arange(k)).reshape(-1))

    return StageOutput({name: cut(value) for name, value in output.tensors.items()}, output.choices)


def _take(value: Value, rows: np.ndarray) -> Value:
    return value.take(rows) if isinstance(value, Blocks) else value[rows]
