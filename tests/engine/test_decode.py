"""Greedy decode with and without the drafter."""

import numpy as np
import pytest

from edge0verify.engine import Engine, generate
from edge0verify.engine.evaluate import evaluate
from edge0verify.model import encode, prompt, questions
from edge0verify.records.errors import InputError

PROMPTS = ("p1", "p2", "p3", "p4")


@pytest.fixture(scope="module", params=[pytest.param(True, id="float"), pytest.param(False, id="quantised")])
def engine(request, model):
    return Engine(model, float_mode=request.param, threads=2)


@pytest.mark.parametrize("name", PROMPTS)
def test_continuation_is_the_reference(model, reference, name):
    run = generate(Engine(model, float_mode=True, threads=2), encode(prompt(name)), max_tokens=48, drafter=False, stop=())
    assert (run.tokens == reference[f"{name}.greedy48"]).all() and run.main_forwards == 48 and run.acceptance is None


@pytest.mark.parametrize("name", PROMPTS)
def test_drafter_changes_no_token(engine, name):
    ids = encode(prompt(name))
    plain = generate(engine, ids, max_tokens=64, drafter=False, stop=())
    for options in ({}, {"worth": 0, "confidence": 1e-9}, {"window": 2}, {"window": 5, "worth": 0}):
        run = generate(engine, ids, max_tokens=64, stop=(), **options)
        assert (run.tokens == plain.tokens).all()
        assert run.main_forwards < len(run.tokens) and 0 < run.accepted <= run.drafted
        assert run.main_forwards + run.accepted == len(run.tokens)


def test_acceptance_on_its_own_text(engine):
    runs = [generate(engine, encode(prompt(name)), max_tokens=96, stop=()) for name in PROMPTS]
    assert sum(r.accepted for r in runs) / sum(r.drafted for r in runs) > 0.85


def test_row_keys_tell_what_was_taken_back(engine):
    seen = []

    def tap(layer, name, first, value):
        if name == "ffn-in" and layer in (0, "mtp"):
            seen.append((layer, first, len(value)))

    ids = encode(prompt("p2"))
    run = generate(engine, ids, max_tokens=24, stop=(), worth=0, confidence=1e-9, tap=tap)
    for layer, keys in ((0, run.rows), ("mtp", run.mtp_rows)):
        positions = np.concatenate([np.arange(first, first + n) for at, first, n in seen if at == layer])
        assert (keys[:, 1] == positions).all()
        assert (np.diff(keys[:, 0]) >= 0).all() and set(keys[:, 2]) == {0, 1}
        kept = keys[keys[:, 2] == 1][:, 1]
        assert (kept == np.arange(len(kept))).all()        # what was accepted covers every position once
        assert len(np.unique(keys[keys[:, 2] == 1], axis=0)) == len(kept)
    assert (run.rows[:, 2] == 1).sum() == engine.length


def test_a_drafter_that_is_wrong_costs_forwards_only(engine, monkeypatch):
    ids = encode(prompt("p3"))
    plain = generate(engine, ids, max_tokens=20, drafter=False, stop=())
    draft = engine.draft
    monkeypatch.setattr(engine, "draft", lambda *a, **k: (lambda out, logits: (out, -logits))(*draft(*a, **k)))
    run = generate(engine, ids, max_tokens=20, stop=(), worth=0, confidence=1e-9)
    assert (run.tokens == plain.tokens).all() and run.accepted < 3 and run.main_forwards > 17


def test_a_missing_rollback_would_be_seen(engine, monkeypatch):
    """Negative control: the comparison with plain decode tells a cache that keeps refused tokens."""
    ids = encode(prompt("p1"))
    plain = generate(engine, ids, max_tokens=48, drafter=False, stop=())
    monkeypatch.setattr(engine, "truncate", lambda length: None)
    run = generate(engine, ids, max_tokens=48, stop=(), worth=0, confidence=1e-9)
    assert (run.tokens != plain.tokens).any()


def test_stop_and_limits(engine):
    ids = encode(questions()[0].prompt)
    run = generate(engine, ids, max_tokens=48, stop=(10,))
    assert run.tokens[-1] == 10 and 10 not in run.tokens[:-1]
    assert len(generate(engine, ids, max_tokens=1).tokens) == 1
    for bad in ({"window": 9}, {"window": 0}, {"max_tokens": 0}):
        with pytest.raises(InputError):
            generate(engine, ids, **({"max_tokens": 4} | bad))
    for tokens in ([], [288], [-1], [1.5]):
        with pytest.raises(InputError, match="tokens: expected"):
            engine.prefill(tokens)


def test_forty_questions(engine):
    with_drafter = evaluate(engine, questions())
    assert sum(a.right for a in with_drafter) >= 39
    plain = evaluate(engine, questions(), drafter=False)
    assert [a.text for a in plain] == [a.text for a in with_drafter]
    assert all((a.generation.tokens == b.generation.tokens).all() for a, b in zip(plain, with_drafter))
    assert sum(a.generation.main_forwards for a in with_drafter) < sum(a.generation.main_forwards for a in plain)
