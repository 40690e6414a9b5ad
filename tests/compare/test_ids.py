"""Ids of experts."""

import numpy as np
import pytest

from edge0verify.compare import compare
from edge0verify.dump.ids import refuse_invalid
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Side
from tests.compare.sides import pair


def ids(*rows):
    return Side(ids=np.array(rows, np.int32))


def only(a, b, **more):
    (found,) = compare(pair(a, b, tensor="route-ids", kind="ids", **more))
    assert sum(found.causes.values()) == found.n
    return found


def test_the_same_experts_in_the_same_order_are_equal():
    found = only(ids([3, 1], [2, 0]), ids([3, 1], [2, 0]), limit=4)
    assert (found.causes, found.status, found.rel_l2) == ({"equal": 4}, "PASS", None)


def test_another_expert_is_not_a_pass():
    found = only(ids([3, 1], [2, 0]), ids([3, 1], [2, 1]), limit=4)
    assert (found.causes, found.status) == ({"equal": 3, "route-flip": 1}, "INCONCLUSIVE")
    assert "logits not known" in found.reasons[0]


@pytest.mark.parametrize("row", [[3, 3], [4, 1], [-1, 1]], ids=["repeated", "beyond", "negative"])
def test_ids_that_no_router_may_choose_fail_on_both_sides_alike(row):
    found = only(ids(row, [2, 0]), ids(row, [2, 0]), limit=4)
    assert found.status == "FAIL"
    assert "row 0" in found.reasons[0]


@pytest.mark.parametrize("row", [[3, 3], [4, 1], [-1, 1]], ids=["repeated", "beyond", "negative"])
def test_as_an_input_they_are_refused_by_row(row):
    """F09: ids that repeat overflow a list sized by tokens."""
    with pytest.raises(InputError, match=r"route-ids row 1: expected distinct ids below 4, found .* \(1 such rows\)"):
        refuse_invalid(np.array([[0, 1], row], np.int32), 4, "route-ids")


def test_good_ids_are_not_refused():
    refuse_invalid(np.array([[0, 1], [3, 2]], np.int32), 4, "route-ids")
