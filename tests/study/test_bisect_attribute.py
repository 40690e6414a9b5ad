"""Swapping in and out: what moves the top 8, and what does not move it at all."""

from __future__ import annotations

import pytest

from edge0verify.model import load_model
from edge0verify.report.bisect_text import attribute_text
from edge0verify.study.attribute import attribute, units
from tests.study.copies import copy, flip, swap_experts

MMVQ = {"D": "mmvq", "A": "mmvq", "U": "mmvq"}
STILL = {"max_move": 0.0, "mean_kl": 0.0}


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def mmq(model):
    return attribute(model, MMVQ, {**MMVQ, "A": "mmq"}, parts=("A",), prompts=("list",))


class TestVariants:
    def test_each_layer_moves_something_and_all_of_them_make_the_whole(self, mmq):
        assert [(u["layer"], u["part"]) for u in mmq["units"]] == [(layer, "A") for layer in range(6)]
        assert all(u["in"]["mean_kl"] > 0 and u["out"]["mean_kl"] > 0 for u in mmq["units"])
        assert mmq["stages"][0]["in"] == mmq["whole"] == mmq["stages"][0]["out"]

    def test_a_layer_with_one_part_is_that_part(self, mmq):
        assert [e["in"] for e in mmq["layers"]] == [u["in"] for u in mmq["units"]]

    def test_equal_variants_move_nothing(self, model):
        found = attribute(model, MMVQ, MMVQ, parts=("D",), prompts=("list",))
        assert found["whole"] == STILL
        assert all(u["in"] == STILL and u["out"] == STILL for u in found["units"])

    def test_the_text_has_a_row_a_layer(self, mmq):
        lines = attribute_text(mmq).splitlines()
        assert [line.split()[0] for line in lines[3:]] == ["0", "1", "2", "3", "4", "5", "all"]


class TestWeights:
    def test_only_the_damaged_layer_moves(self, model, tmp_path):
        other = copy(tmp_path / "copy.gguf", swap_experts("blk.3.ffn_down_exps.weight", 3, 9))
        found = attribute(model, MMVQ, MMVQ, parts=("A",), other=other, prompts=("list",))
        moved = {u["layer"]: u for u in found["units"]}
        assert moved[3]["in"] == moved[3]["out"] == found["whole"] and found["whole"]["mean_kl"] > 1e-3
        assert all(moved[layer]["in"] == STILL for layer in (0, 1, 2, 4, 5))

    def test_what_is_no_stage_is_a_unit_of_its_own_where_it_differs(self, model, tmp_path):
        other = copy(tmp_path / "copy.gguf", flip("blk.2.attn_v.weight", None, 5, 3, byte=1, bit=5))
        assert units(model, ("A",), other)[-1] == (2, "rest") and (1, "rest") not in units(model, ("A",), other)
        found = attribute(model, MMVQ, MMVQ, parts=(), other=other, prompts=("list",))
        assert [(u["layer"], u["part"]) for u in found["units"]] == [(2, "rest")]
        assert found["units"][0]["in"] == found["whole"] != STILL
