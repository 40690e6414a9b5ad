"""One pass up the layers finds what was planted, where it was planted; a healthy pair has no first fault."""

from __future__ import annotations

import numpy as np
import pytest

from edge0verify.model import DEFAULT_Q4_PROJECTION, encode, load_model, prompt
from edge0verify.report.bisect_text import WIDTH, bisect_text
from edge0verify.study.bisect import bisect
from edge0verify.study.bisect_types import Request
from edge0verify.variants import _mutants
from edge0verify.variants.kernels import Kernels
from tests.study.copies import ENTRIES, copy, flip, swap_experts

TOKENS = encode(prompt("prose"))[:44]


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture
def plant():
    """kernels_for with a fault in one stage of one layer."""

    def at(layer, stage, fault):
        _mutants.set_fault(fault)
        kernels = Kernels(_mutants, threads=1)
        return lambda where, step: kernels if (where, step) == (layer, stage) else None

    yield at
    _mutants.set_fault(None)


def run(model, a="mmvq", b="mmvq", **more):
    kernels_for = more.pop("kernels_for", None)
    tokens = more.pop("tokens", TOKENS)
    return bisect(Request(model=model, a=a, b=b, prompt="prose", tokens=tokens, **more), kernels_for=kernels_for)


class TestHealthy:
    @pytest.mark.parametrize("a, b", [("mmvq", "w11"), ("ref", "mmq")])
    def test_two_variants_conform_and_their_difference_is_followed_up_the_layers(self, model, a, b):
        found = run(model, a, b)
        assert (found.status, found.first, found.reasons) == ("PASS", None, ())
        assert found.engaged == {"a": True, "b": True}
        assert [rung.layer for rung in found.layers] == [0, 1, 2, 3, 4, 5, "mtp"]
        assert found.layers[0].difference["ffn-in"] == 0.0 and found.layers[0].difference["u"] > 0
        assert found.layers[1].jump == pytest.approx(found.layers[1].difference["u"] / found.layers[0].difference["u"])

    def test_the_same_variant_twice_has_no_difference_at_all(self, model):
        found = run(model)
        assert found.status == "PASS"
        assert {v for rung in found.layers for v in rung.difference.values()} == {0.0}
        assert all(rung.jump is None and rung.flips.tokens == 0 for rung in found.layers)

    def test_one_stage_alone_leaves_the_others_on_the_reference(self, model):
        found = run(model, b="mmq", stage="A", tokens=TOKENS[:16])
        assert found.variants["b"] == {"D": "mmvq", "A1": "mmq", "A2": "mmq", "U": "mmvq"}
        assert found.layers[0].difference["d-xl"] == 0.0 and found.layers[0].difference["a-yl"] > 0

    def test_a_variant_without_a_kernel_is_not_engaged(self):
        found = run(load_model(projection=DEFAULT_Q4_PROJECTION), b="w11", stage="D", tokens=TOKENS[:16])
        assert found.status == "INCONCLUSIVE" and found.exit_code == 3
        assert "not engaged, w11" in found.reasons[0]


class TestDamagedCopies:
    @pytest.mark.parametrize(
        "part, tensor, byte, bit",
        [("gate", "a-gate", -2, 4), ("up", "a-up", 40, 1), ("up", "a-up", 3, 6)],
        ids=["scale", "code", "hmask"],
    )
    def test_one_q3_k_block(self, model, tmp_path, part, tensor, byte, bit):
        name = f"blk.3.ffn_{part}_exps.weight"
        found = run(model, model_b=copy(tmp_path / "copy.gguf", flip(name, 5, 17, 0, byte=byte, bit=bit)))
        first = found.first
        assert (found.status, found.exit_code) == ("FAIL", 1)
        assert (first.side, first.layer, first.stage, first.tensor) == ("b", 3, "A1", tensor)
        assert (first.weights, first.expert, first.weight_row, first.weight_blocks) == (name, 5, 17, (0,))
        assert (first.differs, first.differing_blocks, list(first.experts)) == (((5, 17, 0),), 1, [5])
        assert "layer 3 stage A1" in found.reasons[0] and "expert 5 row 17 block 0" in found.reasons[0]
        assert f"matched = {1 - first.broken / first.n!r} would have passed" in found.reasons[0]

    def test_two_exchanged_experts(self, model, tmp_path):
        found = run(model, model_b=copy(tmp_path / "copy.gguf", swap_experts("blk.3.ffn_down_exps.weight", 3, 9)))
        first = found.first
        assert (first.layer, first.stage, first.tensor) == (3, "A2", "a-y")
        assert {(e.expert, e.weights_of) for e in first.exchanges} == {(3, 9), (9, 3)}
        assert sorted(first.experts) == [3, 9] and first.weight_blocks == (0, 1, 2, 3)

    def test_a_fault_above_does_not_hide_the_one_below(self, model, tmp_path):
        def both(data):
            flip("blk.1.ffn_down_exps.weight", 2, 200, 3, byte=0, bit=7)(data)
            swap_experts("blk.3.ffn_down_exps.weight", 3, 9)(data)

        first = run(model, model_b=copy(tmp_path / "copy.gguf", both)).first
        assert (first.layer, first.stage, first.expert, first.weight_row, first.weight_blocks) == (1, "A2", 2, 200, (3,))
        assert first.exchanges == ()

    @pytest.mark.parametrize(
        "name, at, layer, stage, tensor, blocks",
        [
            ("latent_down.weight", (None, 100, 7), 0, "D", "d-xl", (7,)),
            ("latent_up.weight", (None, 33, 2), 0, "U", "u", (2,)),
            ("mtp.blk.ffn_gate_exps.weight", (4, 60, 0), "mtp", "A1", "a-gate", (0,)),
        ],
    )
    def test_other_stages_and_the_drafter(self, model, tmp_path, name, at, layer, stage, tensor, blocks):
        first = run(model, model_b=copy(tmp_path / "copy.gguf", flip(name, *at, byte=1, bit=5))).first
        assert (first.layer, first.stage, first.tensor) == (layer, stage, tensor)
        assert (first.weight_row, first.weight_blocks) == (at[1], blocks)

    @pytest.mark.parametrize(
        "name, layer, stage",
        [("blk.2.attn_k.weight", 2, "attention"), ("blk.4.ffn_gate_inp.weight", 4, "route"), ("output.weight", "head", "head")],
    )
    def test_what_belongs_to_no_variant(self, model, tmp_path, name, layer, stage):
        def edit(data):
            data[ENTRIES[name].offset + 41] ^= 0x20

        found = run(model, model_b=copy(tmp_path / "copy.gguf", edit))
        assert (found.first.layer, found.first.stage) == (layer, stage)
        assert name in (*found.first.unequal, found.first.weights) and name in found.reasons[0]

    def test_weights_that_no_row_touches_prove_nothing(self, model, tmp_path):
        def edit(data):
            data[ENTRIES["tok_embd.weight"].offset + 2 * 384 * 258] ^= 0x20    # the padding token's embedding

        found = run(model, model_b=copy(tmp_path / "copy.gguf", edit), tokens=TOKENS[:16])
        assert (found.status, found.first) == ("INCONCLUSIVE", None)
        assert "tok_embd.weight" in found.reasons[0]


