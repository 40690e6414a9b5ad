"""Rows in another order, exact and near; what the order looks like."""

import numpy as np
import pytest

from edge0verify.compare import compare
from edge0verify.compare.causes.permuted import Order, describe, statistics
from edge0verify.records.evidence import Side
from tests.compare.sides import at, edited, pair, rows_side, token_keys


def only(evidence):
    (found,) = compare(evidence)
    assert sum(found.causes.values()) == found.n
    return found


def moved(side, order):
    return edited(side, rows=lambda r: r.__setitem__(slice(None), r[order].copy()))


def swap(*pairs):
    order = np.arange(97)
    for x, y in pairs:
        order[[x, y]] = order[[y, x]]
    return order


class TestFound:
    @pytest.mark.parametrize("b", ["mmvq", "w11"], ids=["same bits", "other rounding"])
    @pytest.mark.parametrize("how", ["rolled", "reversed", "swapped"])
    def test_every_row_that_moved(self, b, how):
        order = {"rolled": np.roll(np.arange(97), 5), "reversed": np.arange(97)[::-1], "swapped": swap((3, 90))}[how]
        found = only(pair(rows_side("mmvq"), moved(rows_side(b), order)))
        away = int((order != np.arange(97)).sum())
        assert found.causes["permuted"] >= 0.98 * away * 64 and found.status == "FAIL"
        assert not {"unexplained", "structured", "stale"} & set(found.causes)
        assert f"{away} of 97 rows stand elsewhere" in found.reasons[0]

    def test_on_side_a_as_well(self):
        found = only(pair(moved(rows_side("w11"), swap((3, 90), (4, 5))), rows_side("mmvq")))
        assert found.causes["permuted"] > 0.98 * 4 * 64

    def test_equal_rows_are_paired_in_turn(self):
        """Rows that occur twice do not make cycles of their own."""
        rows = np.repeat(np.arange(8, dtype=np.float32)[:, None] * 1.5, 4, axis=1)
        doubled = np.concatenate([rows, rows])
        found = only(pair(Side(rows=doubled), Side(rows=doubled[::-1].copy())))
        assert found.causes["permuted"] == 16 * 4


class TestNotFound:
    def test_keyed_rows_have_no_order(self):
        found = only(pair(rows_side("mmvq"), moved(rows_side("mmvq"), swap((3, 90))), keys=token_keys()))
        assert "permuted" not in found.causes

    def test_a_wrong_value_is_no_other_order(self):
        assert "permuted" not in only(pair(rows_side("mmvq"), edited(rows_side("w11"), rows=at((41, 7), 12.5)))).causes

    def test_a_row_that_is_copied_is_not_moved(self):
        b = edited(rows_side("mmvq"), rows=lambda r: r.__setitem__(41, r[12]))
        assert "permuted" not in only(pair(rows_side("mmvq"), b)).causes

    def test_rounding_is_no_other_order(self):
        assert set(only(pair(rows_side("mmvq"), rows_side("w11"))).causes) == {"equal", "rounding"}


class TestStatistics:
    def test_one_cycle(self):
        found = statistics(Order(np.roll(np.arange(10), 1), 10))
        assert (found["rows"], found["cycles"], found["longest_cycle"]) == (10, 1, 10)
        assert (found["runs"], found["longest_run"], found["median_shift"], found["largest_shift"]) == (2, 9, 1.0, 9)

    def test_pairs(self):
        found = statistics(Order(np.array([1, 0, 2, 4, 3]), 4))
        assert (found["rows"], found["cycles"], found["longest_cycle"], found["runs"]) == (4, 2, 2, 4)

    def test_rows_that_do_not_map_onto_each_other_have_no_cycles(self):
        assert statistics(Order(np.array([1, 1, 2]), 1))["cycles"] == 0

    def test_in_words(self):
        text = describe(Order(np.array([1, 0, 2, 4, 3]), 4))
        assert text == "4 of 5 rows stand elsewhere (4 bit for bit), 2 cycles, the longest of 2, 4 runs, the longest of 1, " \
                       "moved by 1 rows in the median, 1 at most"
