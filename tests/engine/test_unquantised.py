"""The unquantised weights (bfloat16 safetensors, the embedded model before conversion) against outputs made by other code."""

from pathlib import Path

import numpy as np
import pytest

from edge0verify.engine import Engine
from edge0verify.model import Model, encode, load_model, prompt
from edge0verify.records.errors import InputError

DATA = Path(__file__).resolve().parents[1] / "data"
TOLERANCE = 2e-3


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model(DATA / "edge0-mini-bf16")


@pytest.fixture(scope="module")
def reference():
    return np.load(DATA / "reference-bf16.npz")


@pytest.mark.parametrize("name", ["p1", "p2", "p3", "p4"])
def test_logits_agree_at_every_position(model: Model, reference, name: str) -> None:
    step = Engine(model, float_mode=True, threads=2).prefill(encode(prompt(name)), all_logits=True)
    assert np.max(np.abs(step.logits - reference[f"{name}.logits_all"])) < TOLERANCE


def test_the_quantised_model_does_not_agree(reference) -> None:
    """The tolerance can tell the two sets of weights apart."""
    step = Engine(load_model(), float_mode=True, threads=2).prefill(encode(prompt("p1")), all_logits=True)
    assert np.max(np.abs(step.logits - reference["p1.logits_all"])) > 50 * TOLERANCE


def test_variants_are_refused_for_unquantised_weights(model: Model) -> None:
    with pytest.raises(InputError, match="float"):
        Engine(model, variants={"D": "w11"})
