"""Rows are joined by key."""

import numpy as np
import pytest

from edge0verify.compare.join import join
from edge0verify.records.errors import InputError


def keys(*rows):
    return np.array(rows, np.int32).reshape(-1, 2)


def test_shuffled_rows_find_their_partners():
    rng = np.random.default_rng(0)
    a = np.stack([np.repeat(np.arange(5), 20), np.tile(np.arange(20), 5)], axis=1).astype(np.int32)
    order = rng.permutation(100)
    found = join(a, a[order])
    assert (found.a == np.arange(100)).all() and (a[order][found.b] == a).all()
    assert found.only_a.size == found.only_b.size == 0


def test_rows_of_one_side_only_are_set_apart():
    found = join(keys((0, 1), (0, 2), (0, 3)), keys((0, 3), (0, 4), (0, 1)))
    assert (found.a.tolist(), found.b.tolist()) == ([0, 2], [2, 0])
    assert (found.only_a.tolist(), found.only_b.tolist()) == ([1], [1])


def test_duplicates_are_refused_by_key():
    with pytest.raises(InputError, match=r"b\.h5: expected each key once, found \[0, 3\] 2 times"):
        join(keys((0, 3)), keys((0, 3), (0, 1), (0, 3)), source_b="b.h5")


def test_nothing_on_a_side_leaves_all_of_the_other():
    found = join(keys(), keys((0, 1), (0, 2)))
    assert found.a.size == 0 and found.only_b.tolist() == [0, 1]


def test_unlike_columns_are_refused():
    with pytest.raises(InputError, match="expected keys with the columns"):
        join(keys((0, 1)), np.zeros((2, 3), np.int32))
