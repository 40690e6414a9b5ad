"""The main job end to end: every pair of variants passes, planted faults are found where they are, nothing idle reads as a pass."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from edge0verify import model as models
from edge0verify.engine import Engine
from edge0verify.study import pair
from edge0verify.study.pair import Request, compare_variants
from edge0verify.study.suspect import sample
from edge0verify.variants import _mutants, registry
from edge0verify.variants.kernels import DOut, Kernels

NAMES = ("ref", "mmvq", "mmq", "w11")
PAIRS = list(combinations(NAMES, 2))


@pytest.fixture(scope="module")
def model() -> models.Model:
    return models.load_model()


@pytest.fixture(scope="module")
def prose() -> np.ndarray:
    # 183 tokens: no multiple of a tile of 16, so that the last tile is a partial one.
    return models.encode(models.prompt("prose"))[:183]


def request_of(model, tokens, stage: str, a: str, b: str, **more) -> Request:
    return Request(model=model, prompt="prose", tokens=tokens, stage=stage, a=a, b=b, threads=2, **more)


class TestEveryPair:
    @pytest.mark.parametrize("stage", ["D", "A", "U"])
    @pytest.mark.parametrize(("a", "b"), PAIRS)
    def test_passes_with_differences_where_the_contracts_differ(self, model, prose, stage: str, a: str, b: str) -> None:
        verdict = compare_variants(request_of(model, prose, stage, a, b))
        assert verdict.status == "PASS", verdict.reasons
        assert verdict.engaged == {"a": True, "b": True}
        assert {r.layer for r in verdict.layers} == set(range(6))
        assert all(sum(r.causes.values()) == r.n > 0 for r in verdict.layers)
        # All contracts round in another order, so every f32 row tensor differs somewhere in every layer.
        rows = [r for r in verdict.layers if r.tensor in ("d-xl", "a-gate", "a-up", "a-y", "a-yl", "u")]
        assert rows and all(r.equal < r.n for r in rows)
        if "mmq" in (a, b):
            assert verdict.totals["causes"]["operands"] > 0

    def test_counts_are_those_of_the_kind_that_was_measured(self, model) -> None:
        """A piece of the long prompt: 98 to 99.5 % of D's codes equal between mmq and w11, none off by more than one."""
        tokens = models.encode(models.prompt("long"))[:700]
        verdict = compare_variants(request_of(model, tokens, "D", "mmq", "w11"))
        codes = [r for r in verdict.layers if r.tensor == "d-xlq"]
        assert all(98.0 < r.equal_pct < 99.5 for r in codes)
        assert verdict.totals["causes"]["tie"] > 0


def mutated(fault: str, sides: str, layer: int):
    """Kernels with one fault planted on `sides` in one layer; the product's own everywhere else."""
    own, faulty = Kernels(threads=2), Kernels(native=_mutants, threads=2)

    def kernels_for(side: str, at: int) -> Kernels:
        planted = side in sides and at == layer
        _mutants.set_fault(fault if planted else None)
        return faulty if planted else own

    return kernels_for


PLANTED = [
    ("next-block-scale", "D", 2, {"d-xl", "d-xlq", "d-xlq.d"}),
    ("skip-last-partial-tile", "D", 4, {"d-hq", "d-xl"}),
    ("flip-hmask-bit", "A", 3, {"a-gate"}),
]


class TestPlantedFaults:
    @pytest.mark.parametrize(("fault", "stage", "layer", "tensors"), PLANTED, ids=[p[0] for p in PLANTED])
    @pytest.mark.parametrize("sides", ["a", "b", "ab"])
    def test_fails_at_the_right_layer_and_tensor_from_either_side_and_from_both(
        self, model, prose, fault: str, stage: str, layer: int, tensors: set[str], sides: str
    ) -> None:
        names = ("mmvq", "w11") if sides != "ab" else ("w11", "w11")
        verdict = compare_variants(request_of(model, prose, stage, *names), kernels_for=mutated(fault, sides, layer))
        assert verdict.status == "FAIL", verdict.reasons
        failing = [r for r in verdict.layers if r.status == "FAIL"]
        assert {r.layer for r in failing} == {layer}
        assert failing[0].tensor in tensors
        first = failing[0]
        for side in "ab":
            kept = first.conforming[side] == first.n
            assert kept == (side not in sides), f"{first.tensor}: side {side} keeps {first.conforming[side]} of {first.n}"
        assert any(f"layer {layer}" in reason for reason in verdict.reasons)

    def test_the_place_is_named(self, model, prose) -> None:
        """The last partial tile of tokens is left unwritten: the first bad row is the first one past the last full tile of 16."""
        verdict = compare_variants(
            request_of(model, prose, "D", "mmvq", "w11"), kernels_for=mutated("skip-last-partial-tile", "b", 1)
        )
        failing = next(r for r in verdict.layers if r.status == "FAIL")
        assert "unwritten" in failing.causes
        assert min(w.index[0] for w in failing.worst if w.cause == "unwritten") == 176

    def test_without_a_fault_the_mutant_module_passes(self, model, prose) -> None:
        verdict = compare_variants(request_of(model, prose, "D", "mmvq", "w11"), kernels_for=mutated("next-block-scale", "", 0))
        assert verdict.status == "PASS"


