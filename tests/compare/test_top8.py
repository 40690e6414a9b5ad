"""Movement of what the model says next."""

import numpy as np
import pytest

from edge0verify.compare import movement
from edge0verify.compare.top8 import divergence
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Tokens


def tokens(ids, logprobs, **more):
    return Tokens(ids=np.array(ids, np.int32), logprobs=np.array(logprobs, np.float32), **more)


A = tokens([[5, 2, 9]], [[-0.5, -1.0, -3.0]], names=("prose",))


def test_a_run_against_itself_does_not_move():
    found = movement(A, A)
    assert (found["max_move"], found["argmax_changes"], found["set_changes"]) == (0.0, 0, 0)


def test_the_largest_movement_over_ids_that_both_list():
    found = movement(A, tokens([[5, 9, 2]], [[-0.5, -0.75, -1.25]]))
    assert found["max_move"] == pytest.approx(2.25)
    assert (found["argmax_changes"], found["set_changes"]) == (0, 0)
    assert found["per_position"][0]["name"] == "prose"


def test_an_id_that_only_one_side_lists_changes_the_set_and_moves_nothing():
    found = movement(A, tokens([[5, 2, 7]], [[-0.5, -1.0, -3.0]]))
    assert (found["max_move"], found["set_changes"], found["per_position"][0]["shared"]) == (0.0, 1, 2)


def test_another_best_is_shown_with_the_margin_it_had():
    found = movement(A, tokens([[2, 5, 9]], [[-0.7, -0.75, -3.0]]))
    assert found["argmax_changes"] == 1
    assert found["per_position"][0]["argmax"] == [5, 2]
    assert found["per_position"][0]["argmax_margin"] == pytest.approx(0.5)


def test_equal_tokens_with_wrong_log_probs_are_caught():
    assert movement(A, tokens([[5, 2, 9]], [[-0.5, -1.25, -3.0]]))["max_move"] == pytest.approx(0.25)


def test_a_log_prob_that_is_not_a_number_does_not_hide():
    assert np.isnan(movement(A, tokens([[5, 2, 9]], [[-0.5, np.nan, -3.0]]))["max_move"])


def test_no_shared_id_has_no_movement():
    found = movement(A, tokens([[1, 3, 4]], [[-0.5, -1.0, -3.0]]))
    assert (found["max_move"], found["set_changes"]) == (None, 1)


def test_divergence_is_of_distributions_so_a_shift_of_all_logits_is_none():
    logits = np.array([[1.0, 2.0, 3.0]], np.float32)
    assert divergence(logits, logits + 7)[0] == pytest.approx(0, abs=1e-12)
    p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    expected = (p * np.log(p / q)).sum()
    assert divergence(np.log(p)[None], np.log(q)[None])[0] == pytest.approx(expected)


def test_divergence_is_reported_where_both_kept_their_logits():
    logits = np.zeros((1, 16), np.float32)
    with_logits = tokens(A.ids, A.logprobs, logits=logits)
    assert movement(with_logits, with_logits)["max_kl"] == 0.0
    assert movement(with_logits, A)["max_kl"] is None


def test_unlike_positions_are_an_input_error():
    with pytest.raises(InputError, match="the same positions on both sides"):
        movement(A, tokens([[5, 2, 9]] * 2, [[-0.5, -1.0, -3.0]] * 2))
    with pytest.raises(InputError, match="top8 side b: expected ids and log-probs"):
        movement(A, tokens([[5, 2, 9]], [[-0.5, -1.0]]))
