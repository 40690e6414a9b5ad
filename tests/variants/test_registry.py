"""Names, aliases, fallbacks and counters."""

from dataclasses import replace

import numpy as np
import pytest

from edge0verify.records.errors import InputError
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.registry import STAGES, VARIANTS, find, resolve
from tests.variants.scenes import Shape, scene

WIDE = Shape(3, 32, 256)


class TestFind:
    def test_each_stage_has_the_four_variants(self):
        for stage in STAGES:
            assert [v.name for v in VARIANTS if v.stage == stage] == ["ref", "mmvq", "mmq", "w11"]

    @pytest.mark.parametrize(("stage", "alias", "name"), [
        ("D", "native", "mmvq"), ("U", "native", "mmvq"), ("A1", "iq_mmvq", "mmvq"), ("A2", "iq_mmvq", "mmvq"),
        ("U", "latent_u_grouped", "mmvq"), ("A1", "fused_q3k", "w11"), ("A2", "fused_q3k", "w11"),
    ])
    def test_old_names_are_aliases(self, stage, alias, name):
        assert find(stage, alias) is find(stage, name)

    def test_a_misspelt_name_is_refused_with_the_nearest(self):
        with pytest.raises(InputError, match=r"mmvk .*did you mean mmvq"):
            find("D", "mmvk")

    def test_an_alias_of_another_stage_is_refused(self):
        with pytest.raises(InputError):
            find("D", "fused_q3k")

    def test_an_unknown_stage_is_refused(self):
        with pytest.raises(InputError, match="stage B"):
            find("B", "mmvq")

    def test_each_variant_names_its_contract_and_symbol(self):
        v = find("A1", "w11")
        assert (v.contract, v.symbol, v.entry("Q3_K"), v.key("Q3_K")) == ("A1/w11", "e0_a1_w11", "e0_a1_w11_q3_k", "A1/w11/Q3_K")
        assert v.rules.store == "mmvq"


class TestResolve:
    def test_the_asked_variant_runs_where_it_reads_the_format(self):
        choice = resolve("D", "w11", "Q8_0")
        assert choice.runs is choice.asked is find("D", "w11") and not choice.fell_back

    @pytest.mark.parametrize("name", ["w11", "mmq"])
    @pytest.mark.parametrize("stage", ["D", "U"])
    def test_q4_0_falls_back_to_mmvq_and_says_so(self, stage, name):
        choice = resolve(stage, name, "Q4_0")
        assert choice.asked.name == name and choice.runs.name == "mmvq" and choice.fell_back

    def test_a_format_that_not_even_mmvq_reads_is_refused(self):
        with pytest.raises(InputError, match="expected weights in Q3_K, found Q8_0"):
            resolve("A1", "w11", "Q8_0")


class TestLaunches:
    def test_the_fallback_moves_the_counter_of_what_ran(self):
        kernels, s = Kernels(threads=1), scene("D", "mmvq", "Q4_0", WIDE)
        kernels.reset_launches()
        kernels.d(resolve("D", "w11", "Q4_0").runs, kernels.pack("Q4_0", s.raw), s.x)
        assert kernels.launches() == {"D/mmvq/Q4_0": 1}

    def test_an_entry_that_calls_itself_w11_and_launches_mmvq_is_counted_as_mmvq(self):
        liar = type("Liar", (type(find("D", "mmvq")),), {"symbol": property(lambda self: "e0_d_mmvq")})
        w11 = find("D", "w11")
        fake = liar(stage=w11.stage, name=w11.name, aliases=w11.aliases, formats=w11.formats)
        kernels, s = Kernels(threads=1), scene("D", "w11", "Q8_0", WIDE)
        kernels.reset_launches()
        kernels.d(fake, kernels.pack("Q8_0", s.raw), s.x)
        assert fake.key("Q8_0") == "D/w11/Q8_0" and kernels.launches() == {"D/mmvq/Q8_0": 1}

    def test_a_call_that_is_refused_is_not_counted(self):
        kernels, s = Kernels(threads=1), scene("D", "mmvq", "Q8_0", WIDE)
        kernels.reset_launches()
        with pytest.raises(ValueError, match=r"x: expected shape \[3, 256\], found \[3, 224\]"):
            kernels.d("mmvq", kernels.pack("Q8_0", s.raw), np.ascontiguousarray(s.x[:, :224]))
        assert kernels.launches() == {}

    def test_a_variant_of_another_stage_is_refused(self):
        kernels, s = Kernels(threads=1), scene("D", "mmvq", "Q8_0", WIDE)
        with pytest.raises(ValueError, match="stage D: found a variant of stage U"):
            kernels.d(find("U", "mmvq"), kernels.pack("Q8_0", s.raw), s.x)

    def test_variants_are_values(self):
        assert replace(find("D", "mmq")) == find("D", "mmq")
