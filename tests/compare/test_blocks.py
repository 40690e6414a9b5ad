"""Stored blocks: codes, scales and block sums."""

import numpy as np
import pytest

from edge0verify.compare import Policy, compare
from edge0verify.numerics.blocks import POISON_F16_BITS, Blocks
from edge0verify.numerics.quantise import quantise
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Side
from tests.compare.sides import (
    at,
    blocks_of_rows,
    blocks_pair,
    blocks_side,
    copied,
    edited,
    operand_side,
    pair,
    rows_side,
    stage_oracle,
)

KNOWN = pytest.mark.parametrize("known_rows", [True, False], ids=["rows dumped", "blocks alone"])


def entries(evidence, **more):
    found = {result.tensor: result for result in compare(evidence, **more)}
    for result in found.values():
        assert sum(result.causes.values()) == result.n
    return found


class TestLegitimate:
    @KNOWN
    def test_entries_are_codes_scales_and_sums(self, known_rows):
        side = blocks_side("mmvq", known_rows=known_rows)
        found = entries(blocks_pair(side, side))
        assert list(found) == ["d-xlq", "d-xlq.d", "d-xlq.s"]
        assert [r.n for r in found.values()] == [97 * 64, 97 * 2, 97 * 2]
        assert all(r.causes == {"equal": r.n} and r.status == "PASS" for r in found.values())

    @KNOWN
    def test_another_order_on_the_same_operands_is_a_tie(self, known_rows):
        shape = {"n": 700, "m": 64, "k": 1056}
        a, b = (blocks_side(v, known_rows=known_rows, **shape) for v in ("mmvq", "w11"))
        a = Side(rows=a.rows, blocks=a.blocks, t=b.t, bound=a.bound, store=a.store)
        found = entries(blocks_pair(a, b))
        assert all(set(r.causes) <= {"equal", "tie"} and r.status == "PASS" for r in found.values())
        assert sum(r.causes.get("tie", 0) for r in found.values()) > 0

    @KNOWN
    def test_other_operands_are_operands_and_a_few_ties(self, known_rows):
        a, b = (blocks_side(v, known_rows=known_rows) for v in ("mmq", "w11"))
        found = entries(blocks_pair(a, b))
        codes = found["d-xlq"]
        assert set(codes.causes) <= {"equal", "operands", "tie"}
        assert codes.causes["operands"] > 10 and codes.causes["operands"] > 5 * codes.causes.get("tie", 0)
        assert found["d-xlq.d"].causes["operands"] > 0
        assert {r.status for r in found.values()} == {"PASS"}
        assert codes.scale_equal_pct == found["d-xlq.d"].equal_pct < 100
        assert found["d-xlq.d"].scale_equal_pct is None

    def test_codes_that_differ_by_operands_may_be_off_by_more_than_one(self):
        t_a, t_b = np.zeros((1, 32)), np.zeros((1, 32))
        t_a[0, :2], t_b[0, :2] = (127.0, 3.0), (127.0, 5.0)
        bound = np.full((1, 32), 1e-5)
        sides = [blocks_of_rows(t.astype(np.float32), t, bound) for t in (t_a, t_b)]
        codes = entries(blocks_pair(*sides))["d-xlq"]
        assert codes.causes == {"equal": 31, "operands": 1}
        assert (codes.max_code_diff, codes.code_diffs) == (2, {"2": 1})

    def test_a_code_beside_its_border_is_a_tie(self):
        """F07: one form of a quantiser multiplies by the reciprocal where the other divides."""
        t, bound = np.zeros((1, 32)), np.full((1, 32), 1e-4)
        t[0, :2] = 127.0, 2.5
        near = t.astype(np.float32)
        low = near.copy()
        low[0, 1] = np.nextafter(np.float32(2.5), np.float32(0))
        codes = entries(blocks_pair(blocks_of_rows(near, t, bound), blocks_of_rows(low, t, bound)))["d-xlq"]
        assert codes.causes == {"equal": 31, "tie": 1}
        assert codes.code_diffs == {"1": 1}


