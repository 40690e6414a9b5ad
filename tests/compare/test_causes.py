"""Every element gets exactly one cause, and the order of decision is that of the table."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge0verify.compare import causes, compare
from edge0verify.compare.elements import Elements, Judged
from edge0verify.numerics.blocks import POISON_F32_BITS, Blocks
from edge0verify.records import causes as names
from edge0verify.records.evidence import Side
from tests.compare.sides import pair, rows_side

SHAPE = (2, 3)
ALL, NONE = np.ones(SHAPE, bool), np.zeros(SHAPE, bool)


def judged(*, nonfinite=NONE, poison=NONE, keeps=ALL, loose=None):
    return Judged(nonfinite=nonfinite, poison=poison, keeps=keeps, loose=loose)


def label(*, same=NONE, a=None, b=None, unit="code", apart=None, declared=False):
    """The one cause that all elements of a uniform chunk get; 'open' for none."""
    zeros = np.zeros(SHAPE)
    found = causes.label_chunk(
        Elements(
            unit=unit, same=same, a=a or judged(), b=b or judged(), values_a=zeros, values_b=zeros, apart=apart, declared=declared
        )
    )
    (one,) = np.unique(found)
    return "open" if one == causes.OPEN else names.ORDER[one].name


class TestOrderOfDecision:
    def test_each_cause_where_it_alone_applies(self):
        assert label(a=judged(nonfinite=ALL)) == "nonfinite"
        assert label(b=judged(poison=ALL)) == "unwritten"
        assert label(declared=True) == "by-design"
        assert label(same=ALL) == "equal"
        assert label(b=judged(loose=ALL)) == "loose"
        assert label(apart=lambda: ALL) == "operands"
        assert label() == label(unit="scale") == label(unit="sum") == "tie"
        assert label(unit="row") == "rounding"
        assert label(a=judged(keeps=NONE)) == "open"

    def test_nonfinite_comes_before_everything(self):
        assert label(same=ALL, a=judged(nonfinite=ALL, poison=ALL, keeps=NONE), declared=True) == "nonfinite"

    def test_unwritten_comes_before_what_a_flag_declares_and_before_equal(self):
        assert label(same=ALL, a=judged(poison=ALL), b=judged(poison=ALL), declared=True) == "unwritten"

    def test_a_flag_comes_before_conformance_and_touches_no_equal_element(self):
        assert label(a=judged(keeps=NONE), declared=True) == "by-design"
        assert label(same=ALL, declared=True) == "equal"
        assert label(same=ALL, a=judged(keeps=NONE), b=judged(keeps=NONE), declared=True) == "open"

    def test_loose_comes_before_operands_and_tie(self):
        assert label(a=judged(loose=ALL), apart=lambda: ALL) == "loose"

    def test_same_bits_that_do_not_conform_are_left_for_a_failing_cause(self):
        assert label(same=ALL, a=judged(keeps=NONE), b=judged(keeps=NONE)) == "open"

    def test_a_loose_bound_excuses_nobody_who_breaks_it(self):
        assert label(a=judged(keeps=NONE, loose=ALL)) == "open"

    def test_one_side_without_anything_to_judge_it_by(self):
        assert label(a=judged(keeps=None)) == "loose"
        assert label(same=ALL, a=judged(keeps=None)) == "equal"
        assert label(same=ALL, a=judged(keeps=None), b=judged(keeps=NONE)) == "open"


class TestRegistry:
    def test_modules_stand_in_the_order_of_records(self):
        order = [causes.NUMBER[m.CAUSE.name] for m in (*causes.ELEMENT_CAUSES, *causes.REST_CAUSES)]
        assert order == sorted(order)

    def test_a_module_out_of_order_is_refused(self, monkeypatch):
        monkeypatch.setattr(causes, "ELEMENT_CAUSES", causes.ELEMENT_CAUSES[::-1])
        with pytest.raises(AssertionError, match="out of the order of decision"):
            causes._check_order()

    def test_each_module_is_named_after_its_cause(self):
        for module in (*causes.ELEMENT_CAUSES, *causes.REST_CAUSES):
            assert module.__name__.rsplit(".", 1)[1] == module.CAUSE.name.replace("-", "_")
            assert module.__doc__

    def test_a_registry_whose_last_cause_leaves_elements_behind_is_an_internal_error(self, monkeypatch):
        monkeypatch.setattr(causes, "REST_CAUSES", ())
        side = rows_side("mmvq")
        with pytest.raises(AssertionError, match="without a cause"):
            compare(pair(side, Side(rows=side.rows + 1, t=side.t, bound=side.bound)))


VALUES = st.sampled_from([0.0, -0.0, 1.0, 1.0000001, 2.0, 1e-45, 3e38, np.inf, np.nan, "poison"])


def array(values, shape):
    flat = [np.uint32(POISON_F32_BITS).view(np.float32) if v == "poison" else np.float32(v) for v in values]
    return np.array(flat, np.float32).reshape(shape)


class TestCountsAddUp:
    @settings(max_examples=150, deadline=None)
    @given(
        a=st.lists(VALUES, min_size=6, max_size=6),
        b=st.lists(VALUES, min_size=6, max_size=6),
        t=st.lists(st.sampled_from([0.0, 1.0, 2.0, np.nan]), min_size=12, max_size=12),
        bound=st.sampled_from([0.0, 1e-6, 0.5, np.inf]),
        judge=st.tuples(st.booleans(), st.booleans()),
    )
    def test_for_rows_of_anything(self, a, b, t, bound, judge):
        t, limits = np.array(t).reshape(2, *SHAPE), np.full(SHAPE, bound)
        sides = [
            Side(rows=array(values, SHAPE), t=t[i] if judge[i] else None, bound=limits if judge[i] else None)
            for i, values in enumerate((a, b))
        ]
        (found,) = compare(pair(*sides))
        assert sum(found.causes.values()) == found.n == 6
        assert found.causes.get("equal", 0) <= found.equal
        assert (found.status == "PASS") <= (set(found.causes) <= {"equal", "rounding", "operands"})

    @settings(max_examples=60, deadline=None)
    @given(
        codes=st.lists(st.integers(-128, 127), min_size=4, max_size=4),
        scales=st.lists(st.sampled_from([0.0, 1.0, 0.0079, np.inf, np.nan]), min_size=4, max_size=4),
        bound=st.sampled_from([0.0, 1e-6, 1.0, 200.0]),
        judged=st.booleans(),
    )
    def test_for_blocks_of_anything(self, codes, scales, bound, judged):
        def side(part):
            c = np.tile(np.array(codes[part], np.int8)[:, None], (1, 32))
            d = np.array(scales[part], np.float16)[:, None]
            t = np.ones((2, 32)) if judged else None
            limits = np.full((2, 32), bound) if judged else None
            return Side(blocks=Blocks(c, d, d.copy(), "mmvq"), t=t, bound=limits)

        results = compare(pair(side(slice(0, 2)), side(slice(2, 4)), tensor="x", kind="blocks"))
        assert [r.tensor for r in results] == ["x", "x.d", "x.s"]
        for found in results:
            assert sum(found.causes.values()) == found.n
            assert found.n == {"x": 64, "x.d": 2, "x.s": 2}[found.tensor]
