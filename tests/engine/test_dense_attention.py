"""Dense rows and cached attention: order of operations, and the same bits however the work is cut."""

import numpy as np
import pytest

from edge0verify.engine import native

from ..transcription.arithmetic import fma
from .conftest import bits


def test_dense_is_a_serial_fma(isa):
    rng = np.random.default_rng(1)
    for n, m, k in ((1, 16, 5), (7, 17, 33), (25, 100, 40), (3, 1, 1)):
        x, w = rng.standard_normal((n, k)).astype(np.float32), rng.standard_normal((m, k)).astype(np.float32)
        want = np.zeros((n, m), np.float32)
        for i in range(k):
            want = fma(x[:, i : i + 1], w[None, :, i], want)
        assert bits(native.dense(native.Dense(w[None]), x, 2)) == bits(want)


def test_experts_equal_their_own_dense_rows(isa):
    rng = np.random.default_rng(2)
    w = rng.standard_normal((5, 33, 20)).astype(np.float32)
    x = rng.standard_normal((11, 20)).astype(np.float32)
    experts, rows = rng.integers(0, 4, 60).astype(np.int32), rng.integers(0, 11, 60).astype(np.int32)
    got = native.dense_experts(native.Dense(w), x, experts, rows, 2)
    single = [native.Dense(np.ascontiguousarray(w[e : e + 1])) for e in range(5)]
    want = np.concatenate([native.dense(single[e], x[r : r + 1], 1) for e, r in zip(experts, rows)])
    assert bits(got) == bits(want)
    with pytest.raises(ValueError, match="expert id"):
        native.dense_experts(native.Dense(w), x, experts + 5, rows, 1)


def attend(q, k, v, *, cuts, heads=6, kv=2, threads=1):
    cache = native.KvCache(kv, q.shape[1] // heads)
    out, at = [], 0
    for n in cuts:
        cache.append(k[at : at + n], v[at : at + n])
        out.append(native.attention(np.ascontiguousarray(q[at : at + n]), cache, heads, 0.125, threads))
        at += n
    return np.concatenate(out)


def reference_attention(q, k, v, heads=6, kv=2, offset=0):
    n, dim = len(q), q.shape[1] // heads
    q, k, v = (a.astype(np.float64).reshape(n, -1, dim) for a in (q, k, v))
    out = np.empty((n, heads, dim))
    seen = np.arange(n)[None, :] <= np.arange(n)[:, None] + offset
    for h in range(heads):
        s = np.where(seen, q[:, h] @ k[:, h // (heads // kv)].T * 0.125, -np.inf)
        e = np.exp(s - s.max(1, keepdims=True))
        out[:, h] = e @ v[:, h // (heads // kv)] / e.sum(1, keepdims=True)
    return out.reshape(n, -1)


def inputs(n, heads=6, kv=2, dim=64, seed=3):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, width * dim)).astype(np.float32) for width in (heads, kv, kv)]


def test_attention_against_float64(isa):
    q, k, v = inputs(150)
    assert np.max(np.abs(attend(q, k, v, cuts=(150,)) - reference_attention(q, k, v))) < 3e-6


def test_a_mask_shifted_by_one_would_be_seen():
    q, k, v = inputs(150)
    assert np.max(np.abs(attend(q, k, v, cuts=(150,)) - reference_attention(q, k, v, offset=1))) > 0.1


def test_attention_has_one_result_per_token(isa):
    """Batch width, chunk, threads: a token's bits are those it has alone."""
    q, k, v = inputs(90)
    want = attend(q, k, v, cuts=(1,) * 90)
    for cuts in ((90,), (2,) * 45, (7,) * 12 + (6,), (64, 26), (89, 1)):
        for threads in (1, 2):
            assert bits(attend(q, k, v, cuts=cuts, threads=threads)) == bits(want), (cuts, threads)


@pytest.mark.parametrize("heads, kv, dim", [(4, 4, 16), (8, 1, 80), (5, 1, 64), (2, 2, 128)])
def test_other_head_layouts(isa, heads, kv, dim):
    q, k, v = inputs(37, heads, kv, dim)
    got = attend(q, k, v, cuts=(37,), heads=heads, kv=kv)
    assert np.max(np.abs(got - reference_attention(q, k, v, heads, kv))) < 5e-6
    assert bits(got) == bits(attend(q, k, v, cuts=(5,) * 7 + (2,), heads=heads, kv=kv))


def test_instruction_sets_agree():
    q, k, v = inputs(300, seed=9)
    before, results = native.isa(), set()
    for name in native.usable_isas():
        native.set_isa(name)
        results.add(bits(attend(q, k, v, cuts=(300,), threads=2)))
    native.set_isa(before)
    assert len(results) == 1


def test_a_nan_stays_with_the_tokens_that_see_it():
    q, k, v = inputs(40)
    clean = attend(q, k, v, cuts=(40,))
    v = v.copy()
    v[21] = np.nan
    got = attend(q, k, v, cuts=(40,))
    assert bits(got[:21]) == bits(clean[:21]) and np.isnan(got[21:]).all()


def test_cache_rolls_back_and_grows():
    q, k, v = inputs(600)
    cache = native.KvCache(2, 64)
    cache.append(k[:300], v[:300])
    cache.append(-k[300:340], -v[300:340])
    cache.truncate(300)
    cache.append(k[300:], v[300:])
    a, b = np.empty_like(k), np.empty_like(v)
    cache.read(a, b)
    assert cache.length == 600 and bits(a) == bits(k) and bits(b) == bits(v)
    assert bits(native.attention(q[300:].copy(), cache, 6, 0.125, 1)) == bits(attend(q, k, v, cuts=(300, 300))[300:])
    with pytest.raises(IndexError, match="truncate"):
        cache.truncate(601)