class TestFaults:
    @KNOWN
    @pytest.mark.parametrize("by", [1, -1])
    def test_one_code_off_by_one_is_caught(self, known_rows, by):
        def move(codes):
            codes[41, 37] += by

        b = edited(blocks_side("w11", known_rows=known_rows), codes=move)
        found = entries(blocks_pair(blocks_side("mmvq", known_rows=known_rows), b))
        assert found["d-xlq"].causes["unexplained"] == 1
        assert found["d-xlq"].worst[0].index == (41, 37)
        assert "column 37 (block 1)" in found["d-xlq"].reasons[0]
        assert found["d-xlq"].status == "FAIL"
        assert found["d-xlq.d"].status == "PASS"

    @KNOWN
    def test_the_scale_of_the_next_block_is_caught(self, known_rows):
        def shift(d):
            d[:, 0] = d[:, 1]

        b = edited(blocks_side("w11", known_rows=known_rows), d=shift)
        found = entries(blocks_pair(blocks_side("mmvq", known_rows=known_rows), b))["d-xlq.d"]
        assert found.causes["structured"] > 90
        assert "block 0" in found.reasons[0]
        assert found.status == "FAIL"

    @KNOWN
    def test_the_same_wrong_scale_on_both_sides_is_caught(self, known_rows):
        def shift(d):
            d[5, 0] = d[5, 1] * 2

        a, b = (edited(blocks_side("mmvq", known_rows=known_rows), d=shift) for _ in "ab")
        found = entries(blocks_pair(a, b))["d-xlq.d"]
        assert (found.equal, found.causes["unexplained"], found.status) == (found.n, 1, "FAIL")

    def test_a_sum_one_ulp_off_is_caught_where_the_rows_are_known(self):
        def bump(s):
            s[3, 1] = np.nextafter(s[3, 1], np.float16(np.inf))

        found = entries(blocks_pair(blocks_side("mmvq"), edited(blocks_side("mmvq"), s=bump)))["d-xlq.s"]
        assert (found.causes["unexplained"], found.status) == (1, "FAIL")

    def test_a_sum_far_off_is_caught_without_the_rows(self):
        side = blocks_side("mmvq", known_rows=False)
        found = entries(blocks_pair(side, edited(side, s=at((3, 1), 100.0))))["d-xlq.s"]
        assert (found.causes["unexplained"], found.status) == (1, "FAIL")

    def test_stored_blocks_that_are_not_of_the_rows_beside_them_fail(self):
        """Conforming by enclosure is not enough: the store quantiser of the rows is exact."""
        side = blocks_side("mmvq")
        d = np.nextafter(side.blocks.d[:1], np.float16(np.inf))
        wide = Side(
            rows=side.rows[:1],
            blocks=Blocks(side.blocks.codes[:1], d, side.blocks.s[:1], "mmvq"),
            t=side.t[:1],
            bound=side.bound[:1] * 1e4,
            store="mmvq",
        )
        assert entries(blocks_pair(wide, wide))["d-xlq.d"].status == "FAIL"

    def test_poisoned_codes_and_scales_are_unwritten(self):
        poison = np.uint16(POISON_F16_BITS).view(np.float16)
        b = edited(blocks_side("w11"), codes=at((slice(None), slice(32, None)), -128), d=at((slice(None), 1), poison))
        found = entries(blocks_pair(blocks_side("mmvq"), b))
        assert found["d-xlq"].causes["unwritten"] == 97 * 32
        assert found["d-xlq.d"].causes["unwritten"] == 97
        assert found["d-xlq"].poison == {"a": 0, "b": 97 * 32}
        assert "columns 32..63 (block 1)" in found["d-xlq"].reasons[0]

    def test_a_scale_that_is_not_a_number_takes_its_codes_along(self):
        found = entries(blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), d=at((3, 1), np.nan))))
        assert found["d-xlq"].causes["nonfinite"] == 32
        assert found["d-xlq.d"].causes["nonfinite"] == 1
        assert found["d-xlq"].status == found["d-xlq.d"].status == "FAIL"

    def test_a_block_sum_that_overflowed_on_one_side_is_named(self):
        """F13: the sum of 32 values near 2,100 is beyond float16."""
        y = np.full((1, 32), 2100.0, np.float32)
        a = blocks_of_rows(y, y.astype(np.float64), np.full((1, 32), 0.1))
        assert np.isinf(a.blocks.s[0, 0])
        clamped = edited(a, s=at((0, 0), 65504.0))
        found = entries(blocks_pair(clamped, a))["d-xlq.s"]
        assert found.causes == {"nonfinite": 1}
        assert found.status == "FAIL"

    def test_the_same_overflow_on_both_sides_proves_nothing(self):
        y = np.full((1, 32), 2100.0, np.float32)
        a = blocks_of_rows(y, y.astype(np.float64), np.full((1, 32), 0.1))
        assert entries(blocks_pair(a, a))["d-xlq.s"].status == "INCONCLUSIVE"

    def test_a_scale_of_undeclared_width_never_conforms(self):
        side = blocks_side("mmvq", known_rows=False)
        wide = Blocks(side.blocks.codes, side.blocks.d.astype(np.float32), side.blocks.s, "mmvq")
        b = Side(blocks=wide, t=side.t, bound=side.bound, store="mmvq")
        found = entries(blocks_pair(side, b))["d-xlq.d"]
        assert found.causes == {"unexplained": found.n}


