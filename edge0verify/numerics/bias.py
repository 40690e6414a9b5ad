"""Bias test: faults that stay inside the bound but are not what rounding looks like.

With z = (y - t)/sigma, legitimate rounding has mean 0, no trend with the result or with any block's share of it, no column of
its own, and mean square near 1.  Each statistic is a t-value; a fault of the last bit repeated over 10^4 values stands far out.
Source: ordinary least squares t-tests; the limits are those of kernels/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .spread import Spread

LIMIT_T = 6.0
"""|t| of any statistic above this is `biased`; legitimate runs stay below 4.5."""
LIMIT_Z2 = (0.5, 2.0)
"""Mean z^2 outside this is `biased`."""
LIMIT_Z = 12.0
"""A single |z| above this is `suspect`."""
FEWEST = 10_000
"""Values below which no verdict is given."""
NOTHING = 2.0**-220
"""A variance up to this says that nothing was rounded: every partial result is zero (weights or activations that are all zero)."""
_FEWEST_ROWS = 8  # a column mean over fewer rows says nothing
_KEPT = 64  # suspect places that are remembered


@dataclass(frozen=True, kw_only=True)
class Bias:
    """Outcome for one tensor of one layer."""

    n: int
    """Values tested; those without any rounding (see `NOTHING`) and non-finite ones are left out."""
    mean: float
    """t-value of mean z."""
    sign: float
    """t-value of mean z*sign(t): rounding toward or away from zero."""
    gain: float
    """t-value of the slope of z on t/sigma: a factor on the whole result."""
    blocks: np.ndarray
    """t-value [K blocks] of the slope on each block's own term; empty where the terms were not given."""
    columns: np.ndarray
    """t-value [M] of the mean z of each column."""
    column_signs: np.ndarray
    """t-value [M] of the mean z*sign(t) of each column: one whose values are too large, or too small, in magnitude."""
    mean_square: float
    suspects: int
    """Values with |z| > 12."""
    places: tuple[tuple[int, int, float], ...]
    """(row, column, z) of the first suspects."""
    reasons: tuple[str, ...] = field(default=())
    """Each statistic that is out of limits, in words; empty where none is or where n < 10^4."""

    @property
    def tested(self) -> bool:
        """Whether there were enough values for a verdict."""
        return self.n >= FEWEST

    @property
    def biased(self) -> bool:
        return bool(self.reasons)

    @property
    def largest(self) -> float:
        """Largest |t| of all statistics."""
        every = np.concatenate([[self.mean, self.sign, self.gain], self.blocks, self.columns, self.column_signs])
        return float(np.abs(every).max())

    def as_dict(self) -> dict:
        """Plain numbers for a report: the statistics, the worst block and column, the reasons."""
        def worst(values):
            if not len(values):
                return None
            at = int(np.abs(values).argmax())
            return {"index": at, "t": float(values[at])}

        return {"n": self.n, "tested": self.tested, "mean_t": self.mean, "sign_t": self.sign, "gain_t": self.gain,
                "block_t": worst(self.blocks), "column_t": worst(self.columns), "column_sign_t": worst(self.column_signs),
                "mean_z2": self.mean_square, "suspects": self.suspects, "places": [list(p) for p in self.places],
                "reasons": list(self.reasons)}


