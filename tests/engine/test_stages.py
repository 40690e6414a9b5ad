"""The four stages through the registry: what runs, what a tap sees, other kernels for one layer."""

from dataclasses import replace

import numpy as np
import pytest

from edge0verify.engine import Engine, native
from edge0verify.model import DEFAULT_Q4_PROJECTION, encode, load_model, prompt
from edge0verify.numerics.blocks import Blocks, same_floats
from edge0verify.numerics.quantise import quantise
from edge0verify.records.errors import InputError
from edge0verify.variants.kernels import Kernels

TENSORS = {"ffn-in", "route-logits", "route-ids", "route-weights", "d-hq", "d-xl", "d-xlq", "a-gate", "a-up", "a-h", "a-y", "a-yl",
           "u-ylq", "u"}
NAMES = ("ref", "mmvq", "mmq", "w11")


@pytest.fixture(scope="module")
def ids():
    return encode(prompt("p2"))[:60]


def prefill(engine, ids, **options):
    kept = {}

    def tap(layer, name, first, value):
        assert first == 0
        kept[layer, name] = value

    return engine.prefill(ids, tap=tap, all_logits=True, **options), kept


@pytest.mark.parametrize("variant", NAMES)
def test_every_stage_runs_the_variant_that_is_named(model, ids, variant):
    kernels = Kernels(threads=1)
    before = kernels.launches()
    engine = Engine(model, kernels=kernels, variants=dict.fromkeys("DAU", variant), threads=1)
    step, kept = prefill(engine, ids, mtp=True)
    ran = {k: n - before.get(k, 0) for k, n in kernels.launches().items() if n != before.get(k, 0)}
    assert ran == {f"D/{variant}/Q8_0": 7, f"A1/{variant}/Q3_K": 7, f"A2/{variant}/IQ4_NL": 7, f"U/{variant}/Q8_0": 7,
                   "linear/mmvq/Q8_0": 7 * 4 + 1}
    assert {name for _, name in kept} == TENSORS and {layer for layer, _ in kept} == {*range(6), "mtp"}
    for layer in range(6):
        n, k = kept[layer, "route-ids"].shape
        assert kept[layer, "a-y"].shape == (n * k, 256) and kept[layer, "a-h"].codes.shape == (n * k, 128)
        for name in ("ffn-in", "d-xl", "a-gate", "a-up", "a-y", "a-yl", "u"):
            assert np.isfinite(kept[layer, name]).all()
        for name, rows in (("d-xlq", kept[layer, "d-xl"]), ("d-hq", kept[layer, "ffn-in"]), ("u-ylq", kept[layer, "a-yl"])):
            assert kept[layer, name].same_bits(quantise(kept[layer, name].quantiser, rows))
    assert np.isfinite(step.logits).all()


def test_variants_are_distinct_and_near(model, ids):
    runs = {v: Engine(model, variants=dict.fromkeys("DAU", v), threads=1).prefill(ids, all_logits=True).logits for v in NAMES}
    for a in NAMES:
        for b in NAMES:
            if a < b:
                assert 0 < np.median(np.abs(runs[a] - runs[b]).max(1)) < 0.5


def test_router_norm_and_head_follow_their_definition(model, ids):
    """Router logits are a serial fma of ffn-in, the head's of the normed hidden rows, in every variant."""
    step, kept = prefill(Engine(model, threads=1), ids)
    router = native.Dense(model.layer(3, "ffn_gate_inp").values()[None].copy())
    assert same_floats(native.dense(router, kept[3, "ffn-in"], 1), kept[3, "route-logits"]).all()
    normed = native.rmsnorm(step.hidden, model.tensor("output_norm.weight").values().copy(), model.config.eps, 1)
    exact = normed.astype(np.float64) @ model.tensor("output.weight").values().astype(np.float64).T
    assert np.max(np.abs(step.logits - exact)) < 1e-4


def test_names_limit_what_a_tap_sees(model, ids):
    _, kept = prefill(Engine(model, threads=1), ids, names=frozenset({"a-yl", "d-xlq"}))
    assert {name for _, name in kept} == {"a-yl", "d-xlq"} and isinstance(kept[0, "d-xlq"], Blocks)


def test_other_kernels_for_one_layer(model, ids):
    """A fault in one stage of one layer: everything before it keeps its bits, the stage and what follows do not."""

    class Faulty(Kernels):
        def d(self, variant, weights, x):
            out = super().d(variant, weights, x)
            xl = out.xl.copy()
            xl[:, 5] += 1
            return replace(out, xl=xl, xlq=self.quantise("mmvq", xl))

    faulty = Faulty(threads=1)
    _, clean = prefill(Engine(model, threads=1), ids)
    _, got = prefill(Engine(model, threads=1, kernels_for=lambda layer, stage: faulty if (layer, stage) == (3, "D") else None), ids)

    def same(key):
        a, b = clean[key], got[key]
        if isinstance(a, Blocks):
            return a.same_bits(b)
        return bool((same_floats(a, b) if a.dtype == np.float32 else a == b).all())

    for layer, name in clean:
        if layer < 3 or (layer == 3 and name in ("ffn-in", "route-logits", "route-ids", "route-weights", "d-hq")):
            assert same((layer, name)), (layer, name)
    assert not same((3, "d-xl")) and not same((3, "u")) and not same((4, "ffn-in")) and not same((5, "u"))


def test_a_q4_0_projection_falls_back_and_says_so(ids):
    engine = Engine(load_model(projection=DEFAULT_Q4_PROJECTION), variants=dict.fromkeys("DAU", "w11"), threads=1)
    choices = engine.ops.choices
    assert {s: (c.asked.name, c.runs.name) for s, c in choices.items()} == {
        "D": ("w11", "mmvq"), "A1": ("w11", "w11"), "A2": ("w11", "w11"), "U": ("w11", "mmvq")}
    assert np.isfinite(engine.prefill(ids).logits_last).all()


@pytest.mark.parametrize("variants, message", [
    ({"B": "mmvq"}, "stages D, A"), ({"D": "mmvp"}, "did you mean mmvq"), ({"A1": "mmq"}, "choose both by A"),
])
def test_variants_that_do_not_fit(model, variants, message):
    with pytest.raises(InputError, match=message):
        Engine(model, variants=variants)


def test_aliases(model, ids):
    engine = Engine(model, variants={"D": "native", "A": "fused_q3k", "U": "latent_u_grouped"}, threads=1)
    assert [engine.ops.choices[s].runs.name for s in ("D", "A1", "A2", "U")] == ["mmvq", "w11", "w11", "mmvq"]


class TestVariantsPerLayer:
    def test_one_layer_on_another_variant_changes_that_layer_and_what_follows(self, model):
        tokens = np.arange(97, 120, dtype=np.int32)

        def rows(variants):
            seen = {}
            engine = Engine(model, variants=variants, threads=1)
            engine.prefill(tokens, tap=lambda layer, name, at, value: seen.setdefault((layer, name), value))
            return seen

        plain, mixed = rows({}), rows({(2, "A"): "mmq"})
        assert all((plain[layer, "a-yl"] == mixed[layer, "a-yl"]).all() for layer in (0, 1))
        assert (plain[2, "d-xl"] == mixed[2, "d-xl"]).all() and mixed[2, "a-h"].quantiser == "mmq"
        assert mixed[3, "a-h"].quantiser == "mmvq" and (plain[3, "d-xl"] != mixed[3, "d-xl"]).any()

    def test_a_layer_that_the_model_has_not_is_refused(self, model):
        with pytest.raises(InputError, match="found 9"):
            Engine(model, variants={(9, "A"): "mmq"})
