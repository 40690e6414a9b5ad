"""Experts that differ: a near tie, measured in ulps and in units of the router's bound, or a fault."""

from dataclasses import replace

import numpy as np
import pytest

from edge0verify.compare import Policy, compare
from edge0verify.compare.causes.route_flip import measure
from edge0verify.compare.policy import read_policy
from edge0verify.records.evidence import LoneRows, Router, Side
from tests.compare.sides import chosen_of, near_tie, pair, routed, rows_side, token_keys


def only(evidence, policy=None):
    (found,) = compare(evidence, policy=policy or Policy())
    assert sum(found.causes.values()) == found.n
    return found


class TestGap:
    def test_within_the_bound_it_passes_and_is_noted(self):
        found = only(near_tie(5e-7))
        assert (found.causes["route-flip"], found.status) == (2, "PASS")
        assert "row 7" in found.reasons[0] and "ulp" in found.reasons[0] and "of the router's bound" in found.reasons[0]

    def test_beyond_the_bound_it_fails_with_the_limit_that_would_do(self):
        found = only(near_tie(0.3))
        assert found.status == "FAIL"
        limit = float(found.reasons[0].split("route_gap = ")[1].split()[0])
        policy = {"rule": [{"route_gap": limit}]}
        assert only(near_tie(0.3), read_policy(policy, source="p")).status == "PASS"
        policy["rule"][0]["route_gap"] = limit * (1 - 1e-9)
        assert only(near_tie(0.3), read_policy(policy, source="p")).status == "FAIL"

    def test_the_border(self):
        """Gap on both sides of the tie against two bounds on each."""
        a, b = np.array([[1.5, 1.0, 0.0]], np.float32), np.array([[1.0, 1.5, 0.0]], np.float32)
        router = Router(a=a, b=b, bound=np.full((1, 3), 0.25))
        flip = measure(router, 0, np.array([0]), np.array([1]))
        assert (flip.gap, flip.bounds) == (1.0, 1.0)
        assert flip.ulps == 2 * 0.5 / 2.0**-23

    def test_the_widest_of_several_pairs_is_measured(self):
        router = Router(
            a=np.array([[3.0, 2.0, 1.0]], np.float32), b=np.array([[1.0, 2.0, 3.0]], np.float32), bound=np.full((1, 3), 1.0)
        )
        flip = measure(router, 0, np.array([0, 1]), np.array([2, 1]))
        assert {flip.a, flip.b} == {0, 2} and flip.gap == 4.0

    def test_a_number_of_flips_may_be_limited(self):
        few = read_policy({"rule": [{"route_flips": 0}]}, source="p")
        found = only(near_tie(5e-7), few)
        assert found.status == "FAIL" and "route_flips = 1 would have passed" in found.reasons[0]
        assert only(near_tie(5e-7), read_policy({"rule": [{"route_flips": 1}]}, source="p")).status == "PASS"


class TestUnknown:
    def test_without_a_bound_nothing_is_proven(self):
        tie = near_tie(5e-7)
        found = only(replace(tie, router=replace(tie.router, bound=None)))
        assert found.status == "INCONCLUSIVE" and "bound is not known" in found.reasons[0]

    def test_without_logits_nothing_is_proven(self):
        found = only(replace(near_tie(5e-7), router=None))
        assert found.status == "INCONCLUSIVE" and "logits not known" in found.reasons[0]


