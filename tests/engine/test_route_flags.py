"""Route flags: their rule, bit for bit, and that without them nothing changes."""

from __future__ import annotations

import numpy as np
import pytest

from edge0verify.engine import Engine, generate, native
from edge0verify.engine.route_flags import RouteFlags, read_resident
from edge0verify.model import encode, load_model, prompt
from edge0verify.records.errors import InputError
from edge0verify.variants.flags import read_flags

K = 4


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def tokens():
    return encode(prompt("prose"))[:40]


def logits(n=200, experts=16, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (n, experts)).astype(np.float32)


def of(text, model):
    return RouteFlags.of(read_flags(text), model.config)


def shown(model, tokens, **more):
    """Every tensor of a run, and what it says next."""
    seen = {}
    step = Engine(model, threads=2, **more).prefill(
        tokens, tap=lambda layer, name, first, value: seen.setdefault((layer, name), []).append(value)
    )
    return seen, step


class TestTheRule:
    def test_small_experts_are_left_out_and_the_others_add_up_to_one(self):
        x = logits()
        plain_ids, plain = native.route(x, K, 1)
        made = RouteFlags(tail_skip=0.3).choose(0, x, K, 1)
        assert np.array_equal(made.ids, plain_ids)
        expected = plain < np.float32(0.3) * plain[:, :1]
        assert np.array_equal(made.skipped, expected) and 0.1 < expected.mean() < 0.9
        for row in range(len(x)):
            kept = plain[row][~expected[row]]
            total = np.float32(0)
            for w in kept:
                total += w
            want = np.zeros(K, np.float32)
            want[~expected[row]] = kept / total if expected[row].any() else kept
            assert np.array_equal(made.weights[row], want)

    def test_one_leaves_the_largest_alone(self):
        made = RouteFlags(tail_skip=1.0).choose(0, logits(), K, 1)
        assert (made.weights[:, 0] == 1).all() and (made.weights[:, 1:] == 0).all()

    def test_a_prior_moves_the_choice_and_not_the_weights(self):
        x = logits()
        plain_ids, plain = native.route(x, K, 1)
        made = RouteFlags(prior=1.5, resident={None: (0, 1, 2)}).choose(0, x, K, 1)
        raised = x.copy()
        raised[:, :3] += np.float32(1.5)
        assert np.array_equal(made.ids, np.argsort(-raised, axis=1, kind="stable")[:, :K])
        other = (made.ids != plain_ids).any(axis=1)
        assert 0.2 < other.mean() < 1
        assert np.array_equal(made.weights[~other], plain[~other])
        chosen = np.take_along_axis(x.astype(np.float64), made.ids, axis=1)
        e = np.exp(chosen - chosen.max(axis=1, keepdims=True))
        np.testing.assert_allclose(made.weights, e / e.sum(axis=1, keepdims=True), rtol=2e-6)

    def test_a_prior_that_outweighs_everything_still_gives_weights(self):
        x = logits()
        x[:, 4:] += 500
        made = RouteFlags(prior=1e6, resident={None: (0, 1, 2, 3)}).choose(0, x, K, 1)
        assert (np.sort(made.ids, axis=1) == np.arange(4)).all()
        np.testing.assert_allclose(made.weights.sum(axis=1), 1, rtol=1e-6)

    def test_layers_may_have_their_own_residents(self, model):
        flags = of("STRATA_ROUTE_PRIOR=2 STRATA_ROUTE_RESIDENT=1:0-1/mtp:3/4-5", model)
        assert flags.residents(1) == (0, 1) and flags.residents("mtp") == (3,) and flags.residents(0) == (4, 5)

    def test_a_nan_logit_stays_seen(self):
        x = logits(4)
        x[2, 7] = np.nan
        made = RouteFlags(tail_skip=0.5).choose(0, x, K, 1)
        assert np.isnan(made.weights[2]).all() and np.isfinite(made.weights[[0, 1, 3]]).all()


class TestWithoutFlags:
    def test_no_bit_changes(self, model, tokens):
        plain = shown(model, tokens)
        for text in ("", "STRATA_ROUTE_TAIL_SKIP=0 STRATA_ROUTE_PRIOR=0", "STRATA_ROUTE_PRIOR=0.5",
                     "STRATA_ROUTE_RESIDENT=0-7"):
            found = shown(model, tokens, route=of(text, model))
            assert np.array_equal(plain[1].logits_last, found[1].logits_last)
            assert same(plain[0], found[0])

    def test_nor_by_a_flag_that_finds_nothing_to_change(self, model, tokens):
        plain, found = shown(model, tokens), shown(model, tokens, route=RouteFlags(tail_skip=1e-6))
        assert same(plain[0], found[0]) and np.array_equal(plain[1].logits_last, found[1].logits_last)

    def test_with_a_flag_they_do(self, model, tokens):
        plain = shown(model, tokens)
        for route in (RouteFlags(tail_skip=0.3), RouteFlags(prior=1.0, resident={None: (0, 1, 2, 3)})):
            found = shown(model, tokens, route=route)
            assert not same(plain[0], found[0]) and not np.array_equal(plain[1].logits_last, found[1].logits_last)
            # The router itself is as it was: the first layer's logits are.
            assert np.array_equal(plain[0][0, "route-logits"][0], found[0][0, "route-logits"][0])


