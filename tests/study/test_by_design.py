"""Flags that change routes by design: what they change is labelled, and nothing else hides behind them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge0verify.engine.route_flags import RouteFlags
from edge0verify.model import encode, load_model, prompt
from edge0verify.study.by_design import _side
from edge0verify.study.spread import FOUR
from edge0verify.study.whole import Configuration, WholeRequest, compare_whole
from edge0verify.variants import _mutants
from edge0verify.variants.flags import read_flags, variants_of
from edge0verify.variants.kernels import Kernels

SKIP = "STRATA_ROUTE_TAIL_SKIP=0.2"
PRIOR = "STRATA_ROUTE_PRIOR=1 STRATA_ROUTE_RESIDENT=0-5"


@pytest.fixture(scope="module")
def request_():
    tokens = encode(prompt("prose"))[:16]
    return WholeRequest(model=load_model(), tokens=tokens, a=side(""), b=side(""), layers=(0, 2), threads=2, prompts=("list",))


def side(text, kernels=None):
    flags = read_flags(text)
    return Configuration(flags=flags, variants=variants_of(flags), kernels=kernels)


def against(request_, text, **more):
    return compare_whole(replace(request_, b=side(text), **more))


def causes(verdict, tensor):
    found = {}
    for entry in verdict.layers:
        if entry.tensor == tensor:
            for cause, n in entry.causes.items():
                found[cause] = found.get(cause, 0) + n
    return found


class TestWhatIsSaid:
    @pytest.mark.parametrize("text", [SKIP, PRIOR])
    def test_the_difference_is_by_design_and_passes(self, request_, text):
        found = against(request_, text)
        assert found.status == "PASS" and found.a == "D=w11,A=mmvq,U=w11" and text.split()[0] in found.b
        assert set(causes(found, "route-ids")) <= {"equal", "by-design"} and causes(found, "route-weights")["by-design"]
        assert "route-flip" not in found.totals["causes"] and "unexplained" not in found.totals["causes"]
        # What follows inside the stages is inherited, and the router itself no flag touches.
        assert set(causes(found, "a-yl")) <= {"equal", "cascade"} and "by-design" not in causes(found, "route-logits")
        told = found.totals["by_design"]
        assert 0 < told["places_differ"] <= told["places"] == 2 * 16
        assert told["flags"] == {"a": [], "b": text.split()}
        assert (told["b"]["skipped"] > 0) == (SKIP in text) and (told["b"]["exchanged"] > 0) == (PRIOR in text)
        assert any("neither a fault nor a proof" in note for note in found.totals["notes"])

    def test_how_far_the_top_8_moves_and_what_questions_can_and_cannot_show(self, request_):
        found = against(request_, SKIP, questions=4, prompts=FOUR)
        moved = found.top8
        assert [p["name"] for p in moved["per_position"]] == list(FOUR) and moved["max_move"] > 0.01
        assert found.totals["questions"]["n"] == 4
        assert any("still allows a loss of" in note for note in found.totals["notes"])

    def test_a_router_held_to_four_experts_loses_questions(self, request_):
        found = against(request_, "STRATA_ROUTE_PRIOR=1000 STRATA_ROUTE_RESIDENT=0-3", questions=12)
        told = found.totals["questions"]
        assert found.status == "PASS" and told["only_a"] >= 6 and told["only_b"] == 0 and told["mcnemar_p"] < 0.05

    def test_two_settings_of_one_flag(self, request_):
        found = compare_whole(replace(request_, a=side(SKIP), b=side("STRATA_ROUTE_TAIL_SKIP=0.5")))
        assert found.status == "PASS" and causes(found, "route-weights")["by-design"]
        told = found.totals["by_design"]
        assert told["a"]["skipped"] < told["b"]["skipped"]

    def test_one_flag_on_both_sides_declares_nothing(self, request_):
        found = compare_whole(replace(request_, a=side(SKIP), b=side(SKIP + " STRATA_LATENT_FUSED_DU=0")))
        assert found.status == "PASS" and "by-design" not in found.totals["causes"] and "by_design" not in found.totals


class TestWhatIsNotHidden:
    @pytest.mark.parametrize(("text", "fault"), [(SKIP, "rows-f16"), (PRIOR, "drop-block")])
    def test_a_kernels_fault_fails(self, request_, text, fault):
        """Each stage is judged on what it was given, however the routes came out."""
        try:
            _mutants.set_fault(fault)
            found = compare_whole(replace(request_, b=side(text, Kernels(_mutants, threads=2))))
        finally:
            _mutants.set_fault(None)
        assert found.status == "FAIL"
        failing = {entry.tensor.split(".")[0] for entry in found.layers if entry.status == "FAIL"}
        assert failing and not failing & {"route-logits", "route-ids", "route-weights"}
        assert causes(found, "route-weights")["by-design"]

    def test_the_same_kernels_without_the_fault_pass(self, request_):
        assert compare_whole(replace(request_, b=side(f"{SKIP} {PRIOR}", Kernels(_mutants, threads=2)))).status == "PASS"

    @pytest.mark.parametrize("wrong", ["weights", "ids", "not skipped"])
    def test_a_router_that_breaks_the_flags_rule_fails(self, request_, monkeypatch, wrong):
        right = RouteFlags.choose

        def choose(self, layer, logits, k, threads):
            made = right(self, layer, logits, k, threads)
            if layer == 2 and wrong == "weights":
                made.weights[5] *= np.float32(1.001)
            if layer == 2 and wrong == "ids":
                made.ids[5, 0] = next(e for e in range(16) if e not in made.ids[5])
            if layer == 2 and wrong == "not skipped":
                made.weights[5] = np.float32(0.25)
            return made

        monkeypatch.setattr(RouteFlags, "choose", choose)
        found = against(request_, SKIP)
        assert found.status == "FAIL"
        assert any("layer 2 route-" in reason for reason in found.reasons)
        assert causes(found, "route-weights")["by-design"]          # the other rows still are

    def test_a_flag_that_changes_no_route_proves_nothing(self, request_):
        for text in ("STRATA_ROUTE_TAIL_SKIP=0.000001", "STRATA_ROUTE_PRIOR=1"):
            found = against(request_, text)
            assert found.status == "INCONCLUSIVE" and any("changed no route" in reason for reason in found.reasons)


def test_counting_by_hand():
    logits = np.array([[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]], np.float32)
    ids = np.array([[0, 1], [3, 0]], np.int32)
    weights = np.array([[1.0, 0.0], [0.75, 0.25]], np.float32)
    found = _side(RouteFlags(tail_skip=0.5, prior=9, resident={None: (0,)}), 0, logits, ids, weights)
    assert found.acted.tolist() == [True, True] and (found.skipped, found.exchanged, found.pairs) == (1, 1, 4)
    found = _side(RouteFlags(tail_skip=0.5), 0, logits, ids, weights)
    assert found.acted.tolist() == [True, False] and (found.skipped, found.exchanged) == (1, 0)
