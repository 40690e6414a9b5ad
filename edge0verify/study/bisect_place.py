"""Where in the weights a fault sits: expert, weight row, block along the dot, and two experts that changed places.

The block is found by probing: the stage runs on inputs that are zero outside one block of 32, so that only that block of the
weight row can be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge0verify.model import Model
from edge0verify.model.plan import layer_prefix
from edge0verify.numerics.blocks import BLOCK
from edge0verify.numerics.conform import rows_conform
from edge0verify.numerics.contracts import contract
from edge0verify.numerics.formats import FORMATS
from edge0verify.numerics.quantise import quantise
from edge0verify.numerics.rounding import bf16_decode, bf16_encode
from edge0verify.study import oracle
from edge0verify.study.bisect_judge import Tensors
from edge0verify.study.bisect_walk import Runner
from edge0verify.study.replay import PARTS
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.registry import resolve
from edge0verify.variants.weights import layer_weights

PROBES = 4
"""Probe rows per block: a fault that hides from one row seldom hides from four."""
WEIGHTS = {"route-logits": "ffn_gate_inp", "d-xl": "latent_down", "a-gate": "ffn_gate_exps", "a-up": "ffn_up_exps",
           "a-y": "ffn_down_exps", "u": "latent_up"}
"""The weight tensor whose rows are the columns of a stage's tensor."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Expert `expert` computes what the weights of expert `weights_of` give."""

    expert: int
    weights_of: int


def weight_name(layer: int | str, tensor: str) -> str | None:
    """Name of the weights that a tensor is the product with, or None."""
    part = WEIGHTS.get(tensor)
    if part is None:
        return None
    return f"{part}.weight" if part.startswith("latent_") else f"{layer_prefix(layer)}{part}.weight"


