"""F13: the block sum of q8_1 overflowed float16 and gave NaN, on one backend only."""

import numpy as np
import pytest

from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.quantise import quantise
from edge0verify.records.evidence import Side
from edge0verify.report.tables import verdict_text
from tests.field.common import evidence, verdict


def rows(size):
    x = np.random.default_rng(18).standard_normal((6, 96)).astype(np.float32)
    x[2, 32:64] = size + np.arange(32)
    return x


def side(x, s=None):
    stored = quantise("mmvq", x)
    return Side(blocks=Blocks(stored.codes, stored.d, stored.s if s is None else s(stored.s), "mmvq"), rows=x, store="mmvq")


def with_value(value):
    def change(s):
        s = s.copy()
        s[2, 1] = value
        return s

    return change


def item(a, b):
    return evidence(a, b, kind="blocks", tensor="d-xlq", layer=4)


def test_nan_on_one_side_fails_and_is_named_before_anything_else():
    x = rows(1900)
    found = verdict(item(side(x), side(x, with_value(np.nan))))
    assert found.status == "FAIL"
    assert "layer 4 d-xlq.s" in found.reasons[0] and "nonfinite" in found.reasons[0] and "row 2, block 1" in found.reasons[0]


def test_it_stands_before_every_figure_of_the_text():
    x = rows(1900)
    text = verdict_text(verdict(item(side(x), side(x, with_value(np.nan)))))
    assert "NOT FINITE: layer 4 d-xlq.s, 1 of 18" in text
    assert text.index("NOT FINITE") < text.index("rel L2")


def test_an_overflow_to_infinity_on_one_side_fails():
    x = rows(2100)
    assert np.isinf(side(x).blocks.s[2, 1])
    found = verdict(item(side(x, with_value(65504.0)), side(x)))
    assert found.status == "FAIL" and "nonfinite" in found.reasons[0]


def test_infinity_here_and_nan_there_is_not_the_same():
    x = rows(2100)
    found = verdict(item(side(x), side(x, with_value(np.nan))))
    assert found.status == "FAIL"


def test_the_same_overflow_on_both_sides_proves_nothing():
    x = rows(2100)
    found = verdict(item(side(x), side(x)))
    assert found.status == "INCONCLUSIVE" and "nothing is proven" in found.reasons[0]


def test_a_sum_that_one_side_alone_stores_is_looked_at_too():
    x = rows(1900)
    without = Side(blocks=quantise("mmq", x), rows=x, store="mmq")
    assert verdict(item(side(x), without)).status == "PASS"
    for value in (np.nan, np.inf, 12.0):
        found = verdict(item(side(x, with_value(value)), without))
        assert found.status == "FAIL" and "d-xlq.s" in found.reasons[0], value


@pytest.mark.parametrize("size", [0, 100, 1900])
def test_sums_within_float16_pass(size):
    x = rows(size)
    assert verdict(item(side(x), side(x))).status == "PASS"
