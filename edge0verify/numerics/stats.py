"""Statistics of right and wrong answers: what a difference between two configurations proves, and what it could hide.

Everything is computed from integer counts, with the exact binomial distribution; nothing is approximated by a normal.
Sources: McNemar 1947 in its exact binomial form; Clopper and Pearson 1934; Efron's percentile bootstrap, over items.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np


def binomial_tail(k: int, n: int, p: float) -> float:
    """P(X <= k) for X binomial(n, p), summed in log space so that n in the thousands does not overflow."""
    _check_count(k, n)
    return _tail(k, n, p, _log_choose(k, n))


def _log_choose(k: int, n: int) -> np.ndarray:
    """log of n over i for i = 0..k, f64 [k + 1]."""
    return np.array([math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(k + 1)])


def _tail(k: int, n: int, p: float, log_choose: np.ndarray) -> float:
    if k == n or p <= 0.0:
        return 1.0
    if p >= 1.0:
        return 0.0
    i = np.arange(k + 1)
    terms = log_choose + i * math.log(p) + (n - i) * math.log1p(-p)
    top = float(terms.max())
    return min(1.0, math.exp(top) * math.fsum(np.exp(terms - top)))


def upper_limit(k: int, n: int, *, confidence: float = 0.95) -> float:
    """The largest rate that k occurrences in n trials still allow: one-sided exact (Clopper-Pearson) limit.

    With k = 0 this is 1 - (1 - confidence)**(1/n), of which 3/n is the rule of thumb. n = 0 allows everything: 1.0.
    """
    _check_count(k, n)
    _check_confidence(confidence)
    if k == n:
        return 1.0
    if k == 0:
        return -math.expm1(math.log1p(-confidence) / n)
    low, high, log_choose = k / n, 1.0, _log_choose(k, n)
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if _tail(k, n, middle, log_choose) > 1.0 - confidence:
            low = middle
        else:
            high = middle
    return high


def lower_limit(k: int, n: int, *, confidence: float = 0.95) -> float:
    """The smallest rate that k occurrences in n trials still allow (one-sided exact)."""
    return 1.0 - upper_limit(n - k, n, confidence=confidence)


def clopper_pearson(k: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided exact interval of a rate: (low, high), each side with half of the error."""
    _check_confidence(confidence)
    one_sided = 1.0 - 0.5 * (1.0 - confidence)
    return lower_limit(k, n, confidence=one_sided), upper_limit(k, n, confidence=one_sided)


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Two-sided exact McNemar p-value from the discordant pairs: right in a alone, right in b alone.

    Under equal quality each discordant pair is a fair coin. No discordant pair is no evidence of a difference: 1.0.
    """
    if only_a < 0 or only_b < 0:
        raise ValueError(f"discordant counts must not be negative: {only_a}, {only_b}")
    n, k = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0
    # Integer arithmetic: the ratio of two big integers is the correctly rounded float.
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, 2 * tail / 2**n)


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval round it."""

    estimate: float
    low: float
    high: float
    confidence: float
    samples: int
    """Resamples drawn; 0 where the interval is exact."""
    method: str


def paired_bootstrap(
    a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray, *, seed: int, samples: int = 10_000, confidence: float = 0.95
) -> Interval:
    """Percentile bootstrap interval of mean(b - a) over items; a, b: [n] scores of the same items in the same order.

    Items are resampled as pairs, so what makes an item hard for both sides cancels. The seed makes it repeatable.
    When no pair differs, every resample gives zero and the percentiles would claim certainty: the interval is then the
    exact one that n pairs without a difference still allow, on either side.
    """
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.ndim != 1 or left.shape != right.shape:
        raise ValueError(f"paired scores need one shape [n]: {left.shape} and {right.shape}")
    if left.size == 0:
        raise ValueError("paired scores: no items")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise ValueError("paired scores must be finite")
    _check_confidence(confidence)
    difference = right - left
    n = difference.size
    if not difference.any():
        limit = upper_limit(0, n, confidence=1.0 - 0.5 * (1.0 - confidence))
        return Interval(0.0, -limit, limit, confidence, 0, "exact: no pair differs")
    random = np.random.default_rng(seed)
    # Resampling n pairs is drawing how often each distinct difference occurs: one multinomial row per resample.
    values, counts = np.unique(difference, return_counts=True)
    means = random.multinomial(n, counts / n, size=samples) @ values / n
    low, high = np.quantile(means, [0.5 * (1.0 - confidence), 0.5 * (1.0 + confidence)])
    return Interval(float(difference.mean()), float(low), float(high), confidence, samples, f"paired bootstrap, seed {seed}")


@dataclass(frozen=True)
class Score:
    """Right answers of n, as integers: the only form in which scores may be added."""

    right: int
    n: int

    def __post_init__(self) -> None:
        _check_count(self.right, self.n)

    def __add__(self, other: Score) -> Score:
        return Score(self.right + other.right, self.n + other.n)

    @property
    def rate(self) -> float | None:
        """Share of right answers; None when nothing was asked."""
        return self.right / self.n if self.n else None

    def still_allows(self, *, confidence: float = 0.95) -> float:
        """The failure rate that this score still allows (one-sided exact)."""
        return upper_limit(self.n - self.right, self.n, confidence=confidence)

    def sentence(self, *, confidence: float = 0.95) -> str:
        """Such as '40 of 40 still allows 7.2 % failures at 95 %'."""
        allowed = 100 * self.still_allows(confidence=confidence)
        return f"{self.right} of {self.n} still allows {allowed:.1f} % failures at {100 * confidence:g} %"


