"""Float32 rows against their bound."""

import numpy as np
import pytest

from edge0verify.compare import compare
from edge0verify.numerics.blocks import POISON_F32_BITS
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Side
from tests.compare.sides import at, edited, pair, rows_side, stage_oracle

POISON = np.uint32(POISON_F32_BITS).view(np.float32)


def only(evidence, **more):
    (result,) = compare(evidence, **more)
    assert sum(result.causes.values()) == result.n
    return result


class TestLegitimate:
    def test_a_variant_against_itself_is_equal_everywhere(self):
        found = only(pair(rows_side("mmvq"), rows_side("mmvq")))
        assert found.causes == {"equal": found.n}
        assert (found.status, found.equal_pct, found.rel_l2, found.max_ulp) == ("PASS", 100.0, 0.0, 0)

    @pytest.mark.parametrize("b", ["w11", "ref"])
    def test_another_order_on_the_same_operands_is_rounding(self, b):
        found = only(pair(rows_side("mmvq"), rows_side(b)))
        assert set(found.causes) == {"equal", "rounding"}
        assert found.status == "PASS"
        assert found.conforming == {"a": found.n, "b": found.n}

    def test_other_operands_beyond_both_bounds_are_operands(self):
        found = only(pair(rows_side("mmq"), rows_side("w11")))
        assert found.causes["operands"] > 0.9 * found.n
        assert set(found.causes) <= {"equal", "operands", "rounding"}
        assert found.status == "PASS"

    def test_operands_that_are_apart_by_less_than_both_bounds_are_rounding(self):
        a = Side(rows=np.ones((1, 1), np.float32), t=np.ones((1, 1)), bound=np.full((1, 1), 0.5))
        b = Side(rows=np.full((1, 1), 1.5, np.float32), t=np.full((1, 1), 2.0), bound=np.full((1, 1), 0.5))
        assert only(pair(a, b)).causes == {"rounding": 1}
        beyond = Side(rows=np.full((1, 1), 1.75, np.float32), t=np.full((1, 1), 2.1), bound=np.full((1, 1), 0.5))
        assert only(pair(a, beyond)).causes == {"operands": 1}

    def test_zeros_of_both_signs_differ_in_a_bit_and_both_conform(self):
        t, bound = np.zeros((1, 2)), np.full((1, 2), 1e-30)
        a = Side(rows=np.array([[0.0, 0.0]], np.float32), t=t, bound=bound)
        b = Side(rows=np.array([[-0.0, 0.0]], np.float32), t=t, bound=bound)
        found = only(pair(a, b))
        assert found.causes == {"equal": 1, "rounding": 1}
        assert (found.max_abs, found.max_ulp, found.status) == (0.0, 0, "PASS")


class TestBorder:
    def test_a_value_on_its_bound_conforms_and_the_next_float_does_not(self):
        t, bound = np.ones((1, 2)), np.full((1, 2), 2.0**-20)
        edge = np.float32(1 + 2.0**-20)
        a = Side(rows=np.ones((1, 2), np.float32), t=t, bound=bound)
        b = Side(rows=np.array([[edge, np.nextafter(edge, np.float32(2))]]), t=t, bound=bound)
        found = only(pair(a, b))
        assert found.causes == {"rounding": 1, "unexplained": 1}
        assert found.conforming == {"a": 2, "b": 1}
        assert found.status == "FAIL"
        assert found.worst[0].index == (0, 1)
        assert found.worst[0].bound == (1 - 2.0**-20, 1 + 2.0**-20)


