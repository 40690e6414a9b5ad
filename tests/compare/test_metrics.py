"""Figures beside the causes."""

import numpy as np
import pytest

from edge0verify.compare.metrics import Distance, Moments, finite_pair, inner


def test_the_correlation_of_chunks_is_that_of_the_whole():
    rng = np.random.default_rng(0)
    a = rng.standard_normal(1000) + 1e6
    b = a + rng.standard_normal(1000)
    merged = Moments()
    for part in np.array_split(np.arange(1000), 7):
        merged.merge(Moments.of(a[part], b[part]))
    assert merged.correlation == pytest.approx(np.corrcoef(a, b)[0, 1], abs=1e-9)


def test_a_constant_side_has_no_correlation():
    assert Moments.of(np.ones(4), np.arange(4.0)).correlation is None
    assert Moments.of(np.empty(0), np.empty(0)).correlation is None


def test_the_relative_distance_of_nothing_from_nothing_is_nothing():
    zero, far = Distance(), Distance()
    zero.add(np.zeros(3), np.zeros(3))
    far.add(np.ones(3), np.zeros(3))
    assert zero.relative == 0.0
    assert far.relative is None


def test_the_relative_distance_is_of_the_second():
    found = Distance()
    found.add(np.array([3.0, 4.0]), np.array([0.0, 4.0]))
    assert found.relative == pytest.approx(0.75)


def test_sums_of_products_take_arrays_of_any_layout():
    x = np.arange(12.0).reshape(3, 4)
    assert inner(x.T, x.T) == inner(x, x) == float((x * x).sum())


def test_pairs_with_a_nan_or_infinity_are_left_out_together():
    a, b = finite_pair(np.array([1.0, np.nan, 3.0]), np.array([1.0, 2.0, np.inf]))
    assert a.tolist() == b.tolist() == [1.0]
