"""Build evidence: two outputs of one stage, each beside its own oracle and bound.

The operands are formed here from the stage's inputs by the declared quantiser, in numpy, never taken from the kernel under test;
weights are decoded from the model's bytes by numerics.  So a kernel that quantises or decodes wrongly does not bring its own
excuse along.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from edge0verify.model import Model
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.contracts import Contract, contract
from edge0verify.numerics.quantise import quantise
from edge0verify.records.evidence import Evidence, Side
from edge0verify.study import bias, oracle
from edge0verify.study.misread import misreadings
from edge0verify.study.replay import StageOutput

TOKEN_KEYS = ("pass", "position", "accepted")
PAIR_KEYS = ("pass", "position", "slot", "expert", "accepted")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything evidence of one stage of one layer is built from."""

    model: Model
    layer: int | str
    inputs: Mapping[str, np.ndarray | Blocks]
    """The stage's inputs, as capture.READS names them."""
    a: StageOutput
    b: StageOutput
    variants: tuple[str, str]
    """Canonical names of the variants that were asked for, a and b: each is judged by its own contract."""
    rows: np.ndarray
    """int32 [tokens, 3]: keys of the token rows."""
    threads: int | None = None


def evidence(stage: str, scene: Scene) -> Iterator[Evidence]:
    """Evidence for each tensor that `stage` ('D', 'A', 'U', or a part 'A1', 'A2') writes, operands first, in the order they are
    computed. A tensor that a side's output lacks is None there.

    A1 reads the reference path's latent rows, A2 the a-h that each side's own A1 wrote. For A2 alone the inputs hold `a-h-rows`,
    f32 [pairs, ff]: the rows that a-h was made from.
    """
    if stage == "A":
        true_h = yield from _gate_up(scene)
        yield from _expert_down(scene, true_h)
    elif stage == "A1":
        yield from _gate_up(scene)
    elif stage == "A2":
        yield from _expert_down(scene, scene.inputs["a-h-rows"])
    else:
        yield from {"D": _down, "U": _up}[stage](scene)


class _Oracles:
    """Own oracles of the products of one stage, formed once per (operands, granularity) and shared by both sides."""

    def __init__(self, threads: int | None):
        self.threads = threads
        self._known: dict[tuple, tuple[np.ndarray, np.ndarray]] = {}

    def get(self, key: tuple, c: Contract, tensor, blocks: Blocks, experts: np.ndarray | None = None):
        """(t, bound), float64 [rows, M]; the key names the operands."""
        key = (*key, c.granularity)
        if key not in self._known:
            self._known[key] = oracle.own_sums(c, tensor, blocks, experts=experts, threads=self.threads)
        t, s = self._known[key]
        return t, oracle.bound_of(c, tensor, s)


def _product(scene: Scene, stage: str, source: np.ndarray, tensor, names: tuple[str, str, str | None]) -> Iterator[Evidence]:
    """D and U: operands from f32 rows, one product, and for D a store."""
    operand, rows, stored = names
    oracles = _Oracles(scene.threads)
    declared: dict[str, Blocks] = {}
    sides: list[tuple[Contract, Blocks, np.ndarray, np.ndarray]] = []
    for name in scene.variants:
        c = contract(stage, name)
        if c.operand not in declared:
            declared[c.operand] = quantise(c.operand, source)
        sides.append((c, declared[c.operand], *oracles.get((c.operand,), c, tensor, declared[c.operand])))
    outputs = (scene.a.tensors, scene.b.tensors)
    common = dict(layer=scene.layer, stage=stage, keys=scene.rows, key_names=TOKEN_KEYS)
    exact = [Side(blocks=o.get(operand), exact=q, store=c.operand) for (c, q, _, _), o in zip(sides, outputs)]
    yield Evidence(tensor=operand, kind="blocks", a=exact[0], b=exact[1], **common)
    truth = oracle.float_rows(tensor, source, threads=scene.threads)
    asked = [dict(terms=oracle.block_terms(tensor, q), misread=misreadings(tensor, q)) for _, q, _, _ in sides]
    written = [
        Side(rows=o.get(rows), t=t, bound=b, bias=bias.rows_bias(c, tensor, q, o.get(rows), threads=scene.threads), **more)
        for (c, q, t, b), o, more in zip(sides, outputs, asked)
    ]
    yield Evidence(tensor=rows, kind="rows", a=written[0], b=written[1], oracle=truth, **common)
    if stored is not None:
        kept = [
            Side(rows=o.get(rows), blocks=o.get(stored), t=t, bound=b, store=c.store, **more)
            for (c, _, t, b), o, more in zip(sides, outputs, asked)
        ]
        yield Evidence(tensor=stored, kind="blocks", a=kept[0], b=kept[1], oracle=truth, **common)


def _down(scene: Scene) -> Iterator[Evidence]:
    yield from _product(scene, "D", scene.inputs["ffn-in"], scene.model.tensor("latent_down.weight"), ("d-hq", "d-xl", "d-xlq"))


def _up(scene: Scene) -> Iterator[Evidence]:
    yield from _product(scene, "U", scene.inputs["a-yl"], scene.model.tensor("latent_up.weight"), ("u-ylq", "u", None))


