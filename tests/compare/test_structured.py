"""Faults of a kernel's loops, named by the rule that fits."""

from dataclasses import replace

import numpy as np
import pytest

from edge0verify.compare import compare
from tests.compare.sides import SHAPE, at, blocks_pair, blocks_side, edited, pair, rows_side, terms_of, token_keys

KEYS = token_keys()


def only(evidence, entry=0):
    found = compare(evidence)[entry]
    assert sum(found.causes.values()) == found.n
    return found


def b_with(change, **more):
    return pair(rows_side("mmvq"), replace(edited(rows_side("w11"), rows=change), **more), keys=KEYS)


def scaled(where, by=1.01):
    def change(rows):
        rows[where] *= np.float32(by)

    return change


class TestPlace:
    @pytest.mark.parametrize(
        "where, text",
        [
            ((slice(None), slice(16, 32)), "columns 16..31, a tile of 16"),
            ((slice(32, 64), slice(32, 64)), "columns 32..63, a tile of 32 of rows 32..63, a tile of 32"),
            ((slice(96, 97), slice(None)), "row 96"),
            ((slice(88, 97), slice(None)), "rows 88..96"),
            ((slice(None), 37), "column 37"),
            ((slice(None, None, 7), slice(None)), "every 7th row from 0"),
            ((slice(None), slice(3, None, 8)), "every 8th column from 3"),
        ],
    )
    def test_the_rule_is_in_the_reason(self, where, text):
        found = only(b_with(scaled(where)))
        assert found.status == "FAIL" and found.causes["structured"] > 0
        assert text in found.reasons[0]

    def test_two_faults_have_two_rules(self):
        def change(rows):
            rows[:, 16:32] *= np.float32(1.01)
            rows[5] *= np.float32(1.01)

        found = only(b_with(change))
        assert found.causes["structured"] > 0.9 * (97 * 16)

    def test_side_a_is_named(self):
        found = only(pair(edited(rows_side("mmvq"), rows=scaled((slice(None), 37))), rows_side("w11"), keys=KEYS))
        assert "a does not conform: a: column 37" in found.reasons[0]

    def test_both_sides_alike_are_said_once(self):
        sides = [edited(rows_side("mmvq"), rows=scaled((slice(None), 37))) for _ in "ab"]
        assert "a and b: column 37" in only(pair(*sides, keys=KEYS)).reasons[0]


class TestMovedBlocks:
    @pytest.mark.parametrize("width", [8, 16, 32])
    def test_swapped_columns(self, width):
        def change(rows):
            rows[:, :width], rows[:, width : 2 * width] = rows[:, width : 2 * width].copy(), rows[:, :width].copy()

        found = only(b_with(change))
        assert f"blocks of {width} columns 0 and 1 swapped" in found.reasons[0]
        assert found.causes["structured"] > 0.98 * 97 * 2 * width

    def test_each_block_holds_the_next_one_s(self):
        found = only(b_with(lambda rows: rows.__setitem__(slice(None), np.roll(rows, -8, axis=1))))
        assert "hold" in found.reasons[0] and found.causes["structured"] > 0.98 * 97 * 64

    def test_columns_repeat(self):
        found = only(b_with(lambda rows: rows.__setitem__((slice(None), slice(16, 64)), np.tile(rows[:, :16], (1, 3)))))
        assert "columns repeat with a period of 16" in found.reasons[0]

    def test_codes_of_another_block(self):
        def change(codes):
            codes[:, :32], codes[:, 32:] = codes[:, 32:].copy(), codes[:, :32].copy()

        found = only(blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), codes=change), keys=KEYS))
        assert "blocks of 32 columns 0 and 1 swapped" in found.reasons[0]

    def test_the_scale_of_the_next_block(self):
        def change(d):
            d[:, 0] = d[:, 1]

        found = only(blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), d=change)), 1)
        assert "blocks hold another's content: 0 that of 1" in found.reasons[0]


