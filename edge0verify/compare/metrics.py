"""Figures over the elements of one entry, gathered chunk by chunk and merged in chunk order."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from edge0verify.compare.elements import Elements
from edge0verify.numerics.rounding import ulp_distance


def inner(x: np.ndarray, y: np.ndarray) -> float:
    """Sum of products. Not by BLAS, whose threads would fight those that run the chunks and whose order may vary."""
    return float(np.einsum("i,i->", x.reshape(-1), y.reshape(-1)))


@dataclass
class Distance:
    """Sums for the relative L2 distance of x from y."""

    gap: float = 0.0
    size: float = 0.0

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        gap = x - y
        self.gap += inner(gap, gap)
        self.size += inner(y, y)

    def merge(self, other: Distance) -> None:
        self.gap += other.gap
        self.size += other.size

    @property
    def relative(self) -> float | None:
        """|x - y| / |y|: 0 where both are 0, None where only y is."""
        if self.size > 0:
            return math.sqrt(self.gap / self.size)
        return 0.0 if self.gap == 0 else None


@dataclass
class Moments:
    """Means, variances and covariance of two series, merged without the cancellation of raw sums."""

    n: int = 0
    mean_a: float = 0.0
    mean_b: float = 0.0
    var_a: float = 0.0
    var_b: float = 0.0
    cov: float = 0.0

    @classmethod
    def of(cls, a: np.ndarray, b: np.ndarray) -> Moments:
        if a.size == 0:
            return cls()
        mean_a, mean_b = float(a.mean()), float(b.mean())
        da, db = a - mean_a, b - mean_b
        return cls(a.size, mean_a, mean_b, inner(da, da), inner(db, db), inner(da, db))

    def merge(self, other: Moments) -> None:
        if other.n == 0:
            return
        n = self.n + other.n
        da, db = other.mean_a - self.mean_a, other.mean_b - self.mean_b
        weight = self.n * other.n / n
        self.var_a += other.var_a + da * da * weight
        self.var_b += other.var_b + db * db * weight
        self.cov += other.cov + da * db * weight
        self.mean_a += da * other.n / n
        self.mean_b += db * other.n / n
        self.n = n

    @property
    def correlation(self) -> float | None:
        """Pearson, or None where a side does not vary."""
        scale = math.sqrt(self.var_a) * math.sqrt(self.var_b)
        if not scale > 0 or not math.isfinite(scale):
            return None
        return max(-1.0, min(1.0, self.cov / scale))


@dataclass
class Metrics:
    """Everything an entry reports beside its causes."""

    n: int = 0
    same: int = 0
    max_abs: float = 0.0
    max_ulp: int | None = None
    code_gaps: np.ndarray = field(default_factory=lambda: np.zeros(256, np.int64))
    kept_a: int | None = 0
    kept_b: int | None = 0
    poison_a: int = 0
    poison_b: int = 0
    lone_nonfinite: int = 0
    """NaN or Inf on one side only, or not the same on both."""
    pair: Distance = field(default_factory=Distance)
    to_oracle_a: Distance = field(default_factory=Distance)
    to_oracle_b: Distance = field(default_factory=Distance)
    oracles: Distance = field(default_factory=Distance)
    moments: Moments = field(default_factory=Moments)

    @classmethod
    def of(cls, e: Elements) -> Metrics:
        """Figures of one chunk, without those that need an oracle."""
        made = cls(n=e.same.size, same=int(np.count_nonzero(e.same)))
        made.kept_a, made.kept_b = _kept(e.a.keeps), _kept(e.b.keeps)
        made.poison_a, made.poison_b = int(np.count_nonzero(e.a.poison)), int(np.count_nonzero(e.b.poison))
        unlike = e.a.nonfinite ^ e.b.nonfinite
        if e.unit != "code":  # a code counts as not finite by its scale, which says whether both are alike
            unlike = unlike | (e.a.nonfinite & e.b.nonfinite & ~e.same)
        made.lone_nonfinite = int(np.count_nonzero(unlike))
        a, b = finite_pair(e.values_a, e.values_b)
        if a.size:
            made.max_abs = float(np.abs(a - b).max())
            made.pair.add(a, b)
            made.moments = Moments.of(a, b)
        if e.raw_a is not None and e.raw_b is not None:
            raw_a, raw_b = finite_pair(e.raw_a, e.raw_b)
            made.max_ulp = int(ulp_distance(raw_a, raw_b).max()) if raw_a.size else None
        if e.code_gap is not None and made.same < made.n:
            made.code_gaps = np.bincount(e.code_gap.ravel(), minlength=256).astype(np.int64)
        return made

    def add_oracle(self, e: Elements, oracle_a, oracle_b, t_a, t_b) -> None:
        """Distances to the stage's oracle and between the own oracles; each f64 like the chunk, or None."""
        if oracle_a is not None:
            self.to_oracle_a.add(*finite_pair(e.values_a, oracle_a))
        if oracle_b is not None:
            self.to_oracle_b.add(*finite_pair(e.values_b, oracle_b))
        if t_a is not None and t_b is not None:
            self.oracles.add(*finite_pair(t_a, t_b))

    def merge(self, other: Metrics) -> None:
        """Add a chunk's figures to these."""
        self.n += other.n
        self.same += other.same
        self.max_abs = max(self.max_abs, other.max_abs)
        if other.max_ulp is not None:
            self.max_ulp = max(self.max_ulp or 0, other.max_ulp)
        self.code_gaps += other.code_gaps
        self.kept_a = None if self.kept_a is None or other.kept_a is None else self.kept_a + other.kept_a
        self.kept_b = None if self.kept_b is None or other.kept_b is None else self.kept_b + other.kept_b
        self.poison_a += other.poison_a
        self.poison_b += other.poison_b
        self.lone_nonfinite += other.lone_nonfinite
        for name in ("pair", "to_oracle_a", "to_oracle_b", "oracles", "moments"):
            getattr(self, name).merge(getattr(other, name))

    def histogram(self) -> dict[str, int]:
        """Codes that differ, by how far."""
        return {str(gap): int(n) for gap, n in enumerate(self.code_gaps) if gap and n}


def _kept(mask: np.ndarray | None) -> int | None:
    return None if mask is None else int(np.count_nonzero(mask))


def finite_pair(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The elements that are finite in both; the arrays themselves where all are."""
    fine = np.isfinite(a) & np.isfinite(b)
    return (a, b) if fine.all() else (a[fine], b[fine])
