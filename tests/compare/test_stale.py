"""Rows of another token, of the other run, of an earlier run."""

from dataclasses import replace

import numpy as np
import pytest

from edge0verify.compare import compare
from edge0verify.records.evidence import Side
from tests.compare.sides import at, blocks_pair, blocks_side, edited, pair, rows_side, token_keys

KEYS = token_keys()


def only(evidence):
    found = compare(evidence)
    for result in found:
        assert sum(result.causes.values()) == result.n
    return found[0]


def take(rows, source):
    def change(array):
        array[rows] = array[source].copy()

    return change


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "unkeyed"])
class TestThisRun:
    def test_a_whole_row(self, keyed):
        found = only(pair(rows_side("mmvq"), edited(rows_side("w11"), rows=take(41, 12)), keys=KEYS if keyed else None))
        assert found.causes["stale"] == 64 and found.status == "FAIL"
        assert "b holds rows of this run: row 41 that of 12" in found.reasons[0]

    def test_a_tile_of_a_row(self, keyed):
        b = edited(rows_side("w11"), rows=lambda r: r.__setitem__((41, slice(16, 32)), r[12, 16:32].copy()))
        found = only(pair(rows_side("mmvq"), b, keys=KEYS if keyed else None))
        assert found.causes["stale"] == 16 and "unexplained" not in found.causes

    def test_columns_that_are_no_multiple_of_eight(self, keyed):
        b = edited(rows_side("w11"), rows=lambda r: r.__setitem__((41, slice(13, 39)), r[12, 13:39].copy()))
        found = only(pair(rows_side("mmvq"), b, keys=KEYS if keyed else None))
        assert found.causes["stale"] == 26

    def test_many_rows_that_lag_by_one(self, keyed):
        b = edited(rows_side("w11"), rows=take(slice(50, 60, 2), slice(49, 59, 2)))
        found = only(pair(rows_side("mmvq"), b, keys=KEYS if keyed else None))
        assert found.causes["stale"] == 5 * 64
        assert "each from 1 rows above" in found.reasons[0]

    def test_codes_with_their_scales(self, keyed):
        def change(array):
            array[41] = array[12]

        b = edited(blocks_side("w11", known_rows=False), codes=change, d=change, s=change)
        found = compare(blocks_pair(blocks_side("mmvq", known_rows=False), b, keys=KEYS if keyed else None))
        assert found[0].causes["stale"] > 50 and found[1].causes["stale"] == 2
        assert all("unexplained" not in r.causes for r in found)

    def test_both_sides_alike(self, keyed):
        a, b = (edited(rows_side("mmvq"), rows=take(41, 12)) for _ in "ab")
        assert only(pair(a, b, keys=KEYS if keyed else None)).causes["stale"] == 64


class TestElsewhere:
    def test_a_row_that_conforms_to_another_token_s_oracle(self):
        """The other run's row in the wrong place: no bits to match in its own run."""
        b = edited(rows_side("w11"), rows=lambda r: r.__setitem__(slice(None), np.roll(rows_side("ref").rows, 1, axis=0)))
        found = only(pair(rows_side("mmvq"), b, keys=KEYS))
        assert found.causes["stale"] > 0.99 * found.n and "by oracle" in found.reasons[0]

    def test_the_other_run_s_row_bit_for_bit(self):
        b = edited(rows_side("w11"), rows=lambda r: r.__setitem__(41, rows_side("mmvq").rows[12]))
        found = only(pair(rows_side("mmvq"), b, keys=KEYS))
        assert found.causes["stale"] == 64 and "the other run" in found.reasons[0]

    def test_an_earlier_run_s_row_in_the_same_place(self):
        side = rows_side("w11")
        old = np.random.default_rng(0).standard_normal(side.rows.shape).astype(np.float32)
        b = edited(side, rows=lambda r: r.__setitem__(slice(90, 97), old[90:97]))
        b = replace(b, previous=lambda: ("an earlier run", Side(rows=old)))
        found = only(pair(rows_side("mmvq"), b, keys=KEYS))
        assert found.causes["stale"] == 7 * 64 and "an earlier run" in found.reasons[0]

    def test_without_the_earlier_run_nothing_is_claimed(self):
        old = np.random.default_rng(0).standard_normal((97, 64)).astype(np.float32)
        b = edited(rows_side("w11"), rows=lambda r: r.__setitem__(41, old[41]))
        assert "stale" not in only(pair(rows_side("mmvq"), b, keys=KEYS)).causes

    def test_without_a_bound_a_row_twice_is_still_seen(self):
        rows = rows_side("mmvq").rows
        found = only(pair(Side(rows=rows), edited(Side(rows=rows), rows=take(41, 12)), keys=KEYS))
        assert found.causes == {"equal": found.n - 64, "stale": 64} and found.status == "FAIL"


class TestNegative:
    def test_rows_that_are_the_same_by_right_are_equal(self):
        """Two tokens with one row: nothing is stale where everything conforms."""
        def twice(side):
            both = edited(side, rows=take(41, 12))
            t, bound = both.t.copy(), both.bound.copy()
            t[41], bound[41] = t[12], bound[12]
            return replace(both, t=t, bound=bound)

        found = only(pair(twice(rows_side("mmvq")), twice(rows_side("w11")), keys=KEYS))
        assert found.status == "PASS" and "stale" not in found.causes

    @pytest.mark.parametrize("value", [0.0, 3.0])
    def test_a_row_of_one_value_comes_from_nowhere(self, value):
        b = edited(rows_side("w11"), rows=lambda r: r.__setitem__([41, 12], value))
        assert "stale" not in only(pair(rows_side("mmvq"), b, keys=KEYS)).causes

    def test_a_single_wrong_value_is_not_a_row(self):
        b = edited(rows_side("w11"), rows=at((41, 7), rows_side("w11").rows[12, 7]))
        assert only(pair(rows_side("mmvq"), b, keys=KEYS)).causes["unexplained"] == 1

    def test_scales_of_a_few_values_repeat_by_chance(self):
        b = edited(blocks_side("w11"), d=lambda d: d.__setitem__(41, d[12]))
        found = compare(blocks_pair(blocks_side("mmvq"), b, keys=KEYS))
        assert "stale" not in found[1].causes

    def test_noise_is_not_stale(self):
        noise = np.random.default_rng(1).standard_normal((97, 64)).astype(np.float32)
        assert "stale" not in only(pair(rows_side("mmvq"), edited(rows_side("w11"), rows=at(slice(None), noise)), keys=KEYS)).causes


def test_rows_of_a_large_tensor_are_searched_window_by_window(monkeypatch):
    monkeypatch.setattr("edge0verify.compare.causes.match.WINDOW", 32 * 64)
    near = edited(rows_side("w11"), rows=take(41, 39))
    assert only(pair(rows_side("mmvq"), near, keys=KEYS)).causes["stale"] == 64
    far = edited(replace(rows_side("w11"), t=None, bound=None), rows=take(41, 2))
    assert "stale" not in only(pair(replace(rows_side("w11"), t=None, bound=None), far, keys=KEYS)).causes
    monkeypatch.setattr("edge0verify.compare.causes.match.WINDOW", 97 * 64)
    assert only(pair(replace(rows_side("w11"), t=None, bound=None), far, keys=KEYS)).causes["stale"] == 64