class TestFault:
    @pytest.mark.parametrize("side", ["a", "b"])
    def test_a_choice_that_does_not_follow_its_logits_is_no_flip(self, side):
        logits, bound, ids = routed()
        wrong = ids.copy()
        wrong[7, 0] = next(e for e in range(16) if e not in ids[7])
        sides = {"a": Side(ids=ids), "b": Side(ids=ids), side: Side(ids=wrong)}
        router = Router(a=logits, b=logits, bound=bound)
        found = only(pair(sides["a"], sides["b"], tensor="route-ids", kind="ids", limit=16, router=router))
        assert (found.causes["unexplained"], found.status) == (1, "FAIL")

    def test_the_same_wrong_choice_on_both_sides_is_not_equal(self):
        logits, bound, ids = routed()
        wrong = ids.copy()
        wrong[7, 0] = next(e for e in range(16) if e not in ids[7])
        sides = [Side(ids=wrong), Side(ids=wrong)]
        found = only(pair(*sides, tensor="route-ids", kind="ids", limit=16, router=Router(a=logits, b=logits, bound=bound)))
        assert found.status == "FAIL"

    def test_the_same_choice_is_equal(self):
        logits, bound, ids = routed()
        router = Router(a=logits, b=logits, bound=bound)
        found = only(pair(Side(ids=ids), Side(ids=ids), tensor="route-ids", kind="ids", limit=16, router=router))
        assert (found.causes, found.status) == ({"equal": found.n}, "PASS")


class TestCascade:
    def far(self, **more):
        tie = near_tie(0.3)
        return replace(tie, **more)

    def test_logits_that_came_in_different_make_a_cascade(self):
        found = only(self.far(inherited=np.ones(40, bool)))
        assert found.causes["cascade"] == 2 and found.status == "PASS"

    def test_in_other_rows_it_is_still_a_flip(self):
        rows = np.ones(40, bool)
        rows[7] = False
        assert only(self.far(inherited=rows)).status == "FAIL"

    def test_a_near_tie_is_a_flip_even_where_the_logits_came_in_different(self):
        found = only(replace(near_tie(5e-7), inherited=np.ones(40, bool)))
        assert found.causes["route-flip"] == 2 and "cascade" not in found.causes

    def test_a_router_that_breaks_its_rule_is_no_cascade(self):
        logits, bound, ids = routed()
        wrong = chosen_of(logits)
        wrong[7, 0] = next(e for e in range(16) if e not in ids[7])
        sides = [Side(ids=ids), Side(ids=wrong)]
        router = Router(a=logits, b=logits, bound=bound)
        found = only(pair(*sides, tensor="route-ids", kind="ids", limit=16, router=router, inherited=np.ones(40, bool)))
        assert found.status == "FAIL"

    def test_what_a_replay_removes_needs_no_bound_and_says_where_it_began(self):
        a, b = (Side(rows=rows_side(v).rows) for v in ("mmvq", "mmq"))
        found = only(pair(a, b, removed=np.ones(97, bool), earlier="layer 2 route"))
        assert found.causes["cascade"] > 0.9 * found.n and found.status == "PASS"
        assert "began in layer 2 route" in found.reasons[0]

    def test_what_a_replay_leaves_stays(self):
        removed = np.ones(97, bool)
        removed[50:] = False
        a, b = (Side(rows=rows_side(v).rows) for v in ("mmvq", "mmq"))
        found = only(pair(a, b, removed=removed))
        assert found.causes["loose"] > 0 and found.status == "INCONCLUSIVE"


class TestRowsOnOneSide:
    def lone(self, within, n=3):
        keys = np.arange(5 * n).reshape(n, 5).astype(np.int32)
        return LoneRows(a=keys, b=keys[: n - 1], within=within)

    @pytest.mark.parametrize("within, status", [(True, "PASS"), (False, "FAIL"), (None, "INCONCLUSIVE")])
    def test_they_count_as_flips(self, within, status):
        found = only(pair(rows_side("mmvq"), rows_side("w11"), tensor="a-y", keys=token_keys(), lone=self.lone(within)))
        assert found.causes["route-flip"] == 5 * 64 and found.n == (97 + 5) * 64
        assert found.status == status
        assert "3 rows only in a, 2 only in b" in found.reasons[0]

    def test_a_fault_in_the_rows_of_both_is_still_seen(self):
        wrong = replace(rows_side("w11"), rows=-rows_side("w11").rows)
        assert only(pair(rows_side("mmvq"), wrong, keys=token_keys(), lone=self.lone(True))).status == "FAIL"
