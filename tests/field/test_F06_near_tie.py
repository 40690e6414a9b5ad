"""F06: two fused variants, each right; a near-tied router flips between them at layer 2 and the rest of the model follows."""

from dataclasses import dataclass

import numpy as np
import pytest

from edge0verify.records.evidence import Router, Side
from tests.field.common import EPS, evidence, halves, product, token_keys, verdict

LAYERS, TOKENS, WIDTH, EXPERTS, CHOSEN = 6, 24, 64, 8, 2
TIED = 2


def norm(x):
    wide = x.astype(np.float64)
    return (wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True))).astype(np.float32)


def route(logits):
    return np.argsort(-logits.astype(np.float64), axis=1, kind="stable")[:, :CHOSEN].astype(np.int32)


@dataclass
class Layer:
    """What one run did in one layer: the stage's input, the router's logits and choice, the rows of the stage and their oracle."""

    x: np.ndarray
    logits: np.ndarray
    reach: np.ndarray
    ids: np.ndarray
    y: np.ndarray
    t: np.ndarray
    bound: np.ndarray


class Stack:
    """A toy of expert layers; a run is one order of the expert product's sum."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.x = rng.standard_normal((TOKENS, WIDTH)).astype(np.float32)
        self.router = (rng.standard_normal((LAYERS, EXPERTS, WIDTH)) / 8).astype(np.float32)
        self.experts = (rng.standard_normal((LAYERS, EXPERTS, WIDTH, WIDTH)) / 8).astype(np.float32)

    def run(self, order, layers=LAYERS):
        x, found = self.x, []
        for at in range(layers):
            h = norm(x)
            logits, _, reach = product(self.router[at], h)
            ids = route(logits)
            y, t, bound = (np.zeros((TOKENS, WIDTH), kind) for kind in (np.float32, np.float64, np.float64))
            for expert in range(EXPERTS):
                rows = np.flatnonzero((ids == expert).any(axis=1))
                if rows.size:
                    w = self.experts[at, expert]
                    serial, own, own_bound = product(w, h[rows])
                    y[rows] += serial if order is None else order(w, h[rows])
                    t[rows] += own
                    bound[rows] += own_bound + EPS * (np.abs(own) + own_bound)
            bound += CHOSEN * EPS * (np.abs(t) + bound)
            found.append(Layer(h, logits, reach, ids, y, t, bound))
            x = (x.astype(np.float64) + y).astype(np.float32)
        return found

    def tie(self, row, lean):
        """Make two experts of layer 2 change places between both runs for one token: their logits differ by what came in alone."""
        a, b = (self.run(order, TIED + 1)[TIED] for order in (None, halves))
        moved = b.x[row].astype(np.float64) - a.x[row]
        middle = (a.x[row].astype(np.float64) + b.x[row]) / 2
        first, second = a.ids[row, CHOSEN - 1], int(np.argmin(a.logits[row]))
        along = moved - middle * (moved @ middle) / (middle @ middle)
        weights = self.router[TIED, first].astype(np.float64)
        self.router[TIED, second] = (weights + lean * along / np.linalg.norm(along)).astype(np.float32)


def tied():
    """(stack, both runs, the token that flips). The lean is as small as it can be and still turn the choice."""
    for lean in (0.25, 0.5, 1.0, 2.0, 4.0):
        for row in range(TOKENS):
            stack = Stack()
            stack.tie(row, lean)
            runs = stack.run(None), stack.run(halves)
            flipped = [np.flatnonzero((a.ids != b.ids).any(axis=1)) for a, b in zip(*runs)]
            if flipped[TIED].size == 1 and not flipped[0].size and not flipped[1].size and set_of(runs, int(flipped[TIED][0])):
                return stack, runs, int(flipped[TIED][0])
    raise AssertionError("no token could be brought to a tie")


def set_of(runs, row):
    """Whether the flip changes which experts are chosen, not their order alone."""
    return len({*runs[0][TIED].ids[row], *runs[1][TIED].ids[row]}) > CHOSEN


def of_layer(at, a, b, *, bound=None, earlier=""):
    keys, inherited = token_keys(TOKENS), (a.x != b.x).any(axis=1)
    common = dict(layer=at, keys=keys, inherited=inherited, earlier=earlier)
    reach = np.maximum(a.reach, b.reach) if bound is None else np.full(a.reach.shape, bound)
    sides = [Side(ids=run.ids) for run in (a, b)]
    router = Router(a=a.logits, b=b.logits, bound=reach)
    yield evidence(*sides, tensor="route-ids", kind="ids", limit=EXPERTS, router=router, **common)
    sides = [Side(rows=run.y, t=run.t, bound=run.bound) for run in (a, b)]
    yield evidence(*sides, tensor="a-yl", oracle_a=a.t, oracle_b=b.t, **common)


@pytest.fixture(scope="module")
def scene():
    return tied()


def judged(runs, **more):
    items = []
    for at, (a, b) in enumerate(zip(*runs)):
        items += of_layer(at, a, b, earlier="" if at == 0 else "layer 0 A2", **more)
    found = verdict(*items)
    return found, {(r.layer, r.tensor): r for r in found.layers}


def test_neither_is_wrong(scene):
    found, _ = judged(scene[1])
    assert found.status == "PASS" and found.reasons == ()


def test_the_jump_is_a_route_flip_with_its_margin(scene):
    found, layers = judged(scene[1])
    flip = layers[TIED, "route-ids"]
    assert flip.causes["route-flip"] >= 1 and flip.status == "PASS"
    (note,) = [text for text in found.totals["notes"] if f"layer {TIED} route-ids" in text and "route-flip" in text]
    assert f"row {scene[2]}" in note and "ulp" in note and "of the router's bound" in note


def test_both_are_equally_far_from_the_oracle(scene):
    _, layers = judged(scene[1])
    for at in range(LAYERS):
        triangle = layers[at, "a-yl"].triangle
        assert triangle["a_oracle"] < 1e-6 and triangle["b_oracle"] < 1e-6
        assert 0.3 < triangle["a_oracle"] / triangle["b_oracle"] < 3
    assert layers[0, "a-yl"].triangle["a_b"] < 1e-6
    assert layers[TIED, "a-yl"].triangle["a_b"] > 1e-3
    assert layers[LAYERS - 1, "a-yl"].triangle["a_b"] > 1e-3


def test_the_first_layer_rounds_and_the_later_ones_inherit(scene):
    found, layers = judged(scene[1])
    assert set(layers[0, "a-yl"].causes) == {"equal", "rounding"}
    for at in range(1, LAYERS):
        assert layers[at, "a-yl"].causes["cascade"] > 0
        assert not set(layers[at, "a-yl"].causes) - {"equal", "cascade"}
    assert any("began in layer 0 A2" in note for note in found.totals["notes"])


def test_the_jump_is_where_the_factor_is_widest(scene):
    found, _ = judged(scene[1])
    assert (found.totals["widest_jump"]["layer"], found.totals["widest_jump"]["tensor"]) == (TIED, "a-yl")


def test_on_equal_inputs_a_flip_beyond_the_router_s_bound_fails(scene):
    _, (a, b), _ = scene
    from dataclasses import replace

    same = replace(b[TIED], x=a[TIED].x)
    found = verdict(*list(of_layer(TIED, a[TIED], same, bound=1e-12))[:1])
    assert found.status == "FAIL"
    assert "route-flip" in found.reasons[0] and "route_gap = " in found.reasons[0]


def test_a_router_that_does_not_follow_its_logits_is_no_near_tie(scene):
    _, (a, _), _ = scene
    from dataclasses import replace

    wrong = a[TIED].ids.copy()
    wrong[3, 0] = next(e for e in range(EXPERTS) if e not in wrong[3])
    found = verdict(*list(of_layer(TIED, a[TIED], replace(a[TIED], ids=wrong)))[:1])
    assert found.status == "FAIL" and "unexplained" in found.reasons[0]


def test_without_a_tie_nothing_flips():
    stack = Stack()
    found, layers = judged((stack.run(None), stack.run(halves)))
    assert found.status == "PASS"
    assert not any("route-flip" in r.causes for r in layers.values())
    assert layers[LAYERS - 1, "a-yl"].triangle["a_b"] < 1e-5
