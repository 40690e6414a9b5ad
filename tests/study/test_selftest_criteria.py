"""The criteria people use, as their sources define them, and how they are counted."""

from __future__ import annotations

import numpy as np
import pytest

from edge0verify.study.selftest import criteria
from edge0verify.study.selftest.criteria import CRITERIA, SUITE, chosen, scores
from edge0verify.study.selftest.trials import trials

BY_NAME = {c.name: c.accepts for c in CRITERIA}
X = np.random.default_rng(1).standard_normal((40, 64))

TOLERANCES = [
    ("np.allclose, defaults", 1e-5, 1e-8),
    ("torch assert_close, float32", 1.3e-6, 1e-5),
    ("torch assert_close, float16", 1e-3, 1e-5),
    ("torch assert_close, bfloat16", 1.6e-2, 1e-5),
]


@pytest.mark.parametrize(("name", "rtol", "atol"), TOLERANCES)
def test_a_tolerance_is_relative_and_absolute(name: str, rtol: float, atol: float) -> None:
    accepts = BY_NAME[name]
    assert accepts(X, X)
    assert accepts(np.array([100 * (1 + 0.9 * rtol)]), np.array([100.0]))
    assert not accepts(np.array([100 * (1 + 1.1 * rtol) + atol]), np.array([100.0]))
    assert accepts(np.array([0.9 * atol]), np.array([0.0]))
    assert not accepts(np.array([1.1 * atol]), np.array([0.0]))


def test_np_allclose_is_numpys() -> None:
    near = X * (1 + np.random.default_rng(2).uniform(-2e-5, 2e-5, X.shape))
    for y in (near, X * (1 + 5e-6), X + 1e-9):
        assert BY_NAME["np.allclose, defaults"](y, X) == np.allclose(y, X)


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("NMSE <= 5e-4", 0.02, 0.03),           # the square of the factor's error
        ("relative L2 <= 1e-3", 0.9e-3, 1.1e-3),
    ],
)
def test_errors_of_a_factor(name: str, inside: float, outside: float) -> None:
    assert BY_NAME[name](X * (1 + inside), X)
    assert not BY_NAME[name](X * (1 + outside), X)


def test_correlation_and_cosine_see_no_factor_and_correlation_no_offset() -> None:
    assert BY_NAME["PCC >= 0.9999"](3 * X + 5, X) and BY_NAME["cosine >= 0.999"](3 * X, X)
    assert not BY_NAME["cosine >= 0.999"](X + 5, X)
    assert criteria.correlation(X, -X) == pytest.approx(-1)
    assert criteria.correlation(X, X**3) == pytest.approx(np.corrcoef(X.ravel(), (X**3).ravel())[0, 1])


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: c.name)
def test_a_nan_is_never_accepted(criterion) -> None:
    y = X.copy()
    y[3, 4] = np.nan
    with np.errstate(all="ignore"):
        assert not criterion.accepts(y, X)


def test_the_list_is_stage_d_alone() -> None:
    found = chosen()
    assert {t.stage for t in found} == {"D"}
    assert sum(t.source != "legitimate" for t in found) >= 21
    assert sum(t.source == "legitimate" for t in found) >= 7


def test_counts_add_up(monkeypatch) -> None:
    """A few of the list: what the suite catches and lets pass, and what the others make of it."""
    few = {"next-block-scale D w11", "weight-scale-21 D w11", "mmvq - mmq", "sum-of-codes D w11"}
    monkeypatch.setattr(criteria, "trials", lambda: [t for t in trials() if t.name in few and t.where == "text"])
    found = {s.name: s for s in scores()}
    assert (found[SUITE].caught, found[SUITE].faults) == (3, 3)
    assert (found[SUITE].false_alarms, found[SUITE].changes) == (0, 1)
    assert found["np.allclose, defaults"].alarms == ("mmvq - mmq (text)",)
    assert found["cosine >= 0.999"].missed == ("weight-scale-21 D w11 (text)", "sum-of-codes D w11 (text)")
    assert all(s.caught + len(s.missed) == 3 for s in found.values())