class TestLoose:
    def make(self, scale, code=0):
        t, bound = np.zeros((1, 32)), np.full((1, 32), scale)
        t[0, 0] = 127.0
        side = blocks_of_rows(t.astype(np.float32), t, bound, known_rows=False)
        return side, edited(side, codes=at((0, 5), code))

    def test_more_than_two_conforming_codes_are_loose(self):
        a, b = self.make(1.2, 1)
        found = entries(blocks_pair(a, b))["d-xlq"]
        assert found.causes == {"equal": 31, "loose": 1}
        assert found.status == "INCONCLUSIVE"
        assert "share 0.0312" in found.reasons[0]

    def test_two_conforming_codes_are_a_tie(self):
        t, bound = np.zeros((1, 32)), np.full((1, 32), 1e-3)
        t[0, :2] = 127.0, 2.5
        side = blocks_of_rows(t.astype(np.float32), t, bound, known_rows=False)
        assert entries(blocks_pair(side, edited(side, codes=at((0, 1), 2))))["d-xlq"].causes == {"equal": 31, "tie": 1}

    def test_a_share_within_policy_passes(self):
        a, b = self.make(1.2, 1)
        assert entries(blocks_pair(a, b), policy=Policy(loose_share=1 / 32))["d-xlq"].status == "PASS"
        assert entries(blocks_pair(a, b), policy=Policy(loose_share=0.99 / 32))["d-xlq"].status == "INCONCLUSIVE"

    def test_the_same_deviation_on_both_sides_is_not_equal_where_the_bound_cannot_tell(self):
        _, b = self.make(1.2, 1)
        assert entries(blocks_pair(b, b))["d-xlq"].causes == {"equal": 31, "loose": 1}

    def test_a_zero_block_that_is_zero_on_both_sides_is_equal(self):
        y, t = np.zeros((1, 32), np.float32), np.zeros((1, 32))
        side = blocks_of_rows(y, t, np.full((1, 32), 1e-40), known_rows=False)
        assert {r.status for r in entries(blocks_pair(side, side)).values()} == {"PASS"}

    def test_rows_within_their_bound_prove_what_the_enclosure_cannot_tell(self):
        t, bound = np.zeros((1, 32)), np.full((1, 32), 1.2)
        t[0, 0] = 127.0
        y = t.astype(np.float32)
        moved = y.copy()
        moved[0, 5] = 0.9
        known = [blocks_of_rows(rows, t, bound) for rows in (y, moved)]
        assert entries(blocks_pair(*known))["d-xlq"].causes == {"equal": 31, "tie": 1}


