"""What the scenarios share: evidence from arrays, and a verdict over it."""

import numpy as np

from edge0verify.compare import compare_all, judge
from edge0verify.records.evidence import Engagement, Evidence

RAN = Engagement(asked="new", wanted=("D/new/Q8_0",), launches={"D/new/Q8_0": 6})
REFERENCE = Engagement(asked="old", wanted=("D/old/Q8_0",), launches={"D/old/Q8_0": 6})
EPS = 2.0**-24


def evidence(a, b, *, tensor="x", kind="rows", layer=0, **more):
    return Evidence(layer=layer, tensor=tensor, kind=kind, a=a, b=b, **more)


def verdict(*evidences, ran=RAN, **more):
    """The verdict on old (a) against new (b)."""
    return judge(compare_all(evidences), a="old", b="new", engaged_a=REFERENCE, engaged_b=ran, **more)


def token_keys(n):
    return np.stack([np.zeros(n), np.arange(n), np.ones(n)], axis=1).astype(np.int32)


def product(w, x):
    """(serial f32 rows, t f64, bound f64) of weights w [m, k] on rows x [n, k]: fused multiply-adds over k in order."""
    rows = np.zeros((len(x), len(w)))
    for k in range(w.shape[1]):
        rows = (rows + x[:, k, None].astype(np.float64) * w[None, :, k]).astype(np.float32).astype(np.float64)
    t = np.einsum("nk,mk->nm", x.astype(np.float64), w.astype(np.float64))
    s = np.einsum("nk,mk->nm", np.abs(x).astype(np.float64), np.abs(w).astype(np.float64))
    n = w.shape[1]
    return rows.astype(np.float32), t, s * (n * EPS / (1 - n * EPS)) + n * 2.0**-149


def halves(w, x):
    """The same product in another order: the sum of both halves of k."""
    k = w.shape[1] // 2
    return product(w[:, :k], x[:, :k])[0] + product(w[:, k:], x[:, k:])[0]