class TestFaults:
    @pytest.mark.parametrize("side", ["a", "b"])
    def test_a_wrong_value_fails_from_either_side(self, side):
        sides = {"a": rows_side("mmvq"), "b": rows_side("w11")}
        sides[side] = edited(sides[side], rows=at((41, 7), 12.5))
        found = only(pair(sides["a"], sides["b"]))
        assert found.causes["unexplained"] == 1
        assert found.conforming[side] == found.n - 1
        assert found.status == "FAIL"
        assert found.worst[0].index == (41, 7)
        assert f"{side} does not conform" in found.reasons[0]
        assert "row 41, column 7" in found.reasons[0]

    def test_the_same_wrong_value_on_both_sides_is_not_equal(self):
        wrong = at((41, 7), 12.5)
        found = only(pair(edited(rows_side("mmvq"), rows=wrong), edited(rows_side("w11"), rows=wrong)))
        assert found.causes["unexplained"] == 1
        assert "neither a nor b conforms" in found.reasons[0]

    def test_a_kernel_that_accumulates_in_bf16_fails_nearly_everywhere(self):
        def to_bf16(rows):
            bits = rows.view(np.uint32)
            rows[:] = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)

        found = only(pair(rows_side("mmvq"), edited(rows_side("w11"), rows=to_bf16)))
        assert found.causes["unexplained"] > 0.95 * found.n
        assert found.status == "FAIL"
        assert found.corr > 0.9999

    def test_what_was_never_written_is_named_with_its_columns(self):
        def skip(rows):
            rows[:, 48:] = POISON

        found = only(pair(rows_side("mmvq"), edited(rows_side("w11"), rows=skip)))
        assert found.causes["unwritten"] == 97 * 16
        assert found.poison == {"a": 0, "b": 97 * 16}
        assert "unwritten" in found.reasons[0] and "columns 48..63" in found.reasons[0]
        assert found.status == "FAIL"

    def test_poison_on_both_sides_is_a_fault_of_both(self):
        spot = at((3, 4), POISON)
        found = only(pair(edited(rows_side("mmvq"), rows=spot), edited(rows_side("w11"), rows=spot)))
        assert found.causes["unwritten"] == 1
        assert found.status == "FAIL"

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_nonfinite_on_one_side_fails(self, value):
        found = only(pair(rows_side("mmvq"), edited(rows_side("w11"), rows=at((3, 4), value))))
        assert found.causes["nonfinite"] == 1
        assert found.status == "FAIL"

    def test_nan_in_the_same_place_on_both_sides_proves_nothing(self):
        spot = at((3, 4), np.nan)
        found = only(pair(edited(rows_side("mmvq"), rows=spot), edited(rows_side("w11"), rows=spot)))
        assert found.causes["nonfinite"] == 1
        assert found.status == "INCONCLUSIVE"

    def test_nan_in_two_places_fails(self):
        found = only(pair(edited(rows_side("mmvq"), rows=at((3, 4), np.nan)), edited(rows_side("w11"), rows=at((3, 5), np.nan))))
        assert found.causes["nonfinite"] == 2
        assert found.status == "FAIL"

    def test_metrics_stay_numbers_beside_a_nan(self):
        found = only(pair(rows_side("mmvq"), edited(rows_side("w11"), rows=at((3, 4), np.nan))))
        assert 0 < found.rel_l2 < 1e-5 and found.max_abs < 1e-3 and found.corr > 0.9999


class TestWithoutABound:
    def test_equal_rows_pass(self):
        side = Side(rows=rows_side("mmvq").rows)
        found = only(pair(side, side))
        assert (found.causes, found.status) == ({"equal": found.n}, "PASS")
        assert found.conforming == {"a": None, "b": None}

    def test_one_bit_of_difference_is_inconclusive(self):
        rows = rows_side("mmvq").rows
        found = only(pair(Side(rows=rows), edited(Side(rows=rows), rows=at((0, 0), 1.0))))
        assert found.causes["loose"] == 1
        assert found.status == "INCONCLUSIVE"
        assert "no bound" in found.reasons[0]

    def test_the_side_that_has_a_bound_is_still_held_to_it(self):
        found = only(pair(edited(rows_side("mmvq"), rows=at((0, 0), 99.0)), Side(rows=rows_side("w11").rows)))
        assert found.causes["unexplained"] == 1
        assert found.status == "FAIL"

    def test_a_chained_bound_makes_differences_loose(self):
        a, b = rows_side("mmvq"), rows_side("w11")
        found = only(pair(a, Side(rows=b.rows, t=b.t, bound=b.bound, chained=True)))
        assert set(found.causes) == {"equal", "loose"}
        assert found.status == "INCONCLUSIVE"


