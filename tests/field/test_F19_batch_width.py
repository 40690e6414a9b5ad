"""F19: logits change with the batch width; how many near ties there are decides how often a reply changes. No fault."""

import numpy as np

from edge0verify.compare import compare, movement
from edge0verify.compare.top8 import log_softmax
from edge0verify.records.evidence import Side, Tokens
from edge0verify.study.drift_logits import apart, near_ties
from tests.field.common import evidence, halves, product, token_keys, verdict

POSITIONS, WIDTH, VOCABULARY = 400, 96, 64


def scene(ties):
    """Logits at batch 1 (sums over the width in order) and at batch 8 (in halves); at `ties` positions two words all but tie."""
    rng = np.random.default_rng(20)
    head = rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
    twin = np.arange(0, VOCABULARY, 2)
    head[twin + 1] = head[twin] + rng.standard_normal((len(twin), WIDTH)).astype(np.float32) * np.float32(0.5)
    x = rng.standard_normal((POSITIONS, WIDTH)).astype(np.float32)
    for at in rng.choice(POSITIONS, ties, replace=False):
        best = int((head @ x[at]).argmax())
        gap = head[best ^ 1].astype(np.float64) - head[best]
        x[at] = (x[at] - gap * (gap @ x[at]) / (gap @ gap)).astype(np.float32)
    one, t, bound = product(head, x)
    return one, halves(head, x), t, bound


def item(one, eight, t, bound):
    sides = [Side(rows=rows, t=t, bound=bound) for rows in (one, eight)]
    return evidence(*sides, tensor="logits", layer="head", keys=token_keys(POSITIONS))


def test_the_change_is_rounding_and_no_fault():
    found = verdict(item(*scene(ties=60)))
    assert found.status == "PASS" and set(found.layers[0].causes) == {"equal", "rounding"}
    assert found.layers[0].causes["rounding"] > 1000


def test_replies_change_only_where_words_are_tied_and_the_density_is_reported():
    one, eight, *_ = scene(ties=60)
    drift, density = apart(one, eight), near_ties(one)
    assert drift["argmax_changes"] > 5
    assert all(change["margin"] < 1e-4 for change in drift["changes"])
    assert density["positions"] == POSITIONS and density["below"]["0.001"] >= 60 / POSITIONS * 0.5


def test_few_ties_few_changes():
    few, many = (apart(*scene(ties)[:2])["argmax_changes"] for ties in (0, 60))
    assert few < many
    assert near_ties(scene(0)[0])["below"]["0.001"] < near_ties(scene(60)[0])["below"]["0.001"]


def test_the_movement_of_what_is_said_stands_in_the_verdict():
    one, eight, *_ = scene(ties=60)

    def tokens(logits):
        said = log_softmax(logits)
        ids = np.argsort(-logits.astype(np.float64), axis=1, kind="stable")[:, :8].astype(np.int32)
        return Tokens(ids=ids, logprobs=np.take_along_axis(said, ids, axis=1).astype(np.float32), logits=logits)

    moved = movement(tokens(one), tokens(eight))
    assert moved["argmax_changes"] > 5 and moved["max_move"] < 1e-4
    assert verdict(item(*scene(ties=60)), top8=moved).status == "PASS"


def test_a_kernel_that_loses_a_block_at_batch_eight_is_a_fault():
    one, eight, t, bound = scene(ties=60)
    wrong = eight.copy()
    wrong[np.arange(POSITIONS) % 8 == 7] *= np.float32(0.98)
    (found,) = compare(item(one, wrong, t, bound))
    assert found.status == "FAIL" and "structured" in found.causes
    assert "every 8th row from 7" in found.reasons[0]
