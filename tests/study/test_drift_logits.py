"""Near ties in ulps, changed choices, KL with its error, and log-probs that their logits do not give."""

from __future__ import annotations

import numpy as np
import pytest

from edge0verify.compare.top8 import log_softmax
from edge0verify.numerics.rounding import ulp
from edge0verify.study.drift_logits import apart, choices, leads, near_ties, wrong_logprobs
from edge0verify.study.drift_types import settle

RNG = np.random.default_rng(3)


def logits(n=40, vocabulary=30):
    return (4 * RNG.standard_normal((n, vocabulary))).astype(np.float32)


class TestTies:
    def test_a_lead_is_judged_by_the_ulp_at_the_logits_magnitude(self):
        """One ulp is 1.2e-7 at 1.5 and 1.2e-4 at 1,500: the same lead is a tie at one and none at the other."""
        small, large = np.float32(1.5), np.float32(1500)
        x = np.zeros((3, 4), np.float32)
        x[0, :2] = small, np.nextafter(small, np.float32(0))
        x[1, :2] = large, np.nextafter(large, np.float32(0))
        x[2, :2] = small, small - np.float32(ulp(1500.0).item())
        _, lead, ulps = leads(x)
        assert ulps.tolist() == [1.0, 1.0, 1024.0] and lead[1] == lead[2]
        assert near_ties(x)["exact"] == 2

    def test_equal_logits_go_to_the_lower_id_and_lead_by_nothing(self):
        best, lead, _ = leads(np.array([[1, 3, 3, 0]], np.float32))
        assert (best[0], lead[0]) == (1, 0.0)

    def test_the_density_counts_leads_below_each_limit(self):
        x = np.zeros((4, 3), np.float32)
        x[:, 0] = [0.0005, 0.005, 0.05, 0.5]
        assert near_ties(x)["below"] == {"0.001": 0.25, "0.01": 0.5, "0.1": 0.75}


class TestApart:
    def test_the_same_logits_are_not_apart(self):
        x = logits()
        found = apart(x, x.copy())
        assert (found["equal"], found["mean_kl"], found["max_move"], found["changes"]) == (40, 0.0, 0.0, [])

    def test_mean_and_standard_error_are_those_of_the_positions(self):
        a, b = logits(), logits()
        la, lb = log_softmax(a), log_softmax(b)
        kl = (np.exp(la) * (la - lb)).sum(axis=1)
        found = apart(a, b)
        assert found["mean_kl"] == pytest.approx(kl.mean())
        assert found["kl_se"] == pytest.approx(kl.std(ddof=1) / np.sqrt(40))

    def test_a_changed_choice_carries_its_margin_and_how_far_it_moved(self):
        a = np.array([[2.0, 1.75, 0.0]], np.float32)
        b = np.array([[1.5, 1.75, 0.0]], np.float32)
        (change,) = choices(a, b)
        assert (change["a"], change["b"], change["margin"], change["moved"], change["tie"]) == (0, 1, 0.25, 0.5, False)
        assert change["ulps"] == 0.25 / 2.0**-22

    def test_nan_does_not_hide(self):
        a, b = logits(), logits()
        b[7, 3] = np.nan
        assert np.isnan(apart(a, b)["max_kl"])


class TestLogprobs:
    def top8(self, x):
        ids = np.argsort(-x, axis=1, kind="stable")[:, :8].astype(np.int32)
        return ids, np.take_along_axis(log_softmax(x), ids, 1).astype(np.float32)

    def test_those_of_their_logits_are_right(self):
        x = logits()
        assert wrong_logprobs(*self.top8(x), x) is None

    @pytest.mark.parametrize("off", [1e-4, -3e-6, np.nan])
    def test_right_ids_with_wrong_log_probs_are_caught(self, off):
        x = logits()
        ids, logprobs = self.top8(x)
        logprobs[11, 2] += np.float32(off)
        assert "position 11" in wrong_logprobs(ids, logprobs, x)

    def test_log_probs_in_float32_are_not_blamed(self):
        x = logits()
        ids, _ = self.top8(x)
        single = x - x.max(axis=1, keepdims=True)
        single = single - np.log(np.exp(single).sum(axis=1, keepdims=True, dtype=np.float32), dtype=np.float32)
        assert wrong_logprobs(ids, np.take_along_axis(single, ids, 1), x) is None

    def test_an_id_that_is_not_among_the_largest_is_caught(self):
        x = logits()
        ids, logprobs = self.top8(x)
        ids[5, 7] = int(np.argmin(x[5]))
        logprobs[5, 7] = log_softmax(x)[5, ids[5, 7]]
        assert "position 5" in wrong_logprobs(ids, logprobs, x)


def test_a_suspect_reference_comes_before_any_blame():
    assert settle(suspect=["s"], failures=["f"], unproven=[]) == ("INCONCLUSIVE", ("s", "f"))
    assert settle(suspect=[], failures=["f"], unproven=["u"]) == ("FAIL", ("f", "u"))
    assert settle(suspect=[], failures=[], unproven=["u"])[0] == "INCONCLUSIVE"
    assert settle(suspect=[], failures=[], unproven=[]) == ("PASS", ())
