"""The first unstable tensor of two runs: bitwise, permuted, rounding or unexplained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge0verify.engine import Engine
from edge0verify.model import encode, load_model, prompt
from edge0verify.numerics.blocks import Blocks
from edge0verify.study.drift_batch import read_at
from edge0verify.study.drift_runs import unstable_text
from edge0verify.study.drift_stability import MemoryTrace, permutation, stability

TOKENS = encode(prompt("list"))[:24]


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def trace(model):
    return read_at(Engine(model, threads=1), TOKENS, 8).trace


def changed(trace, layer, edits):
    """The trace with some tensors of one layer replaced: {name: function of the old value}."""
    seen = {at: dict(named) for at, named in trace.seen.items()}
    for name, edit in edits.items():
        seen[layer][name] = edit(seen[layer][name])
    return MemoryTrace(seen, trace.variants)


def nudged(rows):
    rows = rows.copy()
    rows[3, 5] = np.nextafter(rows[3, 5], np.float32(9))
    return rows


class TestKinds:
    def test_the_same_bits_are_stable(self, trace, model):
        found = stability(trace, changed(trace, 0, {}), model)
        assert (found.kind, found.first, found.same_ids, found.same_logprobs) == ("bitwise", None, True, True)
        assert found.tensors["bitwise"] == 6 * 14 + 3

    def test_expert_rows_in_another_order_are_permuted_whatever_the_correlation(self, trace, model):
        """Rows written in the order of a counter: the dump differs from run to run, the replies do not."""
        order = np.random.default_rng(0).permutation(24 * 4)
        pairs = ("a-gate", "a-up", "a-h", "a-y")

        def shuffled(value):
            return value.take(order) if isinstance(value, Blocks) else value[order]

        found = stability(trace, changed(trace, 2, dict.fromkeys(pairs, shuffled)), model)
        first = found.first
        assert (found.kind, first.layer, first.tensor) == ("permuted", 2, "a-gate")
        assert first.corr < 0.9 and found.same_ids and found.same_logprobs
        assert found.tensors == {"bitwise": 6 * 14 + 3 - 4, "permuted": 4, "other": 0}
        moved = int((order != np.arange(96)).sum())
        assert (first.permutation["moved"], first.permutation["rows"]) == (moved, 96)
        text = unstable_text(first)
        assert f"{moved} of 96 rows moved in" in text and "unexplained" not in text

    def test_a_difference_that_conforms_on_both_sides_is_rounding(self, trace, model):
        found = stability(trace, changed(trace, 1, {"d-xl": nudged, "u": nudged}), model)
        first = found.first
        assert (found.kind, first.layer, first.tensor, first.rows) == ("rounding", 1, "d-xl", 1)
        assert found.tensors["other"] == 2 and first.corr > 0.999999

    def test_one_that_does_not_conform_is_unexplained(self, trace, model):
        def wrong(rows):
            rows = rows.copy()
            rows[3, 5] += 0.01
            return rows

        first = stability(trace, changed(trace, 1, {"a-y": wrong}), model).first
        assert (first.kind, first.tensor, first.bounded) == ("unexplained", "a-y", True)
        assert first.why.startswith("1 elements of the second run do not conform; matched = 0.9999")

    def test_codes_and_scales_are_seen_too(self, trace, model):
        def scale(blocks):
            d = blocks.d.copy()
            d[2, 1] = np.nextafter(d[2, 1], np.float16(9))
            return replace(blocks, d=d)

        first = stability(trace, changed(trace, 4, {"a-h": scale}), model).first
        assert (first.layer, first.tensor, first.rows) == (4, "a-h", 1)

    def test_what_nothing_bounds_is_said(self, trace, model):
        first = stability(trace, changed(trace, 3, {"ffn-in": nudged}), model).first
        assert (first.kind, first.bounded, first.why) == ("unexplained", False, "nothing bounds this tensor")
        without = stability(trace, changed(trace, 3, {"d-xl": nudged}), None).first
        assert (without.kind, without.bounded) == ("unexplained", False)

    def test_the_lowest_in_the_order_of_computation_comes_first(self, trace, model):
        seen = changed(changed(trace, 5, {"d-xl": nudged}), 2, {"u": nudged, "route-logits": nudged})
        first = stability(trace, seen, model).first
        assert (first.layer, first.tensor, first.kind) == (2, "route-logits", "rounding")

    def test_equal_tokens_with_other_log_probs_are_caught(self, trace, model):
        found = stability(trace, changed(trace, "head", {"top8-logprobs": lambda v: v + np.float32(1e-3)}), model)
        assert (found.kind, found.first.tensor) == ("unexplained", "top8-logprobs")
        assert found.same_ids and found.same_logprobs is False

    def test_a_missing_tensor_and_another_shape_are_unexplained(self, trace, model):
        seen = {at: dict(named) for at, named in trace.seen.items()}
        del seen[0]["a-up"]
        assert stability(trace, MemoryTrace(seen, trace.variants), model).first.why == "the second run has no such tensor"
        short = changed(trace, 0, {"d-xl": lambda v: v[:-1]})
        assert "shapes differ" in stability(trace, short, model).first.why


class TestPermutation:
    def test_cycles_runs_and_shifts(self):
        x = np.arange(24, dtype=np.float32).reshape(8, 3)
        order = np.array([1, 0, 3, 4, 2, 5, 6, 7])
        found = permutation(x, x[order])
        assert (found["moved"], found["cycles"], found["longest_cycle"]) == (5, 2, 3)
        assert (found["longest_run"], found["max_shift"]) == (3, 2)

    def test_repeated_rows_do_not_confuse_it(self):
        x = np.zeros((6, 2), np.float32)
        x[0], x[5] = 1, 2
        found = permutation(x, x[[5, 1, 2, 3, 4, 0]])
        assert (found["moved"], found["cycles"]) == (2, 1)
        assert permutation(x, x) is None

    def test_one_bit_is_enough_to_be_no_permutation(self):
        x = np.arange(24, dtype=np.float32).reshape(8, 3)
        y = x[::-1].copy()
        y[0, 0] = np.nextafter(y[0, 0], np.float32(0))
        assert permutation(x, y) is None
