"""One dumped side judged alone: the router's bound, the weights' bound, sharing, and operands that were not dumped."""

from __future__ import annotations

import numpy as np
import pytest

from edge0verify.engine import native
from edge0verify.model import load_model
from edge0verify.numerics.quantise import quantise
from edge0verify.study.own import OwnLayer, Shared, largest
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.weights import layer_weights

MODEL = load_model()
ALL = {"D": "mmvq", "A1": "mmvq", "A2": "mmvq", "U": "mmvq"}


def own(tensors, variants=ALL, model=MODEL, layer=2):
    return OwnLayer(
        model=model, layer=layer, tensors=tensors, variants=variants, token=None, experts=None, shared=Shared(), threads=2
    )


@pytest.fixture(scope="module")
def routed():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((64, MODEL.config.hidden)).astype(np.float32)
    x[1] *= 1e-3
    x[2] *= 30
    weights = native.Dense(np.ascontiguousarray(MODEL.layer(2, "ffn_gate_inp").values())[None])
    logits = native.dense(weights, x, 2)
    ids, chosen = native.route(logits, 4, 2)
    return {"ffn-in": x, "route-logits": logits, "route-ids": ids, "route-weights": chosen}


class TestRoute:
    def test_the_engine_keeps_the_bounds(self, routed):
        side = own(routed)
        for name in ("route-logits", "route-weights"):
            found = side.of(name).side
            assert (np.abs(found.rows - found.t) <= found.bound).all(), name
        assert np.array_equal(side.of("route-ids").side.chosen, routed["route-ids"])

    def test_weights_off_by_a_hundred_thousandth_are_seen(self, routed):
        weights = own(routed).of("route-weights").side
        wrong = weights.rows * np.float32(1 + 1e-5)
        seen = np.abs(wrong - weights.t) > weights.bound
        assert seen[np.abs(weights.t) > 1e-3].mean() > 0.99

    def test_one_weight_row_off_is_seen(self, routed):
        logits = routed["route-logits"].copy()
        logits[:, 3] *= np.float32(1 + 1e-2)
        found = own({**routed, "route-logits": logits}).of("route-logits").side
        assert (np.abs(found.rows - found.t) > found.bound)[:, 3].mean() > 0.9

    def test_the_largest_with_ties_and_nan(self):
        logits = np.array([[1, 3, 3, np.nan, 2]], np.float32)
        assert largest(logits, 3).tolist() == [[1, 2, 4]]


class TestOperands:
    def test_stored_operands_stand_in_for_rows_that_were_not_dumped(self):
        x = np.random.default_rng(5).standard_normal((8, MODEL.config.hidden)).astype(np.float32)
        kernels = Kernels(threads=2)
        out = kernels.d("mmvq", layer_weights(MODEL, 0, kernels).down, x)
        both = own({"ffn-in": x, "d-hq": out.hq, "d-xl": out.xl}).of("d-xl").side
        blocks = own({"d-hq": out.hq, "d-xl": out.xl}).of("d-xl").side
        assert np.array_equal(both.t, blocks.t) and np.array_equal(both.bound, blocks.bound)

    def test_without_variant_model_or_inputs_nothing_is_judged(self):
        x = np.zeros((2, MODEL.config.hidden), np.float32)
        xl = np.zeros((2, MODEL.config.latent), np.float32)
        for side in (own({"ffn-in": x, "d-xl": xl}, {}), own({"ffn-in": x, "d-xl": xl}, model=None), own({"d-xl": xl})):
            assert side.of("d-xl").side.t is None
        declared = own({"ffn-in": x, "d-hq": quantise("mmvq", x)}, model=None).of("d-hq").side
        assert declared.exact is not None                                       # a declared quantiser needs no weights

    def test_equal_inputs_are_worked_on_once(self):
        x = np.ones((2, MODEL.config.hidden), np.float32)
        xl = np.zeros((2, MODEL.config.latent), np.float32)
        shared = Shared()
        sides = [
            OwnLayer(model=MODEL, layer=0, tensors={"ffn-in": x, "d-xl": xl}, variants=ALL | {"D": name}, token=None, experts=None,
                     shared=shared, threads=1).of("d-xl").side
            for name in ("mmvq", "w11", "mmq")
        ]
        assert sides[0].t is sides[1].t and sides[0].t is not sides[2].t
        assert (sides[0].bound != sides[1].bound).any()