class TestShape:
    def test_a_missing_tensor_is_inconclusive(self):
        found = only(pair(rows_side("mmvq"), Side()))
        assert (found.n, found.status) == (0, "INCONCLUSIVE")
        assert found.reasons == ("layer 3 d-xl: missing on side b",)

    def test_an_empty_tensor_is_inconclusive(self):
        empty = Side(rows=np.empty((0, 64), np.float32))
        found = only(pair(empty, empty))
        assert (found.n, found.status) == (0, "INCONCLUSIVE")

    def test_unlike_shapes_are_an_input_error(self):
        a = rows_side("mmvq")
        with pytest.raises(InputError, match=r"layer 3 d-xl side b: expected rows of shape \[97, 64\], found \[96, 64\]"):
            compare(pair(a, Side(rows=a.rows[:-1])))

    def test_another_dtype_is_an_input_error(self):
        a = rows_side("mmvq")
        with pytest.raises(InputError, match="side b: expected rows as float32, found float64"):
            compare(pair(a, Side(rows=a.rows.astype(np.float64))))

    def test_a_bound_without_its_oracle_is_an_input_error(self):
        a = rows_side("mmvq")
        with pytest.raises(InputError, match="expected the own oracle t"):
            compare(pair(a, Side(rows=a.rows, bound=a.bound)))

    def test_an_unknown_kind_is_an_input_error(self):
        with pytest.raises(InputError, match="expected one of rows, blocks, ids, found 'pixels'"):
            compare(pair(rows_side("mmvq"), rows_side("w11"), kind="pixels"))


class TestReport:
    def test_the_triangle_sets_the_pair_beside_the_oracle(self):
        found = only(pair(rows_side("mmq"), rows_side("w11"), oracle=stage_oracle()))
        t = found.triangle
        assert 1e-3 < t["a_oracle"] < 0.1 and 1e-3 < t["b_oracle"] < 0.1
        assert t["a_b"] == pytest.approx(t["oracles"], rel=1e-2)

    def test_without_an_oracle_there_is_no_triangle(self):
        assert only(pair(rows_side("mmq"), rows_side("w11"))).triangle is None

    def test_keys_of_the_worst_rows_are_shown_by_name(self):
        keys = np.stack([np.zeros(97), np.arange(97) + 1000, np.ones(97)], axis=1).astype(np.int32)
        names = ("pass", "position", "accepted")
        b = edited(rows_side("w11"), rows=at((41, 7), 12.5))
        found = only(pair(rows_side("mmvq"), b, keys=keys, key_names=names))
        assert found.worst[0].key == (0, 1041, 1)
        assert "position 1041" in found.reasons[0]

    def test_the_number_of_threads_changes_nothing(self, monkeypatch):
        monkeypatch.setattr("edge0verify.compare.tensors.CHUNK", 640)
        evidence = pair(rows_side("mmq"), rows_side("w11"), oracle=stage_oracle())
        assert compare(evidence, threads=1) == compare(evidence, threads=3)

    def test_chunks_change_counts_not_at_all(self, monkeypatch):
        evidence = pair(rows_side("mmvq"), edited(rows_side("w11"), rows=at((41, 7), 12.5)))
        whole = only(evidence)
        monkeypatch.setattr("edge0verify.compare.tensors.CHUNK", 64)
        cut = only(evidence)
        assert (whole.causes, whole.equal, whole.max_ulp, whole.worst) == (cut.causes, cut.equal, cut.max_ulp, cut.worst)
        assert whole.corr == pytest.approx(cut.corr, abs=1e-12)

    def test_a_constant_tensor_has_no_correlation(self):
        side = Side(rows=np.full((3, 3), 2.0, np.float32))
        assert only(pair(side, side)).corr is None