class BiasTest:
    """Accumulates one tensor chunk by chunk; the sums are float64 and their order is the order of the calls."""

    def __init__(self, columns: int, blocks: int = 0):
        """`columns` M of the tensor, `blocks` the number of terms per value (0: no slope per block)."""
        self._n = self._rows = self._suspects = 0
        self._z = self._zz = self._zs = self._zx = self._xx = 0.0
        self._zb, self._bb = np.zeros(blocks), np.zeros(blocks)
        self._column = np.zeros((4, columns))  # count, sum z, sum z^2, sum z*sign(t)
        self._places: list[tuple[int, int, float]] = []

    def add(self, y: np.ndarray, spread: Spread) -> None:
        """Rows y float32 [n, M] beside their spread."""
        self.add_values(y, spread.t, spread.variance, spread.terms)

    def add_values(self, y: np.ndarray, t: np.ndarray, variance: np.ndarray, terms: np.ndarray | None = None) -> None:
        """As `add` from its parts; `terms` float64 [blocks, n, M] may be left out where no blocks were declared."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            inverse = 1.0 / np.sqrt(variance)
            z = (y - t) * inverse
        off = np.isfinite(y) & np.isfinite(t) & ~np.isfinite(z) & (y != t)  # no rounding is declared, yet it differs
        used = np.isfinite(z) & np.isfinite(inverse)
        wild = (np.abs(np.where(used, z, 0.0)) > LIMIT_Z) | off
        used &= variance > NOTHING
        if wild.any():
            self._suspects += int(wild.sum())
            for row, column in np.argwhere(wild)[:_KEPT - len(self._places)]:
                self._places.append((self._rows + int(row), int(column), float(z[row, column])))
        self._rows += len(y)
        if not used.all():
            z, inverse, t = np.where(used, z, 0.0), np.where(used, inverse, 0.0), np.where(used, t, 0.0)
            terms = None if terms is None else np.where(used, terms, 0.0)
        square = z * z
        signed = z * np.sign(t)
        self._column += used.sum(axis=0), z.sum(axis=0), square.sum(axis=0), signed.sum(axis=0)
        self._n += int(used.sum())
        self._z += z.sum()
        self._zz += square.sum()
        self._zs += signed.sum()
        x = t * inverse
        self._zx += (z * x).sum()
        self._xx += (x * x).sum()
        for b in range(len(self._zb)):
            x = terms[b] * inverse
            self._zb[b] += (z * x).sum()
            self._bb[b] += (x * x).sum()

    def add_sums(self, totals: np.ndarray, blocks: np.ndarray, columns: np.ndarray, rows: int, places=()) -> None:
        """Add `rows` rows of which only the sums are known.

        totals float64 [7]: count, z, z^2, z*sign(t), z*x, x^2 with x = t/sigma, suspects; blocks [2, blocks]: z*x and x^2 of each
        term; columns [4, columns]: count, z, z^2, z*sign(t); places: (row, column, z) of suspects, rows counted from the first of
        these.
        """
        self._places.extend((self._rows + row, column, z) for row, column, z in places[:_KEPT - len(self._places)])
        self._rows += rows
        self._n += int(totals[0])
        self._z, self._zz, self._zs = self._z + totals[1], self._zz + totals[2], self._zs + totals[3]
        self._zx, self._xx = self._zx + totals[4], self._xx + totals[5]
        self._suspects += int(totals[6])
        self._zb += blocks[0]
        self._bb += blocks[1]
        self._column += columns

    def result(self) -> Bias:
        """Statistics of all that was added, with the reasons to call it biased."""
        n = self._n
        count, *sums = self._column
        if n < 2:
            none = np.zeros(0)
            return Bias(n=n, mean=0.0, sign=0.0, gain=0.0, blocks=none, columns=none, column_signs=none, mean_square=float("nan"),
                        suspects=self._suspects, places=tuple(self._places))
        deviation = np.sqrt(max(self._zz / n - (self._z / n) ** 2, 1e-12))
        total, square, signed = sums
        columns, column_signs = (_columns_t(t, square, count, deviation) for t in (total, signed))
        found = {"n": n, "mean": _mean_t(self._z, self._zz, n), "sign": _mean_t(self._zs, self._zz, n),
                     "gain": float(_slope_t(self._zx, self._xx, self._zz, n)), "blocks": _slope_t(self._zb, self._bb, self._zz, n),
                     "columns": columns, "column_signs": column_signs, "mean_square": self._zz / n, "suspects": self._suspects,
                     "places": tuple(self._places)}
        return Bias(**found, reasons=tuple(_reasons(**found)) if n >= FEWEST else ())


def _mean_t(total: float, square: float, n: int) -> float:
    """t-value of a mean from the sum and the sum of squares of n values."""
    variance = max(square / n - (total / n) ** 2, 1e-12)
    return float(total / np.sqrt(n * variance))


def _columns_t(total: np.ndarray, square: np.ndarray, count: np.ndarray, deviation: float) -> np.ndarray:
    """t-value of the mean of each column from its sum, sum of squares and count; 0 where it has few rows."""
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.sqrt(np.maximum(square / count - (total / count) ** 2, 0.0))
        # A quiet column must not look loud for having few rows: its spread counts as at least the tensor's.
        return np.where(count >= _FEWEST_ROWS, total / np.sqrt(count) / np.maximum(own, deviation), 0.0)


def _slope_t(zx, xx, zz: float, n: int):
    """t-value of the slope of z on x through the origin; 0 where x never varies."""
    zx, xx = np.asarray(zx, np.float64), np.asarray(xx, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = np.maximum((zz - zx * zx / xx) / (n - 1), 1e-12)
        return np.where(xx > 0, zx / np.sqrt(xx * residual), 0.0)


def _reasons(*, n, mean, sign, gain, blocks, columns, column_signs, mean_square, suspects, places):
    """The statistics that are out of limits, in words.  A NaN is out of limits."""
    for value, what in ((mean, "mean of z"), (sign, "mean of z*sign(t): rounding is directed"), (gain, "gain of the whole result")):
        if not abs(value) <= LIMIT_T:
            yield f"{what}, t = {value:.1f}"
    of_columns = ((columns, "mean of column"), (column_signs, "mean of z*sign(t) of column"))
    for values, what in ((blocks, "slope on K block"), *of_columns):
        if len(values) and not np.abs(values).max() <= LIMIT_T:
            at = int(np.abs(values).argmax())
            yield f"{what} {at}, t = {values[at]:.1f} ({int((np.abs(values) > LIMIT_T).sum())} beyond {LIMIT_T:g})"
    if not LIMIT_Z2[0] <= mean_square <= LIMIT_Z2[1]:
        yield f"mean z^2 = {mean_square:.3g}, outside [{LIMIT_Z2[0]:g}, {LIMIT_Z2[1]:g}]"
