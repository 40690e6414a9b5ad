"""Engagement: did the kernels that were asked for run?"""

import pytest

from edge0verify.records.evidence import Engagement, Side


def test_engaged_when_every_wanted_kernel_was_launched():
    found = Engagement(asked="w11", wanted=("D/w11/Q8_0",), launches={"D/w11/Q8_0": 1})
    assert found.engaged is True


def test_one_kernel_of_two_is_not_enough():
    found = Engagement(asked="w11", wanted=("A1/w11/Q3_K", "A2/w11/IQ4_NL"), launches={"A1/w11/Q3_K": 6})
    assert found.engaged is False


def test_launches_of_another_variant_do_not_count():
    found = Engagement(asked="w11", wanted=("D/w11/Q4_0",), launches={"D/mmvq/Q4_0": 6, "U/w11/Q8_0": 3})
    assert found.engaged is False
    assert found.ran == {"D/mmvq/Q4_0": 6}


def test_poison_left_behind_means_not_engaged_whatever_the_counter_says():
    found = Engagement(asked="w11", wanted=("D/w11/Q8_0",), launches={"D/w11/Q8_0": 1}, written=False)
    assert found.engaged is False


def test_nothing_wanted_is_never_engaged():
    assert Engagement(asked="w11", launches={"D/w11/Q8_0": 1}).engaged is False


def test_a_foreign_dump_is_neither():
    assert Engagement(asked="theirs", wanted=("D/w11/Q8_0",), launches=None).engaged is None


@pytest.mark.parametrize("kind", ["rows", "blocks", "ids"])
def test_an_empty_side_holds_no_kind(kind):
    assert not Side().present(kind)