class TestDeclaredOperands:
    def test_two_forms_of_the_quantiser_tie_in_codes_and_differ_by_form_in_scales(self):
        found = entries(pair(operand_side("mmvq"), operand_side("mmq"), tensor="d-hq", kind="blocks"))
        assert list(found) == ["d-hq", "d-hq.d"]
        assert set(found["d-hq"].causes) <= {"equal", "tie"}
        assert found["d-hq.d"].causes["operands"] > 0.9 * found["d-hq.d"].n
        assert {r.status for r in found.values()} == {"PASS"}

    @pytest.mark.parametrize("side", ["a", "b"])
    def test_a_code_that_the_declared_quantiser_would_not_write_fails(self, side):
        def move(codes):
            codes[9, 99] += 1

        sides = {"a": operand_side("mmvq"), "b": operand_side("w11")}
        sides[side] = edited(sides[side], codes=move)
        found = entries(pair(sides["a"], sides["b"], tensor="d-hq", kind="blocks"))["d-hq"]
        assert found.causes == {"equal": found.n - 1, "unexplained": 1}
        assert found.status == "FAIL"

    def test_known_rows_alone_declare_the_same(self):
        x = rows_side("mmvq").rows
        side = Side(blocks=copied(quantise("mmvq", x)), rows=x, store="mmvq")
        other = Side(blocks=copied(quantise("mmq", x)), rows=x, store="mmq")
        assert {r.status for r in entries(blocks_pair(side, other)).values()} == {"PASS"}
        wrong = Side(blocks=copied(quantise("ggml-x86", x)), rows=x, store="mmvq")
        assert "FAIL" in {r.status for r in entries(blocks_pair(side, wrong)).values()}


class TestShape:
    def test_columns_that_are_no_blocks_are_an_input_error(self):
        bad = Side(blocks=Blocks(np.zeros((2, 33), np.int8), np.zeros((2, 1), np.float16), None, "mmvq"))
        with pytest.raises(InputError, match="a multiple of 32"):
            compare(blocks_pair(bad, bad))

    def test_scales_that_do_not_fit_are_an_input_error(self):
        good = Side(blocks=Blocks(np.zeros((2, 64), np.int8), np.zeros((2, 2), np.float16), None, "mmvq"))
        bad = Side(blocks=Blocks(np.zeros((2, 64), np.int8), np.zeros((2, 3), np.float16), None, "mmvq"))
        with pytest.raises(InputError, match=r"side b: expected scales of shape \[2, 2\], found \[2, 3\]"):
            compare(blocks_pair(good, bad))

    def test_no_rows_are_inconclusive(self):
        empty = Side(blocks=Blocks(np.zeros((0, 64), np.int8), np.zeros((0, 2), np.float16), None, "mmvq"))
        (found,) = compare(blocks_pair(empty, empty))
        assert found.status == "INCONCLUSIVE"

    def test_the_triangle_is_of_values_not_of_codes(self):
        codes = entries(blocks_pair(blocks_side("mmvq"), blocks_side("w11"), oracle=stage_oracle()))["d-xlq"]
        assert 1e-3 < codes.triangle["a_oracle"] < 0.05


class TestSumsOfOneSideAlone:
    """mmq stores no block sums; those of the other side are judged all the same."""

    def sides(self, edit=None, sums=None):
        x = np.random.default_rng(2).standard_normal((8, 96)).astype(np.float32)
        if edit is not None:
            edit(x)
        a, b = (Side(blocks=quantise(name, x), exact=quantise(name, x), store=name) for name in ("mmq", "mmvq"))
        if sums is not None:
            sums(b.blocks.s)
        return pair(a, b, tensor="d-hq", kind="blocks")

    def test_a_nan_that_both_read_proves_nothing(self):
        def edit(x):
            x[3, 40] = np.nan

        found = {r.tensor: r for r in compare(self.sides(edit))}
        assert {t: r.status for t, r in found.items()} == dict.fromkeys(("d-hq", "d-hq.d", "d-hq.s"), "INCONCLUSIVE")
        assert found["d-hq.s"].causes["nonfinite"] == 1

    def test_an_overflow_of_the_sum_alone_is_a_fault(self):
        def sums(s):
            s[3, 1] = np.inf

        found = {r.tensor: r for r in compare(self.sides(sums=sums))}
        assert found["d-hq.s"].status == "FAIL" and found["d-hq"].status == "PASS"

    def test_nothing_is_said_where_they_are_right(self):
        assert [r.tensor for r in compare(self.sides())] == ["d-hq", "d-hq.d"]
