"""The double functions and the small row kernels, against exact or independent arithmetic."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from edge0verify.engine import _native, native
from edge0verify.engine.rope import RopeTable, inverse_frequencies


def sincos(x):
    s, c = np.empty_like(x), np.empty_like(x)
    _native.sincos(x, s, c)
    return s, c


def exp_log(x):
    e, l = np.empty_like(x), np.empty_like(x)  # noqa: E741
    _native.exp_log(x, e, l)
    return e, l


def test_sine_and_cosine(isa):
    rng = np.random.default_rng(1)
    near_zeros = np.arange(-50, 50) * (math.pi / 2)
    x = np.concatenate([rng.uniform(-6000, 6000, 20000), rng.uniform(0, 2**19, 5000), near_zeros, [0.0, 1e-300]])
    s, c = sincos(x)
    assert np.max(np.abs(s - [math.sin(v) for v in x])) < 2.3e-16
    assert np.max(np.abs(c - [math.cos(v) for v in x])) < 2.3e-16


def test_a_float32_angle_would_be_seen():
    """Negative control: angles rounded to float32 first are far outside what the test above allows."""
    x = np.random.default_rng(1).uniform(0, 6000, 1000)
    s, _ = sincos(x.astype(np.float32).astype(np.float64))
    assert np.max(np.abs(s - np.sin(x))) > 1e-5


def test_exponential_and_logarithm(isa):
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-700, 700, 5000), rng.uniform(-1, 1, 5000), rng.uniform(0.5, 2, 5000), [0.0, 1.0]])
    e, _ = exp_log(x)
    want = np.array([math.exp(v) for v in x])
    assert np.max(np.abs(e - want) / want) < 5e-16
    pos = np.abs(x) + 1e-6
    _, l = exp_log(pos)  # noqa: E741
    want = np.array([math.log(v) for v in pos])
    assert np.max(np.abs(l - want) / np.maximum(np.abs(want), 1e-3)) < 5e-16
    e, l = exp_log(np.array([-1000.0, np.nan, -1.0, 0.0]))  # noqa: E741
    assert e[0] == 0 and np.isnan(e[1]) and np.isnan(l[1:]).all()


def test_inverse_frequencies_are_correctly_rounded():
    got = inverse_frequencies(10000.0, 64)
    with localcontext() as context:
        context.prec = 50
        for i, value in enumerate(got):
            exact = Decimal(10000) ** (Decimal(-2 * i) / 64)
            ulp = Decimal(float(np.spacing(value)))
            assert abs(Decimal(float(value)) - exact) <= ulp / 2


def test_rope_table_does_not_depend_on_how_it_grew():
    whole, parts = RopeTable(10000.0, 64), RopeTable(10000.0, 64)
    for at in range(0, 700, 7):
        parts.rows(at, 7)
    for a, b in zip(whole.rows(0, 700), parts.rows(0, 700)):
        assert a.tobytes() == b.tobytes()


def test_norm_follows_its_order_of_operations(isa):
    rng = np.random.default_rng(3)
    for n in (1, 7, 8, 384, 391):
        x = (rng.standard_normal((5, n)) * 10.0 ** rng.integers(-3, 4, (5, 1))).astype(np.float32)
        w = rng.standard_normal(n).astype(np.float32)
        y = native.rmsnorm(x, w, 1e-6, 2)
        for row, got in zip(x, y):
            p = [0.0] * 8
            for i, v in enumerate(row):
                p[i % 8] += float(v) * float(v)
            total = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]))
            r = 1.0 / math.sqrt(total / n + 1e-6)
            assert got.tobytes() == np.array([(float(v) * r) * float(k) for v, k in zip(row, w)]).astype(np.float32).tobytes()


def test_rotation_follows_its_order_of_operations(isa):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((9, 6 * 64)).astype(np.float32)
    cos, sin = RopeTable(10000.0, 64).rows(100, 9)
    y = x.copy()
    _native.rope(y, cos, sin, 6, 1)
    a, b = x.reshape(9, 6, 2, 32)[:, :, 0], x.reshape(9, 6, 2, 32)[:, :, 1]
    c, s = cos[:, None], sin[:, None]
    want = np.stack([a * c - b * s, b * c + a * s], axis=2).reshape(9, -1)
    assert y.tobytes() == want.tobytes()


def test_route_takes_the_largest_and_breaks_ties_by_id(isa):
    nan, inf = np.nan, np.inf
    logits = np.array([[1, 3, 3, 0, 3], [0, -0.0, 0, -1, -1], [nan, 1, nan, inf, 0], [nan] * 5, [-inf] * 5], np.float32)
    ids, weights = native.route(logits, 3, 1)
    assert ids.tolist() == [[1, 2, 4], [0, 1, 2], [3, 1, 4], [0, 1, 2], [0, 1, 2]]
    assert np.allclose(weights[:2], 1 / 3) and np.isnan(weights[2:]).all()


def test_route_weights_against_float64(isa):
    logits = np.random.default_rng(5).standard_normal((500, 16)).astype(np.float32) * 3
    ids, weights = native.route(logits, 4, 2)
    e = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    order = np.argsort(-logits, axis=1, kind="stable")[:, :4]
    chosen = np.take_along_axis(e, order, 1)
    assert (ids == order).all()
    assert np.max(np.abs(weights - chosen / chosen.sum(1, keepdims=True))) < 2e-7


def test_top_logprobs_against_float64(isa):
    logits = np.random.default_rng(6).standard_normal((50, 288)).astype(np.float32) * 8
    logits[0, 10:30] = 40
    ids, logprobs = native.top_logprobs(logits, 8)
    x = logits.astype(np.float64)
    lp = x - x.max(1, keepdims=True)
    lp -= np.log(np.exp(lp).sum(1, keepdims=True))
    order = np.argsort(-logits, axis=1, kind="stable")[:, :8]
    assert (ids == order).all() and ids[0].tolist() == list(range(10, 18))
    want = np.take_along_axis(lp, order, 1).astype(np.float32)
    assert np.max(np.abs(logprobs - want) / np.spacing(np.abs(want))) <= 1


def test_wrong_shapes_are_refused():
    x = np.zeros((2, 8), np.float32)
    with pytest.raises(ValueError, match="rmsnorm"):
        native.rmsnorm(x, np.zeros(7, np.float32), 1e-6, 1)
    with pytest.raises(ValueError, match="not built"):
        native.set_isa("avx9000")
    with pytest.raises(TypeError):
        native.rmsnorm(x[:, ::2], np.zeros(4, np.float32), 1e-6, 1)
