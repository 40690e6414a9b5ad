"""F03: the check itself was dead: it compared with memory that no kernel had written, and passed anything."""

import numpy as np

from edge0verify.compare.causes import equal
from edge0verify.numerics.blocks import poison_f32
from edge0verify.records.evidence import Side
from tests.field.common import evidence, product, verdict


def scene(change):
    rng = np.random.default_rng(3)
    w, x = rng.standard_normal((64, 96)).astype(np.float32), rng.standard_normal((7, 96)).astype(np.float32)
    good, t, bound = product(w, x)
    return Side(rows=good, t=t, bound=bound), Side(rows=change(good.copy()), t=t, bound=bound)


def nothing(rows):
    return poison_f32(rows.shape)


def broken(rows):
    return np.random.default_rng(4).standard_normal(rows.shape).astype(np.float32)


def test_a_kernel_that_writes_nothing_fails_and_is_not_engaged():
    found = verdict(evidence(*scene(nothing)))
    assert found.status == "FAIL" and found.layers[0].causes == {"unwritten": 7 * 64}
    assert found.engaged == {"a": True, "b": False}


def test_nothing_on_both_sides_is_not_equal():
    _, empty = scene(nothing)
    found = verdict(evidence(empty, empty))
    assert found.status == "FAIL" and found.layers[0].causes == {"unwritten": 7 * 64}


def test_a_broken_kernel_fails_everywhere():
    found = verdict(evidence(*scene(broken)))
    assert found.status == "FAIL" and found.layers[0].causes["unexplained"] > 0.99 * 7 * 64


def test_a_broken_kernel_against_itself_fails_too():
    _, wrong = scene(broken)
    assert verdict(evidence(wrong, wrong)).status == "FAIL"


def test_no_result_at_all_is_no_pass():
    good, _ = scene(nothing)
    for missing in (Side(), Side(rows=np.empty((0, 64), np.float32))):
        sides = (missing, missing) if missing.rows is not None else (good, missing)
        assert verdict(evidence(*sides)).status == "INCONCLUSIVE"


def test_a_good_kernel_passes():
    assert verdict(evidence(*scene(lambda rows: rows))).status == "PASS"


def test_a_dead_comparator_is_caught_by_these_very_cases(monkeypatch):
    """The battery of tests/compare/test_controls.py mutates every part; here the one of the story."""
    monkeypatch.setattr("edge0verify.compare.causes.unwritten.plan", lambda e: False)
    monkeypatch.setattr(equal, "execute", lambda e: np.ones(e.same.shape, bool))
    assert verdict(evidence(*scene(broken))).status == "PASS", "the mutation must have disarmed the comparator"