def merge_scores(scores: Iterable[Score]) -> Score:
    """The score over all parts, from their integer counts; a mean of percentages would weigh small parts too much."""
    return sum(scores, Score(0, 0))


@dataclass(frozen=True)
class PairedCounts:
    """The four cells of two configurations on the same items."""

    both: int
    only_a: int
    only_b: int
    neither: int

    def __post_init__(self) -> None:
        for name in ("both", "only_a", "only_b", "neither"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} must be a count, found {value!r}")

    def __add__(self, other: PairedCounts) -> PairedCounts:
        return PairedCounts(
            self.both + other.both, self.only_a + other.only_a, self.only_b + other.only_b, self.neither + other.neither
        )

    @property
    def n(self) -> int:
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def a(self) -> Score:
        return Score(self.both + self.only_a, self.n)

    @property
    def b(self) -> Score:
        return Score(self.both + self.only_b, self.n)

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """The items back as two arrays of 0 and 1 [n], in the order both, only a, only b, neither."""
        cells = [self.both, self.only_a, self.only_b, self.neither]
        return np.repeat([1.0, 1.0, 0.0, 0.0], cells), np.repeat([1.0, 0.0, 1.0, 0.0], cells)


def pair_items(a: Iterable[tuple[Hashable, bool]], b: Iterable[tuple[Hashable, bool]]) -> PairedCounts:
    """Joins two lists of (item id, right) by id. A repeated id, or an id on one side only, is a ValueError naming it."""
    left, right = _by_id("a", a), _by_id("b", b)
    alone = [key for key in (*left, *right) if key not in left or key not in right]
    if alone:
        raise ValueError(f"{len(alone)} items are on one side only, first {alone[0]!r}")
    cells = [(left[key], right[key]) for key in left]
    return PairedCounts(*(cells.count(cell) for cell in ((True, True), (True, False), (False, True), (False, False))))


@dataclass(frozen=True)
class PairedResult:
    """What paired items say about b against a. `hidden_loss` is the rate of items lost by b that the counts still allow."""

    counts: PairedCounts
    p: float
    difference: Interval
    hidden_loss: float
    confidence: float

    def sentences(self) -> list[str]:
        """The result in words, the weak parts included."""
        counts, percent = self.counts, f"{100 * self.confidence:g} %"
        said = [
            f"a {counts.a.right} of {counts.n}, b {counts.b.right} of {counts.n}; "
            f"right in a alone {counts.only_a}, in b alone {counts.only_b}",
            f"exact McNemar p = {self.p:.4g}",
            f"b - a = {100 * self.difference.estimate:+.2f} points, {percent} interval [{100 * self.difference.low:+.2f}, "
            f"{100 * self.difference.high:+.2f}] ({self.difference.method})",
        ]
        if counts.only_a + counts.only_b == 0:
            said.append("no item differs: no evidence of a difference, and none of equality beyond the next line")
        kept, loss = counts.n - counts.only_a, 100 * self.hidden_loss
        said.append(f"{kept} of {counts.n} not lost still allows a loss of {loss:.1f} % at {percent}")
        return said

    def to_json(self) -> dict:
        """The fields that a record or a report keeps."""
        counts, difference = self.counts, self.difference
        return {
            "both": counts.both,
            "only_a": counts.only_a,
            "only_b": counts.only_b,
            "neither": counts.neither,
            "n": counts.n,
            "mcnemar_p": self.p,
            "difference": difference.estimate,
            "low": difference.low,
            "high": difference.high,
            "confidence": self.confidence,
            "method": difference.method,
            "hidden_loss": self.hidden_loss,
        }


def paired_result(counts: PairedCounts, *, seed: int = 0, samples: int = 10_000, confidence: float = 0.95) -> PairedResult:
    """McNemar, interval and hidden loss of one table of paired counts. No items: ValueError."""
    if counts.n == 0:
        raise ValueError("paired result: no items")
    a, b = counts.scores()
    return PairedResult(
        counts,
        mcnemar_exact(counts.only_a, counts.only_b),
        paired_bootstrap(a, b, seed=seed, samples=samples, confidence=confidence),
        upper_limit(counts.only_a, counts.n, confidence=confidence),
        confidence,
    )


def _by_id(side: str, items: Iterable[tuple[Hashable, bool]]) -> dict[Hashable, bool]:
    known: dict[Hashable, bool] = {}
    for key, right in items:
        if key in known:
            raise ValueError(f"item {key!r} occurs twice in {side}")
        known[key] = bool(right)
    return known


def _check_count(k: int, n: int) -> None:
    # A rate passed where a count belongs would merge into nonsense, so floats are refused, whole or not.
    for value in (k, n):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise ValueError(f"counts must be integers, found {value!r}")
    if not 0 <= k <= n:
        raise ValueError(f"a count must lie in 0..{n}, found {k}")


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, found {confidence}")
