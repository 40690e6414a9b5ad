"""F08: expert rows were written in the order of an atomic counter; the dump differed from run to run, the replies did not."""

import numpy as np
import pytest

from edge0verify.compare.join import join
from edge0verify.compare.policy import read_policy
from edge0verify.numerics.quantise import quantise
from edge0verify.records.evidence import Side
from tests.field.common import evidence, product, token_keys, verdict

N, M = 512, 64


def rows():
    rng = np.random.default_rng(8)
    w, x = rng.standard_normal((M, 96)).astype(np.float32), rng.standard_normal((N, 96)).astype(np.float32)
    return product(w, x)


def arrival(seed, spread=24):
    """An order in which groups of four rows arrive: none far from its turn."""
    turn = np.arange(N // 4) + np.random.default_rng(seed).uniform(0, spread, N // 4)
    return (np.argsort(turn)[:, None] * 4 + np.arange(4)).reshape(-1)


def runs(kind):
    y, t, bound = rows()
    order = arrival(1)
    if kind == "blocks":
        stored = quantise("mmvq", y)
        return Side(blocks=stored), Side(blocks=stored.take(order))
    if kind == "bounded":
        return Side(rows=y, t=t, bound=bound), Side(rows=y[order], t=t, bound=bound)
    return Side(rows=y), Side(rows=y[order])


@pytest.mark.parametrize("kind", ["rows", "bounded", "blocks"])
def test_two_runs_are_permuted_with_the_order_s_statistics(kind):
    found = verdict(evidence(*runs(kind), kind="blocks" if kind == "blocks" else "rows", tensor="a-h"))
    first = found.layers[0]
    assert found.status == "FAIL"
    assert "unexplained" not in first.causes and "loose" not in first.causes
    assert first.causes["permuted"] > 0.5 * first.n
    text = found.reasons[0]
    assert "rows stand elsewhere" in text and "bit for bit" in text
    assert "cycle" in text and "run" in text and "in the median" in text
    assert first.corr < 0.99


def test_an_order_that_policy_allows_passes_and_is_noted():
    policy = read_policy({"rule": [{"permuted_share": 1.0}]}, source="p.toml")
    from edge0verify.compare import compare

    (found,) = compare(evidence(*runs("rows"), tensor="a-h"), policy=policy)
    assert found.status == "PASS" and "permuted" in found.reasons[0]


def test_runs_in_the_same_order_are_equal():
    y, *_ = rows()
    assert verdict(evidence(Side(rows=y), Side(rows=y.copy()))).layers[0].causes == {"equal": y.size}


def test_keyed_rows_are_joined_and_their_order_says_nothing():
    y, t, bound = rows()
    keys, order = token_keys(N), arrival(1)
    way = join(keys, keys[order])
    a, b = Side(rows=y[way.a], t=t, bound=bound), Side(rows=y[order][way.b], t=t, bound=bound)
    assert verdict(evidence(a, b, keys=keys[way.a])).status == "PASS"


def test_a_row_that_belongs_nowhere_is_not_permuted():
    y, t, bound = rows()
    mixed = y[arrival(1)]
    mixed[7] = np.random.default_rng(9).standard_normal(M)
    found = verdict(evidence(Side(rows=y, t=t, bound=bound), Side(rows=mixed, t=t, bound=bound)))
    assert found.layers[0].causes["structured"] > 0.9 * M and found.layers[0].causes["permuted"] > 0
    assert "b: row 7" in " ".join(found.reasons)


def test_other_numbers_are_not_permuted():
    y, *_ = rows()
    other = np.random.default_rng(10).standard_normal(y.shape).astype(np.float32)
    found = verdict(evidence(Side(rows=y), Side(rows=other)))
    assert "permuted" not in found.layers[0].causes and found.status == "INCONCLUSIVE"