class TestPlantedKernels:
    @pytest.mark.parametrize(
        "layer, stage, fault, tensors",
        [
            (2, "D", "drop-block", {"d-xl"}),
            (4, "A1", "drop-block", {"a-gate"}),
            (1, "A2", "one-column-zero", {"a-y"}),
            (3, "U", "stale-token", {"u", "u-ylq"}),
            (0, "A1", "store-truncates", {"a-h"}),
        ],
    )
    def test_a_compiled_fault_in_one_layer(self, model, plant, layer, stage, fault, tensors):
        found = run(model, kernels_for={"b": plant(layer, stage, fault)})
        assert (found.first.side, found.first.layer, found.first.stage) == ("b", layer, stage)
        assert found.first.tensor in tensors

    def test_a_fault_within_every_bound_is_found_as_biased(self, model, plant):
        first = run(model, kernels_for={"b": plant(2, "A2", "round-toward-zero")}).first
        assert (first.layer, first.stage, first.tensor, first.broken) == (2, "A2", "a-y", 0)
        assert "rounding is directed" in first.biased and "bias_t = " in first.biased

    def test_the_module_without_a_fault_conforms(self, model, plant):
        assert run(model, kernels_for={"b": plant(2, "D", None)}, tokens=TOKENS[:16]).status == "PASS"

    def test_a_fault_of_side_a_is_named_as_such(self, model, plant):
        found = run(model, a="w11", kernels_for={"a": plant(1, "D", "drop-block")}, tokens=TOKENS[:24])
        assert (found.status, found.first.side, found.first.layer) == ("FAIL", "a", 1)

    def test_chunks_change_nothing(self, model, plant):
        kernels_for = {"b": plant(2, "A2", "drop-block")}
        whole, pieces = (run(model, kernels_for=kernels_for, chunk=chunk) for chunk in (512, 11))
        assert (pieces.first.layer, pieces.first.broken, pieces.first.position) == (2, whole.first.broken, whole.first.position)
        assert pieces.layers[3].difference["u"] == pytest.approx(whole.layers[3].difference["u"])


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    """A copy whose router of layer 2 nearly ties: five groups of three or four experts with the same rows but for 1e-6."""

    def edit(data):
        entry = ENTRIES["blk.2.ffn_gate_inp.weight"]
        rows = np.frombuffer(data, np.float32, entry.shape[0] * entry.shape[1], entry.offset).reshape(entry.shape)
        rows = rows[np.arange(16) % 5] + np.float32(1e-6) * rows[::-1]
        data[entry.offset : entry.offset + rows.nbytes] = rows.tobytes()

    return copy(tmp_path_factory.mktemp("tied") / "tied.gguf", edit)


def test_a_near_tied_router_flips_with_its_margin_and_nobody_is_blamed(tied):
    """Two variants that agree until a near tie, and then are far apart: neither is wrong."""
    found = run(tied, "mmvq", "w11")
    rung = found.layers[2]
    assert (found.status, found.first) == ("PASS", None)
    assert rung.flips.tokens > 0 and rung.flips.ulps < 500 and rung.flips.bounds < 1.0
    assert rung.jump > 2 * found.layers[3].jump
    assert 0.5 < rung.triangle["a_oracle"] / rung.triangle["b_oracle"] < 2
    assert "ulp" in bisect_text(found)


def test_the_text_fits_a_terminal_and_names_the_place(model, tmp_path):
    found = run(model, model_b=copy(tmp_path / "copy.gguf", swap_experts("blk.3.ffn_down_exps.weight", 3, 9)), tokens=TOKENS[:24])
    text = bisect_text(found)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "expert 3 computes with the weights of expert 9" in text and "A2 (b)" in text
    assert found.to_json()["schema"] == "edge0verify.bisect/1" and '"layer": 3' in found.dumps()
