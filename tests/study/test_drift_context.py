"""Growing contexts: the first token that differs with its margin, faults beside equal tokens, a reference at fault."""

from __future__ import annotations

import numpy as np
import pytest

from edge0verify.engine import Engine
from edge0verify.model import DEFAULT_Q4_PROJECTION, encode, load_model, prompt
from edge0verify.records.errors import InputError
from edge0verify.report.drift_text import WIDTH, drift_text
from edge0verify.study.drift_context import difference_text, lengths, over_context
from edge0verify.study.drift_logits import choices
from edge0verify.study.spread import ORACLE, Voices, plan_for
from edge0verify.variants import _mutants
from edge0verify.variants.kernels import Kernels

TOKENS = encode(prompt("code"))


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture
def engines(model):
    """engine_for with a planted fault under one name."""

    def build(faulty_name, fault, stage="U"):
        _mutants.set_fault(fault)
        broken = Kernels(_mutants, threads=1)

        def engine_for(name):
            if name == ORACLE:
                return Engine(model, float_mode=True, threads=1)
            at = (lambda layer, step: broken if step == stage else None) if name == faulty_name else None
            return Engine(model, variants=plan_for("A", name), threads=1, kernels_for=at)

        return engine_for

    yield build
    _mutants.set_fault(None)


def test_lengths_grow_to_the_whole_prompt():
    assert lengths(192) == (32, 64, 128, 192) and lengths(64) == (32, 64) and lengths(5) == (5,)


def test_two_variants_conform_at_every_length(model):
    found = over_context(model, "code", TOKENS, "A", "w11", contexts=(20, 64), steps=6)
    assert found.status == "PASS" and found.reasons == ()
    assert [row["length"] for row in found.findings["contexts"]] == [20, 64]
    assert all(row["conforms"] == {"reference": True, "variant": True} for row in found.findings["contexts"])
    assert found.findings["first_differing_context"] is None
    assert max(map(len, drift_text(found).splitlines())) <= WIDTH


def test_the_same_variant_says_the_same_bits(model):
    found = over_context(model, "code", TOKENS, "A", "mmvq", contexts=(24,), steps=5)
    assert found.findings["contexts"][0]["equal"] == 5


def test_the_first_differing_token_has_its_margin_in_ulps_and_is_drift(model):
    """A position of the prompt where both variants conform and choose differently, found over the whole prompts."""
    voices = Voices(model, "A", prompts=("questions",), threads=1)
    change = next(iter(choices(voices["mmvq"].logits, voices["w11"].logits)), None)
    stage, tokens = "A", encode(prompt("questions"))
    if change is None:
        voices, stage = Voices(model, "D", prompts=("code",), threads=1), "D"
        change, tokens = choices(voices["mmvq"].logits, voices["mmq"].logits)[0], TOKENS
    variant = "w11" if stage == "A" else "mmq"
    length = change["position"] + 1
    found = over_context(model, "x", tokens, stage, variant, contexts=(max(1, length - 9), length), steps=2)
    first = found.findings["contexts"][-1]["first_difference"]
    assert (found.status, found.findings["first_differing_context"]) == ("PASS", length)
    assert (first["step"], first["reference"], first["variant"]) == (0, change["a"], change["b"])
    assert first["ulps"] == pytest.approx(change["ulps"]) and first["moved"] > first["margin"]
    assert f"context {length}, step 0: mmvq says {change['a']}, {variant} says {change['b']}" in found.reasons[0]
    assert "ulps of the logit" in found.reasons[0]


def test_a_tie_is_called_one():
    first = {"step": 2, "reference": 1, "variant": 4, "margin": 1e-7, "ulps": 1.0, "moved": 2e-7, "tie": True}
    assert difference_text({"length": 9, "first_difference": first}, "mmvq", "w11").endswith("(a tie)")


def test_a_fault_is_caught_where_every_token_is_equal(model, engines):
    options = dict(contexts=(32,), steps=4)
    assert over_context(model, "code", TOKENS, "A", "w11", **options, engine_for=engines("w11", None)).status == "PASS"
    broken = over_context(model, "code", TOKENS, "A", "w11", **options, engine_for=engines("w11", "bf16-accumulation"))
    assert broken.findings["contexts"][0]["differing_steps"] == 0
    assert (broken.status, broken.exit_code) == ("FAIL", 1) and "context 32: layer 0 stage U u" in broken.reasons[0]


def test_a_reference_at_fault_is_named_before_the_variant(model, engines):
    engine_for = engines("mmvq", "bf16-accumulation")
    found = over_context(model, "code", TOKENS, "A", "w11", contexts=(32,), steps=4, engine_for=engine_for)
    assert (found.status, found.exit_code) == ("INCONCLUSIVE", 3)
    assert found.reasons[0].startswith("the reference mmvq is suspect: context 32: layer 0 stage U u")


def test_a_variant_without_a_kernel_for_the_weights_is_never_a_pass():
    found = over_context(load_model(projection=DEFAULT_Q4_PROJECTION), "code", TOKENS, "D", "w11", contexts=(8,), steps=2)
    assert found.status == "INCONCLUSIVE" and "not engaged: w11" in found.reasons[0]


@pytest.mark.parametrize("contexts", [(), (64, 32), (0, 4), (32, 10**6)])
def test_contexts_that_cannot_be_are_refused(model, contexts):
    with pytest.raises(InputError, match="growing lengths"):
        over_context(model, "code", TOKENS, "A", "w11", contexts=contexts)


def test_both_distances_to_the_float_oracle_are_shown(model):
    found = over_context(model, "code", TOKENS, "A", "mmq", contexts=(40,), steps=3)
    distances = found.findings["contexts"][0]["oracle_kl"]
    assert set(distances) == {"reference", "variant"} and np.isfinite(list(distances.values())).all()
