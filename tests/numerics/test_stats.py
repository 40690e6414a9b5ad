"""The statistics of right and wrong answers, held to scipy (which the code under test may not use) and to cases worked by hand."""

import math

import numpy as np
import pytest
from scipy import stats as reference

from edge0verify.numerics import stats


class TestLimits:
    def test_forty_of_forty_still_allows_7_2_percent(self):
        assert stats.Score(40, 40).sentence() == "40 of 40 still allows 7.2 % failures at 95 %"
        assert stats.upper_limit(0, 40) == pytest.approx(1 - 0.05 ** (1 / 40), rel=1e-14)

    @pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 2), (0, 12), (1, 12), (11, 12), (3, 995), (877, 995), (40, 10_000)])
    def test_the_exact_interval_is_that_of_the_beta_distribution(self, k, n):
        low, high = stats.clopper_pearson(k, n)
        expected = reference.binomtest(k, n).proportion_ci(0.95, method="exact")
        assert (low, high) == (pytest.approx(expected.low, abs=1e-10), pytest.approx(expected.high, abs=1e-10))

    def test_the_tail_is_that_of_the_binomial_distribution(self):
        for k, n, p in ((0, 5, 0.1), (3, 5, 0.9), (500, 1000, 0.5), (10, 5000, 0.01)):
            assert stats.binomial_tail(k, n, p) == pytest.approx(reference.binom.cdf(k, n, p), rel=1e-9)

    def test_nothing_asked_allows_everything(self):
        assert stats.upper_limit(0, 0) == 1.0
        assert stats.Score(0, 0).rate is None

    @pytest.mark.parametrize(("k", "n"), [(2, 1), (-1, 3), (0.5, 1), (1.0, 2), (True, 2)])
    def test_what_is_no_count_is_refused(self, k, n):
        with pytest.raises(ValueError, match="count"):
            stats.upper_limit(k, n)


class TestMcNemar:
    def test_it_is_the_binomial_test_of_a_fair_coin(self):
        for b, c in ((1, 0), (5, 1), (1, 5), (10, 10), (0, 6), (300, 360)):
            assert stats.mcnemar_exact(b, c) == pytest.approx(reference.binomtest(b, b + c, 0.5).pvalue, rel=1e-12)

    def test_no_discordant_pair_is_no_evidence(self):
        assert stats.mcnemar_exact(0, 0) == 1.0

    def test_five_lost_and_none_won_is_not_yet_significant_and_six_are(self):
        assert stats.mcnemar_exact(5, 0) > 0.05 > stats.mcnemar_exact(6, 0)

    def test_it_holds_its_level_on_equal_configurations(self):
        random = np.random.default_rng(1)
        flips = random.binomial(12, 0.5, 4000)
        false_alarms = np.mean([stats.mcnemar_exact(int(k), 12 - int(k)) <= 0.05 for k in flips])
        assert false_alarms <= 0.05


class TestPairedBootstrap:
    def test_the_seed_repeats_it(self):
        a, b = np.arange(30) % 3 == 0, np.arange(30) % 4 == 0
        assert stats.paired_bootstrap(a, b, seed=5) == stats.paired_bootstrap(a, b, seed=5)
        assert stats.paired_bootstrap(a, b, seed=5) != stats.paired_bootstrap(a, b, seed=6)

    def test_the_interval_covers_the_truth_about_as_often_as_it_says(self):
        random, covered = np.random.default_rng(3), 0
        for trial in range(300):
            a = random.random(200) < 0.8
            b = np.where(random.random(200) < 0.1, ~a, a)  # true mean of b - a: 0.1 * (0.2 - 0.8) = -0.06
            found = stats.paired_bootstrap(a, b, seed=trial, samples=1000)
            covered += found.low <= -0.06 <= found.high
        assert 0.90 <= covered / 300 <= 0.99

    def test_pairs_give_a_tighter_interval_than_the_same_values_unpaired(self):
        random = np.random.default_rng(4)
        a = (random.random(200) < 0.5).astype(float)
        b = a.copy()
        b[:6] = 1 - b[:6]
        paired = stats.paired_bootstrap(a, b, seed=0)
        broken = stats.paired_bootstrap(a, random.permutation(b), seed=0)
        assert paired.high - paired.low < 0.4 * (broken.high - broken.low)

    def test_no_differing_pair_does_not_claim_certainty(self):
        found = stats.paired_bootstrap([1.0] * 40, [1.0] * 40, seed=0)
        assert found.estimate == 0.0
        assert (found.low, found.high) == (pytest.approx(-0.0881, abs=1e-4), pytest.approx(0.0881, abs=1e-4))
        assert found.method == "exact: no pair differs"

    @pytest.mark.parametrize(
        ("a", "b", "said"), [([], [], "no items"), ([1.0], [1.0, 0.0], "one shape"), ([math.nan], [1.0], "finite")]
    )
    def test_what_cannot_be_paired_is_refused(self, a, b, said):
        with pytest.raises(ValueError, match=said):
            stats.paired_bootstrap(a, b, seed=0)


class TestScores:
    def test_scores_merge_from_integer_counts_and_not_from_percentages(self):
        merged = stats.merge_scores([stats.Score(1, 1), stats.Score(0, 9)])
        assert merged == stats.Score(1, 10)
        assert merged.rate == 0.1  # the mean of the percentages would be 50 %

    def test_a_percentage_is_no_score(self):
        with pytest.raises(ValueError, match="integers"):
            stats.Score(97.5, 100)

    def test_merging_nothing_is_an_empty_score(self):
        assert stats.merge_scores([]) == stats.Score(0, 0)


class TestPairItems:
    def test_items_are_joined_by_id_and_not_by_place(self):
        a = [("q1", True), ("q2", False), ("q3", True), ("q4", False)]
        b = [("q4", True), ("q3", False), ("q2", False), ("q1", True)]
        assert stats.pair_items(a, b) == stats.PairedCounts(both=1, only_a=1, only_b=1, neither=1)

    def test_a_repeated_item_is_refused_by_name(self):
        with pytest.raises(ValueError, match="'q1' occurs twice in b"):
            stats.pair_items([("q1", True)], [("q1", True), ("q1", False)])

    def test_an_item_on_one_side_only_is_refused_by_name(self):
        with pytest.raises(ValueError, match="1 items are on one side only, first 'q2'"):
            stats.pair_items([("q1", True), ("q2", True)], [("q1", True)])


class TestPairedResult:
    def test_equal_answers_are_no_proof_of_equality(self):
        said = " | ".join(stats.paired_result(stats.PairedCounts(40, 0, 0, 0)).sentences())
        assert "p = 1" in said
        assert "no evidence of a difference, and none of equality" in said
        assert "40 of 40 not lost still allows a loss of 7.2 % at 95 %" in said

    def test_a_loss_shows_with_its_interval(self):
        found = stats.paired_result(stats.PairedCounts(20, 15, 1, 4))
        assert found.p == pytest.approx(reference.binomtest(1, 16).pvalue)
        assert found.difference.estimate == pytest.approx(-14 / 40)
        assert found.difference.high < 0

    def test_the_cells_add_up_over_parts(self):
        parts = stats.PairedCounts(1, 2, 3, 4) + stats.PairedCounts(10, 20, 30, 40)
        assert (parts.n, parts.a, parts.b) == (110, stats.Score(33, 110), stats.Score(44, 110))

    def test_no_items_is_refused(self):
        with pytest.raises(ValueError, match="no items"):
            stats.paired_result(stats.PairedCounts(0, 0, 0, 0))