class TestNotEngaged:
    def test_an_entry_that_says_w11_and_launches_mmvq_is_inconclusive(self, model, prose, monkeypatch) -> None:
        liar = replace(registry.find("D", "w11"))
        object.__setattr__(liar, "entry", lambda fmt: registry.find("D", "mmvq").entry(fmt))
        monkeypatch.setattr(
            registry, "VARIANTS", tuple(liar if (v.stage, v.name) == ("D", "w11") else v for v in registry.VARIANTS)
        )
        verdict = compare_variants(request_of(model, prose, "D", "mmvq", "w11"))
        assert verdict.exit_code == 3
        assert verdict.engaged == {"a": True, "b": False}
        assert any("w11 was asked for and mmvq ran" in reason for reason in verdict.reasons)

    @pytest.mark.parametrize(("stage", "a", "b"), [("D", "mmvq", "native"), ("A", "w11", "fused_q3k"), ("U", "mmq", "mmq")])
    def test_one_kernel_under_two_names(self, model, prose, stage, a, b) -> None:
        verdict = compare_variants(request_of(model, prose[:48], stage, a, b, layers=(0,)))
        assert verdict.exit_code == 3 and "it was compared with nothing but itself" in verdict.reasons[0]

    def test_a_fault_of_one_kernel_under_two_names(self, model, prose) -> None:
        found = compare_variants(request_of(model, prose[:48], "D", "mmvq", "native"), kernels_for=mutated(PLANTED[0][0], "ab", 2))
        assert found.status == "FAIL"

    def test_q4_0_projections_have_no_w11(self, prose) -> None:
        model = models.load_model(projection=models.DEFAULT_Q4_PROJECTION)
        verdict = compare_variants(request_of(model, prose, "D", "mmvq", "w11"))
        assert verdict.exit_code == 3
        assert any("w11 was asked for and mmvq ran" in reason for reason in verdict.reasons)

    def test_a_reset_of_the_counters_by_the_caller_cannot_fake_a_launch(self, model, prose) -> None:
        """Launches are counted inside the compiled entry: a Kernels that computes nothing counts nothing."""

        class Idle(Kernels):
            def d(self, variant, weights, x):
                xl = self.poisoned((len(x), weights.rows), np.float32)
                return DOut(self._blocks(*x.shape, "mmvq"), xl, self._blocks(len(x), weights.rows, "mmvq"))

        own, idle = Kernels(threads=2), Idle(threads=2)
        verdict = compare_variants(
            request_of(model, prose, "D", "mmvq", "w11"), kernels_for=lambda side, layer: idle if side == "b" else own
        )
        assert verdict.status == "FAIL"
        assert verdict.engaged["b"] is False


class TestSuspectReference:
    """The reference path is neither a nor b, and something is wrong with it."""

    @pytest.fixture
    def faulty(self):
        _mutants.set_fault("next-block-scale")
        yield Kernels(native=_mutants, threads=2)
        _mutants.set_fault(None)

    @pytest.mark.parametrize("stage", ["D", "A", "U"])
    @pytest.mark.parametrize("b_too", [False, True], ids=["both right", "b wrong too"])
    def test_that_breaks_its_own_contract_proves_nothing(self, model, prose, faulty, monkeypatch, stage, b_too) -> None:
        own = Kernels(threads=2)
        monkeypatch.setattr(pair, "Kernels", lambda **more: faulty)
        verdict = compare_variants(
            request_of(model, prose[:48], stage, "ref", "w11", layers=(1, 2)),
            kernels_for=lambda side, layer: faulty if b_too and side == "b" else own,
        )
        assert (verdict.status, verdict.exit_code) == ("INCONCLUSIVE", 3)
        assert "layer 1" in verdict.reasons[0]
        assert "the reference is suspect, it does not keep its own contract" in verdict.reasons[0]
        assert any(r.status == "FAIL" for r in verdict.layers) == b_too
        assert any("b does not conform" in reason for reason in verdict.reasons) == b_too

    def test_that_gives_other_bits_the_second_time_proves_nothing(self, model, prose, faulty) -> None:
        engine, own = Engine(model, kernels=faulty, threads=2), Kernels(threads=2)
        verdict = compare_variants(request_of(model, prose[:48], "A", "ref", "w11", rows=slice(5, 40)),
                                   kernels_for=lambda side, layer: own, engine=engine)
        assert verdict.exit_code == 3
        assert "layer 0 a-yl: the reference is suspect, its pass wrote other bits" in verdict.reasons[0]

    @pytest.mark.parametrize("names", [("ref", "mmvq"), ("mmvq", "mmvq")])
    def test_that_is_one_of_the_two_is_judged_as_such(self, model, prose, faulty, monkeypatch, names) -> None:
        monkeypatch.setattr(pair, "Kernels", lambda **more: faulty)
        assert compare_variants(request_of(model, prose[:48], "D", *names, layers=(0,))).status == "FAIL"

    def test_a_right_one_is_not_suspect_however_its_pass_is_cut(self, model, prose) -> None:
        engine = Engine(model, threads=2, chunk=31)
        verdict = compare_variants(request_of(model, prose, "A", "ref", "mmq", rows=slice(7, 120)), engine=engine)
        assert verdict.status == "PASS", verdict.reasons

    def test_the_sample_holds_both_ends(self) -> None:
        rows = sample(5268)
        assert len(rows) == 512 == len(np.unique(rows)) and {0, 127, 5140, 5267} <= set(rows.tolist())
        assert sample(40).tolist() == list(range(40))


def test_rows_and_layers_narrow_what_is_judged(model, prose) -> None:
    verdict = compare_variants(request_of(model, prose, "U", "mmvq", "mmq", layers=(1, 4), rows=slice(10, 43)))
    assert {r.layer for r in verdict.layers} == {1, 4}
    u = next(r for r in verdict.layers if r.tensor == "u")
    assert u.n == 33 * model.config.hidden
    assert verdict.signature["rows"] == 33


def test_an_alias_is_its_variant(model, prose) -> None:
    assert pair.canonical("A", "fused_q3k") == "w11"
    assert pair.canonical("D", "native") == "mmvq"
