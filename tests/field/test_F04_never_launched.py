"""F04, the comparison: new kernels were looked up and never launched, so every byte was the same."""

import numpy as np

from edge0verify.records.evidence import Engagement, Side
from tests.field.common import RAN, evidence, halves, product, verdict

IDLE = Engagement(asked="new", wanted=("D/new/Q8_0",), launches={"D/old/Q8_0": 6})


def sides(other):
    rng = np.random.default_rng(5)
    w, x = rng.standard_normal((64, 96)).astype(np.float32), rng.standard_normal((7, 96)).astype(np.float32)
    good, t, bound = product(w, x)
    return Side(rows=good, t=t, bound=bound), Side(rows=good if other is None else other(w, x), t=t, bound=bound)


def test_equal_in_every_byte_and_never_launched_is_inconclusive_and_says_both():
    found = verdict(evidence(*sides(None)), ran=IDLE)
    assert (found.status, found.exit_code) == ("INCONCLUSIVE", 3)
    assert found.engaged == {"a": True, "b": False}
    (reason,) = found.reasons
    assert "not engaged" in reason and "new was asked for and old ran" in reason and "launched 0 times" in reason
    assert "every compared bit is equal" in reason


def test_a_dump_that_counted_no_launches_proves_nothing_either():
    assert verdict(evidence(*sides(None)), ran=Engagement(asked="new", launches=None)).status == "INCONCLUSIVE"


def test_a_difference_does_not_stand_for_a_launch():
    found = verdict(evidence(*sides(halves)), ran=IDLE)
    assert found.status == "INCONCLUSIVE" and "every compared bit" not in found.reasons[0]


def test_the_kernel_that_was_launched_passes_even_where_its_bits_are_the_same():
    assert verdict(evidence(*sides(None)), ran=RAN).status == "PASS"
