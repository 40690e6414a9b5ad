"""F09: duplicate expert ids overflowed a list sized by tokens. F10: NaN in padding rows made a router choose nonsense."""

import numpy as np
import pytest

from edge0verify.dump.ids import refuse_invalid
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Router, Side
from tests.field.common import evidence, verdict

TOKENS, EXPERTS, CHOSEN = 20, 8, 4


def logits(*nan_rows, partly=()):
    made = np.random.default_rng(11).standard_normal((TOKENS, EXPERTS)).astype(np.float32)
    made[list(nan_rows)] = np.nan
    for row in partly:
        made[row, [1, 5]] = np.nan
    return made


def choose(values):
    """The k largest by a plain loop that takes a NaN for no larger than anything: expert 0 comes out again and again."""
    chosen = np.zeros((len(values), CHOSEN), np.int32)
    for row, own in enumerate(values):
        left = own.astype(np.float64).copy()
        for slot in range(CHOSEN):
            best = 0
            for expert in range(1, EXPERTS):
                if left[expert] > left[best]:
                    best = expert
            chosen[row, slot] = best
            if not np.isnan(left[best]):
                left[best] = -np.inf
    return chosen


def route(a, b, ids_a=None, ids_b=None):
    """Evidence of the router's logits and of what was chosen from them."""
    ids = [choose(a) if ids_a is None else ids_a, choose(b) if ids_b is None else ids_b]
    router = Router(a=a, b=b, bound=np.full(a.shape, 1e-6))
    t, bound = np.nan_to_num(logits().astype(np.float64)), np.full(a.shape, 1e-6)
    return (
        evidence(Side(rows=a, t=t, bound=bound), Side(rows=b, t=t, bound=bound), tensor="route-logits"),
        evidence(Side(ids=ids[0]), Side(ids=ids[1]), tensor="route-ids", kind="ids", limit=EXPERTS, router=router),
    )


class TestDuplicates:
    def test_as_an_input_they_are_refused_with_the_row(self):
        ids = choose(logits())
        ids[13, 2] = ids[13, 0]
        with pytest.raises(InputError, match=r"route-ids row 13: expected distinct ids below 8, found .*\(1 such rows\)"):
            refuse_invalid(ids, EXPERTS, "route-ids")

    @pytest.mark.parametrize("both", [False, True], ids=["one side", "both sides"])
    @pytest.mark.parametrize("wrong", ["repeated", "beyond", "negative"])
    def test_as_a_result_they_fail_and_the_row_is_named(self, wrong, both):
        bad = choose(logits())
        bad[13, 2] = {"repeated": bad[13, 0], "beyond": EXPERTS, "negative": -1}[wrong]
        found = verdict(*route(logits(), logits(), ids_a=bad if both else None, ids_b=bad))
        assert found.status == "FAIL"
        assert "repeat or are out of range in row 13" in " ".join(found.reasons)

    def test_distinct_ids_in_range_pass(self):
        refuse_invalid(choose(logits()), EXPERTS, "route-ids")
        assert verdict(*route(logits(), logits())).status == "PASS"


class TestNaN:
    def test_rows_of_nan_are_named_in_logits_and_ids(self):
        bad = logits(3, 17)
        found = verdict(*route(logits(), bad))
        assert found.status == "FAIL"
        by_tensor = {r.tensor: r for r in found.layers}
        assert by_tensor["route-logits"].causes["nonfinite"] == 2 * EXPERTS
        assert "rows 3 and 17" in by_tensor["route-logits"].reasons[0]
        assert "repeat or are out of range in rows 3, 17" in " ".join(by_tensor["route-ids"].reasons)
        assert "route-logits" in found.reasons[0] and "nonfinite" in found.reasons[0]

    def test_rows_that_are_nan_in_part_have_no_choice_that_follows_a_rule(self):
        bad = logits(partly=(6,))
        ids = choose(logits())
        found = verdict(*route(logits(), bad, ids_a=ids, ids_b=ids))
        by_tensor = {r.tensor: r for r in found.layers}
        assert by_tensor["route-logits"].causes["nonfinite"] == 2
        assert by_tensor["route-ids"].causes["nonfinite"] == CHOSEN
        assert "row 6" in by_tensor["route-ids"].reasons[0]
        assert found.status == "FAIL"

    def test_the_same_nan_on_both_sides_proves_nothing_but_the_ids_still_fail(self):
        bad = logits(3, 17)
        logits_only = verdict(route(bad, bad)[0])
        assert logits_only.status == "INCONCLUSIVE"
        assert verdict(*route(bad, bad)).status == "FAIL"

    def test_without_nan_it_passes(self):
        assert verdict(*route(logits(), logits())).status == "PASS"
