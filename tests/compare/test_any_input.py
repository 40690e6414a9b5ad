"""Whatever two sides hold: no exception, counts that add up, and no pass over what no contract allows."""

import numpy as np
import pytest

from edge0verify.compare import compare
from edge0verify.numerics.blocks import Blocks, poison_f32
from edge0verify.records.evidence import Evidence, LoneRows, Router, Side

SPECIAL = np.array([0, -0.0, 1, 2, 1e-45, 3e38, np.inf, -np.inf, np.nan], np.float32)
FAILING = {"nonfinite", "unwritten", "unexplained", "structured", "stale", "permuted"}


class Maker:
    """Random sides; everything comes from one seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def chance(self, share):
        return self.rng.random() < share

    def rows(self, n, m):
        y = self.rng.standard_normal((n, m)).astype(np.float32)
        if self.chance(0.3):
            odd = self.rng.random((n, m)) < 0.1
            y[odd] = self.rng.choice(SPECIAL, odd.sum())
        if self.chance(0.1):
            y[self.rng.integers(0, n)] = poison_f32(m)
        return y

    def judged(self, y):
        if self.chance(0.3):
            return {}
        t = self.rng.standard_normal(y.shape) if self.chance(0.2) else y.astype(np.float64)
        if self.chance(0.1):
            t[self.rng.integers(0, len(t))] = np.nan
        return {"t": t, "bound": np.full(y.shape, self.rng.choice([0, 1e-6, 0.5, np.inf]))}

    def changed(self, y):
        """A few faults of a kernel's kind, one on top of the other."""
        y = y.copy()
        n, m = y.shape
        for kind in self.rng.integers(0, 8, self.rng.integers(0, 3)):
            row, column = self.rng.integers(0, n), self.rng.integers(0, m)
            if kind == 0:
                y = y[self.rng.permutation(n)]
            elif kind == 1:
                y[row] = y[self.rng.integers(0, n)]
            elif kind == 2:
                y[:, column:] = 0
            elif kind == 3:
                y[row:] = 1
            elif kind == 4:
                y[:: self.rng.integers(1, 9)] *= y.dtype.type(2)
            elif kind == 5:
                y = np.roll(y, column, axis=1)
            elif kind == 6:
                y[:, column] += y.dtype.type(1)
            else:
                y[row, column] = 3
        return np.ascontiguousarray(y)

    def stored(self, n, m):
        wide = self.chance(0.3)
        d = np.abs(self.rng.standard_normal((n, m // 32))).astype(np.float32 if wide else np.float16)
        if self.chance(0.2):
            d[self.rng.integers(0, n)] = self.rng.choice([np.nan, 0, np.inf])
        codes = self.rng.integers(-128, 128, (n, m)).astype(np.int8)
        return Blocks(codes, d, None if wide else d.copy(), "mmq" if wide else "mmvq")

    def pair(self, kind, n):
        """(a, b, more of the evidence)"""
        if kind == "rows":
            m = int(self.rng.choice([1, 2, 7, 8, 9, 31, 64]))
            y = self.rows(n, m)
            older = Side(rows=self.rows(max(1, n - 1), m))
            previous = (lambda: ("layer 2", older) if n > 2 else None) if self.chance(0.3) else None
            parts = self.rng.standard_normal((4, n, m))
            b = Side(rows=self.changed(y), previous=previous, terms=(lambda rows, width: np.repeat(parts[:, rows], 32 // width, 0)),
                     **self.judged(y))
            return Side(rows=y, **self.judged(y)), b, {}
        if kind == "blocks":
            m = int(self.rng.choice([32, 64, 96]))
            a = self.stored(n, m)
            b = Blocks(self.changed(a.codes), self.changed(a.d), a.s, a.quantiser) if self.chance(0.5) else self.stored(n, m)
            y = a.values().astype(np.float32)
            return Side(blocks=a, rows=y if self.chance(0.3) else None, **self.judged(y)), Side(blocks=b, **self.judged(y)), {}
        logits = self.rng.standard_normal((n, 8)).astype(np.float32)
        other = logits + np.float32(0.1 if self.chance(0.5) else 0) * self.rng.standard_normal(logits.shape).astype(np.float32)
        if self.chance(0.3):
            other[self.rng.integers(0, n)] = np.nan
        k = self.rng.integers(1, 5)
        ids = [np.argsort(-x, axis=1)[:, :k].astype(np.int32) for x in (logits, other)]
        if self.chance(0.2):
            ids[1][self.rng.integers(0, n)] = self.rng.integers(-1, 10, k)
        bound = np.full(logits.shape, self.rng.choice([0, 1e-6, 0.1])) if self.chance(0.7) else None
        more = {"router": Router(a=logits, b=other, bound=bound)} if self.chance(0.7) else {}
        return Side(ids=ids[0]), Side(ids=ids[1]), {"limit": 8, **more}

    def evidence(self):
        n, kind = int(self.rng.choice([1, 2, 3, 33, 97])), str(self.rng.choice(["rows", "blocks", "ids"]))
        a, b, more = self.pair(kind, n)
        if self.chance(0.5):
            more["keys"] = np.arange(n, dtype=np.int32)[:, None]
        for name in ("inherited", "removed"):
            if self.chance(0.2):
                more[name] = self.rng.random(n) < 0.5
        if self.chance(0.1):
            keys = np.zeros((2, 1), np.int32)
            more["lone"] = LoneRows(a=keys, b=keys[:0], within=self.rng.choice([True, False, None]))
        return Evidence(layer=0, tensor="x", kind=kind, a=a, b=b, **more)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.filterwarnings("error")
def test_counts_add_up_and_nothing_raises(seed):
    maker = Maker(seed)
    for _ in range(60):
        with np.errstate(all="ignore"):
            evidence = maker.evidence()
        for found in compare(evidence, threads=1):
            assert sum(found.causes.values()) == found.n
            if found.status == "PASS":
                assert not FAILING & set(found.causes)
            else:
                assert found.reasons