def pair_keys(rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """int32 [tokens*k, 5]: (pass, position, slot, expert, accepted) of each pair, token-major."""
    n, k = ids.shape
    token = np.repeat(np.arange(n), k)
    slot = np.tile(np.arange(k, dtype=np.int32), n)
    return np.stack([rows[token, 0], rows[token, 1], slot, ids.reshape(-1), rows[token, 2]], axis=1).astype(np.int32)


def _gate_up(scene: Scene) -> Generator[Evidence, None, np.ndarray]:
    """A1 on the reference path's latent rows; returns the oracle of H, float64 [pairs, ff]."""
    layer, threads = scene.layer, scene.threads
    xl, xlq, ids = scene.inputs["d-xl"], scene.inputs["d-xlq"], scene.inputs["route-ids"]
    experts, token = ids.reshape(-1), np.repeat(np.arange(ids.shape[0]), ids.shape[1])
    gate, up = (scene.model.layer(layer, f"ffn_{part}_exps") for part in ("gate", "up"))
    outputs = (scene.a.tensors, scene.b.tensors)
    pairs = dict(layer=layer, keys=pair_keys(scene.rows, ids), key_names=PAIR_KEYS)

    oracles = _Oracles(threads)
    first = []
    for name in scene.variants:
        c = contract("A1", name)
        operands = (quantise("mmq", xl) if c.operand == "mmq" else xlq).take(token)
        first.append(
            (
                c,
                operands,
                *oracles.get(("gate", c.operand), c, gate, operands, experts),
                *oracles.get(("up", c.operand), c, up, operands, experts),
            )
        )
    true_gate = oracle.float_rows(gate, xl[token], experts=experts, threads=threads)
    true_up = oracle.float_rows(up, xl[token], experts=experts, threads=threads)
    for tensor, weight, at, truth in (("a-gate", gate, 2, true_gate), ("a-up", up, 4, true_up)):
        sides = []
        for f, o in zip(first, outputs):
            found = bias.rows_bias(f[0], weight, f[1], o.get(tensor), experts=experts, threads=threads)
            more = dict(terms=oracle.block_terms(weight, f[1], experts=experts), misread=misreadings(weight, f[1], experts=experts))
            sides.append(Side(rows=o.get(tensor), t=f[at], bound=f[at + 1], bias=found, **more))
        yield Evidence(tensor=tensor, kind="rows", stage="A1", a=sides[0], b=sides[1], oracle=truth, **pairs)
    sides = []
    for (c, _, tg, bg, tp, bp), o in zip(first, outputs):
        th, bh = oracle.swiglu(tg, bg, tp, bp, threads=threads)
        sides.append(Side(blocks=o.get("a-h"), t=th, bound=bh, store=c.store))
    true_h = oracle.swiglu_value(true_gate, true_up, threads=threads)
    yield Evidence(tensor="a-h", kind="blocks", stage="A1", a=sides[0], b=sides[1], oracle=true_h, **pairs)
    return true_h


def _expert_down(scene: Scene, true_h: np.ndarray) -> Iterator[Evidence]:
    """A2 on each side's own a-h; `true_h` is what it would be without any quantisation."""
    layer, threads = scene.layer, scene.threads
    ids, weights = scene.inputs["route-ids"], scene.inputs["route-weights"]
    experts, down = ids.reshape(-1), scene.model.layer(layer, "ffn_down_exps")
    outputs = (scene.a.tensors, scene.b.tensors)
    pairs = dict(layer=layer, keys=pair_keys(scene.rows, ids), key_names=PAIR_KEYS)
    rows = dict(layer=layer, keys=scene.rows, key_names=TOKEN_KEYS)
    products, sums = [], []
    for name, o in zip(scene.variants, outputs):
        c = contract("A2", name)
        t, s = oracle.own_sums(c, down, o["a-h"], experts=experts, threads=threads)
        found = bias.rows_bias(c, down, o["a-h"], o.get("a-y"), experts=experts, threads=threads)
        more = dict(terms=oracle.block_terms(down, o["a-h"], experts=experts), misread=misreadings(down, o["a-h"], experts=experts))
        products.append(Side(rows=o.get("a-y"), t=t, bound=oracle.bound_of(c, down, s), bias=found, **more))
        ty, by = oracle.expert_sum(c, down, t, s, weights, threads=threads)
        found = bias.expert_sum_bias(c, o.get("a-y"), weights, ids, o.get("a-yl"), threads=threads)
        sums.append(Side(rows=o.get("a-yl"), t=ty, bound=by, bias=found))
    true_y = oracle.float_rows(down, true_h, experts=experts, threads=threads)
    yield Evidence(tensor="a-y", kind="rows", stage="A2", a=products[0], b=products[1], oracle=true_y, **pairs)
    true_yl = np.einsum("nk,nkm->nm", weights.astype(np.float64), true_y.reshape(*ids.shape, -1))
    yield Evidence(tensor="a-yl", kind="rows", stage="A2", a=sums[0], b=sums[1], oracle=true_yl, **rows)
