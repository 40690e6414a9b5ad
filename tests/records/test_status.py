"""Statuses and exit codes."""

import pytest

from edge0verify.records.status import exit_code, worst_exit, worst_status


@pytest.mark.parametrize("status, code", [("PASS", 0), ("FAIL", 1), ("INCONCLUSIVE", 3)])
def test_each_status_has_its_exit_code(status, code):
    assert exit_code(status) == code


@pytest.mark.parametrize(
    "codes, worst",
    [
        ([0, 0], 0),
        ([0, 3], 3),
        ([3, 2], 2),
        ([2, 1], 1),
        ([1, 70], 70),
        ([0, 1, 2, 3, 70], 70),
        ([3, 3, 0], 3),
    ],
)
def test_the_worst_of_many_is_70_1_2_3_0_in_that_order(codes, worst):
    assert worst_exit(codes) == worst
    assert worst_exit(reversed(codes)) == worst


def test_no_part_at_all_proves_nothing():
    assert worst_exit([]) == 3
    assert worst_status([]) == "INCONCLUSIVE"


def test_a_code_that_is_none_of_ours_is_internal():
    assert worst_exit([0, 139]) == 70


def test_an_interrupt_stays_an_interrupt():
    assert worst_exit([1, 130]) == 130


def test_fail_outranks_inconclusive_outranks_pass():
    assert worst_status(["PASS", "INCONCLUSIVE", "FAIL"]) == "FAIL"
    assert worst_status(["PASS", "INCONCLUSIVE"]) == "INCONCLUSIVE"
    assert worst_status(["PASS", "PASS"]) == "PASS"
