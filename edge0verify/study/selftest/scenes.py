"""What the self test runs the stages on: a piece of real text through the embedded model, and rows longer than that model has.

The embedded model's rows have at most twelve blocks: a fault in the loop over lanes, or past the first super block, would change
no bit there. The long rows have 33 blocks of 32, three super blocks, odd counts and one row past a tile; their weights and inputs
come from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from edge0verify import model as models
from edge0verify.model import Model
from edge0verify.model.tensor import Tensor
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.quantise import quantise
from edge0verify.study.capture import StageInputs, capture

STAGES = ("D", "A", "U")
TOKENS = 183
"""Of the real text: no multiple of a tile of 16."""
LAYER = 3
THREADS = 2

_BLOCK = {"Q8_0": (32, 34, 0), "Q4_0": (32, 18, 0), "IQ4_NL": (32, 18, 0), "Q3_K": (256, 110, 108)}
"""Values and bytes of a block, and where its float16 scale stands."""


@dataclass(frozen=True)
class Stage:
    """One stage of one layer of one model, with its inputs."""

    stage: str
    name: str
    """'text' or 'long rows', or what is special about the inputs."""
    model: Model
    layer: int
    inputs: Mapping[str, np.ndarray | Blocks]
    rows: np.ndarray
    """int32 [tokens, 3]: (pass, position, accepted)."""

    @property
    def tokens(self) -> int:
        return len(self.rows)

    def part(self, rows: slice | np.ndarray) -> Stage:
        """The same stage on some of its tokens."""
        inputs = {n: v.take(rows) if isinstance(v, Blocks) else v[rows] for n, v in self.inputs.items()}
        return Stage(self.stage, self.name, self.model, self.layer, inputs, self.rows[rows])


@cache
def model(projection: str | None = None) -> Model:
    """The embedded model; `projection` 'q4_0' lays the embedded Q4_0 pair over its own."""
    return models.load_model(projection=models.DEFAULT_Q4_PROJECTION if projection else None)


@cache
def text(stage: str, prompt: str = "prose", projection: str | None = None) -> Stage:
    """A stage of the embedded model on the first tokens of one of its prompts."""
    loaded = model(projection)
    tokens = models.encode(models.prompt(prompt))[:TOKENS]
    taken = capture(loaded, tokens, stage, layers=(LAYER,), threads=THREADS)
    return _of(taken, loaded)


def _of(taken: StageInputs, loaded: Model) -> Stage:
    return Stage(taken.stage, "text", loaded, LAYER, taken.tensors[LAYER], taken.rows)


@cache
def long_rows(stage: str, kind: str = "normal") -> Stage:
    """A stage with 33 blocks a row (A1: three super blocks) on made inputs.

    kind: 'normal'; 'bf16' rounded to bfloat16; 'zeros' with blocks of zeros; 'outliers' with one value a block 300 times the rest.
    """
    rng = np.random.default_rng([STAGES.index(stage), 20260101])
    loaded = _long_model(stage, rng)
    name = "long rows" if kind == "normal" else f"long rows, {kind}"
    if stage != "A":
        source = {"D": "ffn-in", "U": "a-yl"}[stage]
        return Stage(stage, name, loaded, 0, {source: _activations(rng, 97, 1056, kind)}, _keys(97))
    n, k, experts = 17, 2, 3
    xl = _activations(rng, n, 768, kind)
    ids = np.stack([np.zeros(n), 1 + rng.permutation(n) % (experts - 1)], axis=1).astype(np.int32)
    swapped = np.arange(n) % 3 == 0  # routes do not come in the order of the ids
    ids[swapped] = ids[swapped, ::-1]
    weights = rng.dirichlet(np.ones(k), n).astype(np.float32)
    inputs = {"d-xl": xl, "d-xlq": quantise("mmvq", xl), "route-ids": ids, "route-weights": weights}
    return Stage(stage, name, loaded, 0, inputs, _keys(n))


def _long_model(stage: str, rng: np.random.Generator) -> Model:
    shapes = {
        "latent_down.weight": ("Q8_0", (128, 1056) if stage == "D" else (32, 32)),
        "latent_up.weight": ("Q8_0", (123, 1056) if stage == "U" else (32, 32)),
        "blk.0.ffn_gate_exps.weight": ("Q3_K", (3, 1056, 768) if stage == "A" else (1, 32, 256)),
        "blk.0.ffn_up_exps.weight": ("Q3_K", (3, 1056, 768) if stage == "A" else (1, 32, 256)),
        "blk.0.ffn_down_exps.weight": ("IQ4_NL", (3, 768, 1056) if stage == "A" else (1, 32, 32)),
    }
    tensors = {name: Tensor(name, fmt, shape, _weights(rng, fmt, shape)) for name, (fmt, shape) in shapes.items()}
    return Model(Path(f"long rows of stage {stage}"), model().config, tensors, ())


def _weights(rng: np.random.Generator, fmt: str, shape: tuple[int, ...]) -> np.ndarray:
    """Rows uint8 [..., bytes]: random codes under random scales of both signs."""
    values, size, at = _BLOCK[fmt]
    raw = rng.integers(0, 256, (*shape[:-1], shape[-1] // values, size), dtype=np.uint8)
    scale = rng.standard_normal(raw.shape[:-1]) * (3e-4 if fmt == "Q3_K" else 1e-3)
    raw[..., at : at + 2] = scale.astype(np.float16)[..., None].view(np.uint8)
    return raw.reshape(*shape[:-1], -1)


def _activations(rng: np.random.Generator, n: int, k: int, kind: str) -> np.ndarray:
    x = rng.standard_normal((n, k)).astype(np.float32)
    blocks = x.reshape(n, -1, 32)
    if kind == "bf16":
        x[:] = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    elif kind == "zeros":
        blocks[rng.random(blocks.shape[:2]) < 0.3] = 0.0
    elif kind == "outliers":
        blocks[:, :, 5] *= 300
    elif kind != "normal":
        raise ValueError(f"kind {kind}: expected normal, bf16, zeros or outliers")
    return x


def _keys(n: int) -> np.ndarray:
    position = np.arange(n, dtype=np.int32)
    return np.stack([np.zeros_like(position), position, np.ones_like(position)], axis=1)