def probe_blocks(model: Model, run: Runner, layer: int | str, tensor: str, row: int, expert: int | None, names: dict[str, str], *,
                 kernels: Kernels) -> tuple[int, ...] | None:
    """Blocks of the format along the dot at which weight row `row` (of `expert`) of a run does not conform to `model`'s weights.

    names: canonical variants of D, A1, A2, U.  None where the tensor is no product of a stage; empty where no probe shows a fault.
    """
    name = weight_name(layer, tensor)
    stage = {"d-xl": "D", "a-gate": "A1", "a-up": "A1", "a-y": "A2", "u": "U"}.get(tensor)
    if name is None or stage is None:
        return None
    weights = model.tensor(name)
    blocks = weights.shape[-1] // BLOCK
    x = _probe_rows(blocks)
    got, t, bound = _run(model, run, layer, stage, tensor, expert, names[stage], x, weights, kernels)
    wrong = ~rows_conform(got[:, row : row + 1], t[:, row : row + 1], bound[:, row : row + 1])[:, 0]
    found = np.unique(np.flatnonzero(wrong.reshape(blocks, PROBES).any(axis=1)) * BLOCK // FORMATS[weights.fmt].values)
    return tuple(int(b) for b in found)


def _probe_rows(blocks: int) -> np.ndarray:
    """float32 [blocks*PROBES, blocks*32]: rows j*PROBES.. are zero outside block j."""
    drawn = np.random.default_rng(7).standard_normal((blocks, PROBES, BLOCK)).astype(np.float32)
    x = np.zeros((blocks, PROBES, blocks, BLOCK), np.float32)
    x[np.arange(blocks), :, np.arange(blocks)] = bf16_decode(bf16_encode(drawn))
    return x.reshape(blocks * PROBES, blocks * BLOCK)


def _run(model, run, layer, stage, tensor, expert, variant, x, weights, kernels):
    """(rows of the run, own oracle t, bound) of the probes, each [probes, M]."""
    kernels = (run.kernels_for(layer, stage) if run.kernels_for else None) or kernels
    w = layer_weights(run.model, layer, kernels)
    rules = contract(stage, variant)
    if stage in ("D", "U"):
        packed = w.down if stage == "D" else w.up
        runs = resolve(stage, variant, packed.fmt).runs
        got = kernels.d(runs, packed, x).xl if stage == "D" else kernels.u(runs, packed, x).u
        o = oracle.own_oracle(rules, weights, quantise(rules.operand, x))
        return got, o.t, o.bound
    c = model.config
    others = [e for e in range(c.experts) if e != expert][: c.k - 1]
    ids = np.tile(np.array([expert, *others], np.int32), (len(x), 1))
    experts = np.full(len(x), expert, np.int32)
    if stage == "A1":
        runs = resolve("A1", variant, w.gate_exps.fmt).runs
        stored = quantise("mmvq", x)
        out = kernels.a1(runs, w.gate_exps, w.up_exps, x, stored, ids, capture=True)
        got = (out.gate if tensor == "a-gate" else out.up).reshape(len(x), c.k, -1)[:, 0]
        operands = quantise("mmq", x) if rules.operand == "mmq" else stored
    else:
        runs = resolve("A2", variant, w.down_exps.fmt).runs
        operands = quantise(contract("A1", variant).store, x)
        spread = operands.take(np.repeat(np.arange(len(x)), c.k))
        out = kernels.a2(runs, w.down_exps, spread, ids, np.full(ids.shape, 1.0 / c.k, np.float32))
        got = out.y.reshape(len(x), c.k, -1)[:, 0]
    o = oracle.own_oracle(rules, weights, operands, experts=experts)
    return got, o.t, o.bound


def exchanged(
    model: Model, layer: int | str, tensor: str, experts: list[int], seen: Tensors, variant: str, *, most: int = 64
) -> tuple[Exchange, ...]:
    """Of `experts`, whose rows do not conform, those whose rows are all what another expert's weights in `model` give.

    seen: the layer's tensors of the run.  Looks at `most` pairs an expert.
    """
    stage = {"a-gate": "A1", "a-up": "A1", "a-y": "A2"}.get(tensor)
    if stage is None:
        return ()
    weights = model.tensor(weight_name(layer, tensor))
    rules = contract(stage, variant)
    ids = seen["route-ids"]
    flat = ids.reshape(-1)
    found = []
    for expert in experts:
        pairs = np.flatnonzero(flat == expert)[:most]
        if stage == "A2":
            operands = seen["a-h"].take(pairs)
        else:
            token = pairs // ids.shape[1]
            operands = quantise("mmq", seen["d-xl"][token]) if rules.operand == "mmq" else seen["d-xlq"].take(token)
        for other in range(model.config.experts):
            o = oracle.own_oracle(rules, weights, operands, experts=np.full(len(pairs), other, np.int32))
            if other != expert and rows_conform(seen[tensor][pairs], o.t, o.bound).all():
                found.append(Exchange(expert=expert, weights_of=other))
                break
    return tuple(found)


def weights_that_differ(a: Model, b: Model, name: str) -> tuple[tuple[int | None, int, int], ...]:
    """(expert or None, row, block) of every block whose bytes differ between two models' tensor `name`, in order."""
    x, y = a.tensor(name), b.tensor(name)
    if x.fmt != y.fmt or not x.quantised or x.raw.shape != y.raw.shape:
        return ()
    size = FORMATS[x.fmt].bytes
    shape = (*x.raw.shape[:-1], x.raw.shape[-1] // size, size)
    wrong = np.argwhere((x.raw.reshape(shape) != y.raw.reshape(shape)).any(axis=-1))
    return tuple((None if len(at) == 2 else int(at[0]), int(at[-2]), int(at[-1])) for at in wrong)


def parts_of(stage: str) -> tuple[str, ...]:
    """Steps of a command-line stage, all of them for 'all'."""
    return ("D", "A1", "A2", "U") if stage == "all" else PARTS[stage]