class TestInTheEngine:
    def test_a_skipped_expert_gives_the_bits_of_a_run_without_it(self, model, tokens):
        """Weight +0 is a skip: the sum over the kept experts alone has the same bits."""
        seen, _ = shown(model, tokens, route=RouteFlags(tail_skip=0.3))
        weights, y, yl = (seen[2, name][0] for name in ("route-weights", "a-y", "a-yl"))
        skipped = (weights == 0).any(axis=1)
        assert skipped.mean() > 0.1
        y = y.reshape(*weights.shape, -1)
        for row in np.flatnonzero(skipped):
            kept = weights[row] > 0
            alone = native.weighted_sum(np.ascontiguousarray(y[row][kept]), np.ascontiguousarray(weights[row][kept][None]), 1)
            assert np.array_equal(alone[0], yl[row])

    def test_counts(self, model, tokens):
        engine = Engine(model, threads=2, route=RouteFlags(tail_skip=0.3))
        engine.prefill(tokens)
        count = engine.routed
        assert count.rows == len(tokens) * model.config.layers and count.pairs == count.rows * model.config.k
        assert 0 < count.acted <= count.rows and count.acted <= count.skipped and count.exchanged == 0
        engine = Engine(model, threads=2, route=RouteFlags(prior=2.0, resident={None: (0, 1)}))
        engine.prefill(tokens)
        assert engine.routed.skipped == 0 and engine.routed.exchanged > 0

    def test_neither_chunks_nor_threads_nor_float_mode_matter_to_the_rule(self, model, tokens):
        route = RouteFlags(tail_skip=0.2, prior=0.5, resident={None: (1, 3, 5)})
        first = Engine(model, threads=2, route=route).prefill(tokens).logits_last
        assert np.array_equal(first, Engine(model, threads=1, chunk=7, route=route).prefill(tokens).logits_last)
        plain, flagged = (Engine(model, float_mode=True, threads=2, route=r).prefill(tokens).logits_last for r in (None, route))
        assert not np.array_equal(plain, flagged)

    def test_the_drafter_still_changes_no_token(self, model):
        route = RouteFlags(tail_skip=0.2, prior=0.5, resident={None: (1, 3, 5)})
        asked = encode("Q: What is 83 + 29?\nA:")
        said = [generate(Engine(model, threads=2, route=route), asked, max_tokens=12, drafter=d).tokens for d in (False, True)]
        assert np.array_equal(*said)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("STRATA_ROUTE_TAIL_SKIP=yes", "from 0 to 1, found 'yes'"),
        ("STRATA_ROUTE_TAIL_SKIP=1.5", "from 0 to 1"),
        ("STRATA_ROUTE_TAIL_SKIP=nan", "from 0 to 1"),
        ("STRATA_ROUTE_PRIOR=-1", "at least 0"),
        ("STRATA_ROUTE_PRIOR=inf", "at least 0"),
        ("STRATA_ROUTE_PRIOR=1 STRATA_ROUTE_RESIDENT=16", "experts 0 to 15"),
        ("STRATA_ROUTE_PRIOR=1 STRATA_ROUTE_RESIDENT=3-1", "lowest first"),
        ("STRATA_ROUTE_PRIOR=1 STRATA_ROUTE_RESIDENT=0-99999999999", "experts 0 to 15"),
        ("STRATA_ROUTE_PRIOR=1 STRATA_ROUTE_RESIDENT=a", "such as 0-7,12"),
        ("STRATA_ROUTE_PRIOR=1 STRATA_ROUTE_RESIDENT=0,0", "each expert once"),
        ("STRATA_ROUTE_PRIOR=1 STRATA_ROUTE_RESIDENT=9:0", "expected a layer of 0, 1"),
        ("STRATA_ROUTE_PRIOR=1 STRATA_ROUTE_RESIDENT=1:0/1:2", "each layer once"),
    ],
)
def test_what_is_refused(text, message, model):
    with pytest.raises(InputError, match=message):
        of(text, model)


def test_no_residents(model):
    assert read_resident(None, model.config) == {} == read_resident("", model.config)
    flags = of("STRATA_ROUTE_PRIOR=0.5", model)
    assert not flags.changes and "no expert is resident" in flags.idle()


def same(a, b) -> bool:
    """Whether two runs showed the same bits everywhere."""
    def bits(value):
        return (value.codes, value.d, value.s) if hasattr(value, "codes") else (value,)

    return a.keys() == b.keys() and all(
        np.array_equal(x, y)
        for name in a
        for one, other in zip(a[name], b[name])
        for x, y in zip(bits(one), bits(other))
    )