class TestSplit:
    """The sum over the inner dimension, 33 blocks, less or more than it should be."""

    @pytest.mark.parametrize(
        "parts, factor, text",
        [
            (slice(16, 33), -1, "K blocks 16..32 of 33 are missing from the sum"),
            ([7], -1, "K block 7 of 33 is missing from the sum"),
            (slice(0, 8), 1, "K blocks 0..7 of 33 are counted 2 times"),
            ([32], -2, "K block 32 of 33 has the wrong sign"),
        ],
    )
    def test_the_part_is_named(self, parts, factor, text):
        terms = terms_of("w11")
        part = terms(np.arange(SHAPE["n"]))[parts].sum(axis=0) * factor
        found = only(b_with(lambda rows: np.add(rows, part, out=rows, casting="unsafe"), terms=terms))
        assert text in found.reasons[0] and found.causes["structured"] > 0.95 * 97 * 64

    @pytest.mark.parametrize(
        "width, parts, factor, text",
        [
            (16, slice(33, 66), -1, "values 528..1055 of 1056 along K are missing from the sum"),
            (4, slice(66, 132), 1, "values 264..527 of 1056 along K are counted 2 times"),
        ],
        ids=["in two", "in four"],
    )
    @pytest.mark.parametrize("rows", [97, 1], ids=["all rows", "one row"])
    def test_a_split_of_33_blocks_cuts_one_in_the_middle(self, width, parts, factor, text, rows):
        terms = terms_of("w11")
        part = terms(np.arange(rows), width)[parts].sum(axis=0) * factor

        def change(all_rows):
            all_rows[:rows] += part.astype(np.float32)

        assert text in only(b_with(change, terms=terms)).reasons[0]

    def test_few_elements_are_enough_for_whole_blocks(self):
        terms = terms_of("w11")
        part = terms(np.array([5]))[16:].sum(axis=0)

        def change(all_rows):
            all_rows[5, :12] -= part[0, :12].astype(np.float32)

        assert "K blocks 16..32 of 33 are missing" in only(b_with(change, terms=terms)).reasons[0]

    def test_in_some_rows_only(self):
        terms = terms_of("w11")
        part = terms(np.arange(SHAPE["n"]))[16:].sum(axis=0)

        def change(rows):
            rows[64:] -= part[64:].astype(np.float32)

        assert "K blocks 16..32" in only(b_with(change, terms=terms)).reasons[0]

    def test_without_the_terms_it_stays_unexplained(self):
        part = terms_of("w11")(np.arange(SHAPE["n"]))[16:].sum(axis=0)
        found = only(b_with(lambda rows: np.subtract(rows, part, out=rows, casting="unsafe")))
        assert found.causes["unexplained"] > 0.95 * 97 * 64

    def test_noise_is_no_part_of_the_sum(self):
        noise = np.random.default_rng(0).standard_normal((97, 64)).astype(np.float32)
        found = only(b_with(lambda rows: np.add(rows, noise, out=rows), terms=terms_of("w11")))
        assert "structured" not in found.causes


class TestAllAlike:
    @pytest.mark.parametrize("by, text", [(-1.0, "have the other sign"), (1.5, "are 1.5 times what they should be")])
    def test_a_sign_and_a_factor(self, by, text):
        found = only(b_with(scaled(slice(None), by)))
        assert found.causes["structured"] > 0.99 * found.n and f"values {text}" in found.reasons[0]

    def test_reciprocal_scales(self):
        def invert(d):
            d[:] = 1 / d

        found = only(blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), d=invert)), 1)
        assert "scales are the reciprocal of what they should be" in found.reasons[0]

    @pytest.mark.parametrize("gap", [4, -4])
    def test_rows_written_at_another_distance(self, gap):
        def change(rows):
            n, m = rows.shape
            memory = np.zeros(n * (m + abs(gap)) + m, np.float32)
            for row, own in enumerate(rows.copy()):
                memory[row * (m + gap) : row * (m + gap) + m] = own
            rows[:] = memory[: n * m].reshape(n, m)

        assert f"rows are written {64 + gap} columns apart and read 64 apart" in " ".join(only(b_with(change)).reasons)


class TestNegative:
    def test_scattered_values_are_unexplained(self):
        rng = np.random.default_rng(2)
        where = rng.integers(0, 97, 60), rng.integers(0, 64, 60)
        found = only(b_with(lambda rows: rows.__setitem__(where, rows[where] + np.float32(1))))
        assert "structured" not in found.causes and found.causes["unexplained"] > 50

    def test_noise_everywhere_follows_no_rule(self):
        noise = np.random.default_rng(4).standard_normal((97, 64)).astype(np.float32)
        found = only(b_with(at(slice(None), noise)))
        assert found.causes["unexplained"] > 0.99 * found.n

    def test_without_a_contract_no_rule_is_looked_for(self):
        a, b = (replace(rows_side(v), t=None, bound=None) for v in ("mmvq", "w11"))
        found = only(pair(a, edited(b, rows=at((slice(None), 37), 1.0)), keys=KEYS))
        assert set(found.causes) <= {"equal", "loose"}
