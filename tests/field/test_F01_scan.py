"""F01: a parallel scan replaced a serial sum of logs. Cosine and the largest error of the sums passed; the replies did not."""

import numpy as np

from edge0verify.compare.ladder import ladder
from edge0verify.records.evidence import Side
from tests.field.common import EPS, evidence, verdict

STEPS, HEADS = 8192, 16


def logs():
    return -np.abs(np.random.default_rng(1).standard_normal((STEPS, HEADS)).astype(np.float32)) - np.float32(1)


def serial(x):
    return np.cumsum(x, axis=0, dtype=np.float32)


def tree(x):
    """Sums of f32 in a scan: each step adds the partial sum that ends `reach` places before."""
    y, reach = x.copy(), 1
    while reach < len(y):
        y[reach:] = y[reach:] + y[:-reach]
        reach *= 2
    return y


def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def decay(sums):
    """exp of the difference of neighbouring sums, in f32, stored as bf16."""
    return to_bf16(np.exp((sums[1:] - sums[:-1]).astype(np.float64)))


def scene(other):
    x = logs()
    t = np.cumsum(x.astype(np.float64), axis=0)
    bound = STEPS * EPS / (1 - STEPS * EPS) * np.cumsum(np.abs(x.astype(np.float64)), axis=0)
    sums = {"a": serial(x), "b": other(x)}
    first = evidence(*(Side(rows=s, t=t, bound=bound) for s in sums.values()), tensor="log-sum", oracle=t)
    # What the second stage may be off by: the rounding of the last addition, that of the exponent, and bf16's.
    truth = np.exp(t[1:] - t[:-1])
    last = np.abs(t[1:]) * EPS
    reach = truth * (np.expm1(last * (1 + 1e-6)) + 3 * EPS + 2.0**-8 * (1 + 2 * last))
    second = evidence(*(Side(rows=decay(s), t=truth, bound=reach) for s in sums.values()), tensor="decay", oracle=truth)
    return first, second


def test_the_second_stage_is_named_though_cosine_and_the_first_stage_say_nothing():
    found = verdict(*scene(tree))
    first, second = found.layers
    assert (first.status, set(first.causes)) == ("PASS", {"equal", "rounding"})
    assert second.corr > 0.99999
    assert second.status == found.status == "FAIL"
    assert second.conforming["a"] == second.n > second.conforming["b"]
    assert "decay" in found.reasons[0] and "b does not conform" in found.reasons[0]
    assert second.n - second.equal > 1000


def test_the_amplification_from_one_stage_to_the_next_is_shown():
    found = verdict(*scene(tree))
    jump = found.totals["widest_jump"]
    assert jump["tensor"] == "decay" and jump["after"] == [0, "log-sum"]
    assert jump["factor"] > 100
    assert [step["tensor"] for step in ladder(found.layers)] == ["log-sum", "decay"]


def test_the_serial_sum_in_chunks_passes():
    def chunks(x):
        done = np.zeros((1, HEADS), np.float32)
        for lo in range(0, len(x), 512):
            more = np.concatenate([done[-1:], x[lo : lo + 512]])
            done = np.concatenate([done, np.cumsum(more, axis=0, dtype=np.float32)[1:]])
        return done[1:]

    found = verdict(*scene(chunks))
    assert (found.status, found.reasons) == ("PASS", ())
