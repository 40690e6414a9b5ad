"""A bias result handed in: what it makes of a tensor, and what the verdict keeps of it."""

import re
from dataclasses import replace

import numpy as np
import pytest

from edge0verify.compare import compare, judge
from edge0verify.compare.policy import read_policy
from edge0verify.numerics.bias import BiasTest
from edge0verify.numerics.spread import row_spread
from edge0verify.records.evidence import Engagement
from tests.compare.sides import at, blocks_side, edited, pair, rows_side
from tests.numerics.scenes import scene

SHAPE = {"n": 200, "m": 64, "k": 512}
RAN = Engagement(asked="w11", wanted=("D/w11/Q8_0",), launches={"D/w11/Q8_0": 1})


def with_test(variant, change=None):
    """A side with its own bias test, after a change of its rows that the bound does not see."""
    s = scene("D", variant, **SHAPE)
    y = s.y if change is None else change(s.y).astype(np.float32)
    test = BiasTest(y.shape[1], s.weights.columns // 32)
    test.add(y, row_spread(s.contract, s.weights, s.blocks))
    return replace(rows_side(variant, **SHAPE), rows=y, bias=test.result())


def only(a, b, policy=None):
    (found,) = compare(pair(a, b), **({"policy": policy} if policy else {}))
    return found


def toward_zero(y):
    return np.where(np.random.default_rng(0).random(y.shape) < 0.5, np.nextafter(y, np.float32(0)), y)


def every_seventh(y):
    return np.where(np.arange(len(y))[:, None] % 7 == 0, np.nextafter(y, np.float32(np.inf)), y)


class TestBiased:
    @pytest.mark.parametrize("change", [toward_zero, every_seventh])
    @pytest.mark.parametrize("side", ["a", "b"])
    def test_a_hidden_fault_fails_though_everything_conforms(self, change, side):
        sides = {"a": with_test("mmvq"), "b": with_test("w11")}
        sides[side] = with_test("w11", change)
        found = only(sides["a"], sides["b"])
        assert found.status == "FAIL" and found.conforming == {"a": found.n, "b": found.n}
        assert f"biased ({side} conforms and its error is systematic)" in found.reasons[0]
        assert not {"unexplained", "structured"} & set(found.causes)

    def test_the_verdict_keeps_all_five_statistics_and_the_suspects(self):
        bias = only(with_test("mmvq"), with_test("w11", every_seventh)).bias
        assert set(bias) == {"a", "b"}
        for side in bias.values():
            assert {"mean_t", "sign_t", "gain_t", "block_t", "column_t", "column_sign_t", "mean_z2", "suspects", "n"} <= set(side)
        assert abs(bias["b"]["mean_t"]) > 6 > abs(bias["a"]["mean_t"])

    def test_suspect_values_are_counted(self):
        def one_far(y):
            y = y.copy()
            y[3, 5] += np.float32(3e-5)
            return y

        assert only(with_test("mmvq"), with_test("w11", one_far)).bias["b"]["suspects"] == 1

    def test_the_limit_that_would_pass_passes(self):
        sides = with_test("mmvq"), with_test("w11", every_seventh)
        reason = only(*sides).reasons[0]
        rule = {name: float(value) for name, value in re.findall(r"(bias_\w+) = (\S+) would have passed", reason)}
        assert rule
        assert only(*sides, read_policy({"rule": [rule]}, source="p")).status == "PASS"
        tighter = {name: max(value * (1 - 1e-9), 1.0) for name, value in rule.items()}
        assert only(*sides, read_policy({"rule": [tighter]}, source="p")).status == "FAIL"

    def test_plain_values_do_as_well_as_the_object(self):
        a, b = with_test("mmvq"), with_test("w11", every_seventh)
        plain = [replace(side, bias=side.bias.as_dict()) for side in (a, b)]
        assert only(a, b) == only(*plain)

    def test_it_counts_in_the_totals_and_not_among_the_elements(self):
        found = only(with_test("mmvq"), with_test("w11", every_seventh))
        verdict = judge([found], a="mmvq", b="w11", engaged_a=RAN, engaged_b=RAN)
        assert verdict.status == "FAIL" and verdict.totals["biased"] == 1
        assert sum(found.causes.values()) == found.n and "biased" not in found.causes


class TestNotBiased:
    def test_two_orders_of_one_sum(self):
        found = only(with_test("mmvq"), with_test("w11"))
        assert found.status == "PASS" and found.bias["b"]["n"] > 10_000

    def test_too_few_values_give_no_verdict(self):
        a, b = rows_side("mmvq"), rows_side("w11")
        few = {**with_test("w11", every_seventh).bias.as_dict(), "tested": False}
        assert only(a, replace(b, bias=few)).status == "PASS"

    def test_a_side_that_breaks_its_bound_has_a_cause_already(self):
        b = with_test("w11", every_seventh)
        found = only(with_test("mmvq"), edited(b, rows=at((41, 7), 12.5)))
        assert found.status == "FAIL" and not any("biased" in reason for reason in found.reasons)

    def test_where_none_was_made_the_field_is_null(self):
        assert only(rows_side("mmvq"), rows_side("w11")).bias is None

    def test_scales_and_sums_have_none(self):
        side = replace(blocks_side("w11"), bias=with_test("w11").bias)
        found = compare(pair(side, side, kind="blocks", tensor="d-xlq"))
        assert [r.bias is None for r in found] == [False, True, True]
