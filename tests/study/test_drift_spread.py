"""The yardstick that accepted variants make, and a reference or variant that is far from the float oracle."""

from __future__ import annotations

import pytest

from edge0verify.engine import Engine
from edge0verify.model import DEFAULT_Q4_PROJECTION, load_model
from edge0verify.records.errors import InputError
from edge0verify.records.verdict import Verdict
from edge0verify.report.drift_text import WIDTH, drift_text
from edge0verify.report.tables import beside_spread, top8
from edge0verify.study.cascade import top8_movement, with_top8
from edge0verify.study.drift import over_variants
from edge0verify.study.spread import ORACLE, Voices, accepted, far, left_out, plan_for, spread
from edge0verify.variants import _mutants
from edge0verify.variants.kernels import Kernels


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture
def planted(model):
    """engine_for in which one variant runs with a compiled fault."""

    def build(faulty, fault):
        _mutants.set_fault(fault)
        broken = Kernels(_mutants, threads=1)

        def engine_for(name):
            if name == ORACLE:
                return Engine(model, float_mode=True, threads=1)
            at = (lambda layer, step: broken if step == "A2" else None) if name == faulty else None
            return Engine(model, variants=plan_for("A", name), threads=1, kernels_for=at)

        return engine_for

    yield build
    _mutants.set_fault(None)


class TestSpread:
    def test_variants_with_a_kernel_for_the_weights_are_accepted(self, model):
        assert accepted(model, "A") == ("ref", "mmvq", "mmq", "w11")
        assert accepted(load_model(projection=DEFAULT_Q4_PROJECTION), "D") == ("ref", "mmvq")

    def test_the_one_under_judgement_is_no_part_of_its_own_yardstick(self):
        assert left_out("mmvq", "w11") == ("w11",)
        assert left_out("mmq", "w11") == ("mmq", "w11")
        assert left_out("ref", "mmvq") == ("ref",)

    def test_all_pairs_are_set_side_by_side(self, model):
        found = spread(Voices(model, "A", prompts=("list",)), ("mmvq", "mmq", "w11"))
        assert [(p["a"], p["b"]) for p in found["pairs"]] == [("mmvq", "mmq"), ("mmvq", "w11"), ("mmq", "w11")]
        assert found["max_move"] == max(p["max_move"] for p in found["pairs"]) > 0
        assert all(p["positions"] == 152 and p["kl_se"] > 0 for p in found["pairs"])

    def test_one_variant_makes_no_spread(self, model):
        assert spread(Voices(model, "A", prompts=("list",)), ("mmvq",))["max_move"] is None

    def test_far_is_ten_times_the_others_or_no_number(self):
        at = {name: {"mean_kl": kl} for name, kl in {"ref": 4e-5, "mmvq": 4.1e-5, "mmq": 1.1e-4, "w11": 3.7e-5}.items()}
        assert far(at) == []
        assert far({**at, "w11": {"mean_kl": 5e-4}}) == ["w11"] and far({**at, "ref": {"mean_kl": float("nan")}}) == ["ref"]


class TestBesideAMovement:
    def test_a_verdict_gets_one_line_with_both_figures(self, model):
        found = top8_movement(model, "A", "mmvq", "w11")
        assert found["spread"]["variants"] == ["ref", "mmvq", "mmq"] and found["spread"]["left_out"] == ["w11"]
        assert found["spread"]["suspect"] is None and set(found["spread"]["oracle"]) == {"ref", "mmvq", "mmq", "w11"}
        line = top8(found).splitlines()[-1]
        assert line.startswith("log-probs move by 0.034; accepted variants (ref, mmvq, mmq) differ by 0.0")
        assert with_top8(verdict("FAIL"), found).status == "FAIL"

    def test_too_few_variants_are_said(self):
        assert "no two other variants" in beside_spread(0.1, {"variants": ["mmvq"], "max_move": None})

    def test_a_reference_far_from_the_oracle_proves_nothing_about_a_and_b(self, model, planted):
        found = top8_movement(model, "A", "mmq", "w11", engine_for=planted("mmvq", "next-expert"))
        changed = with_top8(verdict("FAIL"), found)
        assert (changed.status, changed.exit_code) == ("INCONCLUSIVE", 3)
        assert changed.reasons[0].startswith("the reference mmvq is suspect: mean KL") and changed.reasons[1] == "because"

    def test_a_reference_that_is_itself_compared_is_judged_as_a_variant(self, model, planted):
        found = top8_movement(model, "A", "mmvq", "w11", engine_for=planted("mmvq", "next-expert"))
        assert found["spread"]["suspect"] is None


def verdict(status):
    return Verdict(status=status, reasons=("because",), stage="A", a="mmq", b="w11", reference="mmvq", model=None, prompt=None,
                   engaged={"a": True, "b": True}, signature={}, layers=(), totals={})


class TestOverVariants:
    def test_accepted_variants_pass_and_one_is_set_beside_the_rest(self, model):
        found = over_variants(model, "A", variant="w11")
        assert (found.status, found.reasons) == ("PASS", ())
        assert found.findings["beside"]["others"] == ["ref", "mmvq", "mmq"]
        assert found.findings["near_ties"]["positions"] == 661
        text = drift_text(found)
        assert max(map(len, text.splitlines())) <= WIDTH
        assert "w11: log-probs move by 0.034 from mmvq; accepted variants (ref, mmvq, mmq) differ by 0.0" in text

    def test_a_reference_far_from_the_oracle_is_named_before_anyone_is_blamed(self, model, planted):
        found = over_variants(model, "A", engine_for=planted("mmvq", "next-expert"))
        assert (found.status, found.exit_code) == ("INCONCLUSIVE", 3)
        assert found.reasons[0].startswith("the reference mmvq is suspect")

    def test_another_variant_far_from_it_is_at_fault(self, model, planted):
        found = over_variants(model, "A", engine_for=planted("w11", "next-expert"))
        assert (found.status, found.exit_code) == ("FAIL", 1) and found.reasons[0].startswith("w11 is far from what the model says")

    def test_the_planted_module_without_its_fault_passes(self, model, planted):
        assert over_variants(model, "A", engine_for=planted("w11", None)).status == "PASS"

    def test_a_variant_without_a_kernel_for_the_weights_is_refused(self):
        with pytest.raises(InputError, match="w11 of stage D"):
            over_variants(load_model(projection=DEFAULT_Q4_PROJECTION), "D", variant="w11")
