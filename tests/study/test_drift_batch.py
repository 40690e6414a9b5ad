"""Batch widths: drift is reported with the near ties that decide what it does, and is no fault until something does not conform."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge0verify.engine import Engine
from edge0verify.model import DEFAULT_Q4_PROJECTION, encode, load_model, prompt
from edge0verify.report.drift_text import WIDTH, drift_text
from edge0verify.study.drift_batch import over_batch
from edge0verify.study.spread import plan_for
from edge0verify.variants import _mutants
from edge0verify.variants.kernels import Kernels

TOKENS = encode(prompt("questions"))[:48]


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture
def faulty():
    def kernels(fault):
        _mutants.set_fault(fault)
        return Kernels(_mutants, threads=1)

    yield kernels
    _mutants.set_fault(None)


def widths(found):
    return {row["width"]: row for row in found.findings["widths"]}


def test_no_bit_of_this_engine_depends_on_the_width(model):
    found = over_batch(model, "questions", TOKENS, "A", "mmvq")
    assert (found.status, found.reasons) == ("PASS", ())
    assert [row["kind"] for row in found.findings["widths"]] == [None, *["bitwise"] * 7]
    assert [row["forwards"] for row in found.findings["widths"]][:3] == [48, 24, 16]
    assert all(row["equal"] == 48 and row["max_move"] == 0 for row in found.findings["widths"])


def test_another_kernel_for_wide_batches_is_drift_with_its_near_ties_and_no_fault(model):
    found = over_batch(model, "questions", TOKENS, "A", "mmvq", wide="mmq", widths=(1, 4, 8))
    rows = widths(found)
    assert (found.status, found.exit_code) == ("PASS", 0)
    assert rows[8]["kind"] == "rounding" and rows[8]["faults"] == 0 and rows[8]["mean_kl"] > 0
    assert (rows[8]["first"]["layer"], rows[8]["first"]["tensor"]) == (0, "a-gate")
    assert found.findings["near_ties"]["positions"] == 48 and set(found.findings["near_ties"]["below"]) == {"0.001", "0.01", "0.1"}
    assert found.reasons[0].startswith("drift, no fault: widths 4, 8") and "lead by less than 0.1" in found.reasons[0]
    text = drift_text(found)
    assert max(map(len, text.splitlines())) <= WIDTH and "near ties over 48 positions" in text


def test_a_variant_without_a_kernel_for_the_weights_is_never_a_pass():
    found = over_batch(load_model(projection=DEFAULT_Q4_PROJECTION), "questions", TOKENS[:6], "D", "w11", widths=(1, 2))
    assert (found.status, found.exit_code) == ("INCONCLUSIVE", 3) and "D/w11/Q4_0 launched 0 times" in found.reasons[0]


def test_a_width_that_does_not_conform_is_a_fault(model, faulty):
    kernels = faulty("code-off-by-one")

    def engine_at(width):
        def at(layer, stage):
            return kernels if width >= 4 and stage == "A2" else None

        return Engine(model, variants=plan_for("A", "mmvq"), threads=1, kernels_for=at)

    found = over_batch(model, "questions", TOKENS[:24], "A", "mmvq", widths=(1, 3, 4), engine_at=engine_at)
    assert (found.status, widths(found)[3]["faults"]) == ("FAIL", 0)
    assert found.reasons[0].startswith("width 4: layer 0 stage A2 a-y:")
    assert not any(reason.startswith("width 3") for reason in found.reasons)


def test_equal_tokens_with_wrong_log_probs_are_caught(model):
    class Off(Engine):
        """Right tokens, log-probs from a softmax that forgot one id."""

        def _step(self, hidden, logits, first):
            step = super()._step(hidden, logits, first)
            return replace(step, top8_logprobs=step.top8_logprobs + np.float32(2e-3))

    def engine_at(width):
        return (Off if width == 2 else Engine)(model, threads=1)

    found = over_batch(model, "questions", TOKENS[:16], "A", "mmvq", widths=(1, 2), engine_at=engine_at)
    assert widths(found)[2]["argmax_changes"] == 0 and widths(found)[2]["equal"] == 16
    assert found.status == "FAIL" and "width 2: head: wrong log-probs" in found.reasons[0]
