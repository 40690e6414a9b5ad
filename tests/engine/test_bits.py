"""One result: whatever the threads, the chunk, the batch width and the instruction set."""

import numpy as np
import pytest

from edge0verify.engine import Engine, native
from edge0verify.model import encode, prompt

MODES = [pytest.param(True, id="float"), pytest.param(False, id="quantised")]


def tokens(name):
    return encode(prompt("long"))[:300] if name == "piece" else encode(prompt(name))


def all_bits(engine, ids):
    """Every tapped tensor of every layer, the drafter's included, and all logits, as bytes."""
    kept: dict = {}

    def tap(layer, name, first, value):
        parts = [value] if isinstance(value, np.ndarray) else [value.codes, value.d, value.s]
        for i, part in enumerate(parts):
            if part is not None:
                kept.setdefault((layer, name, i), []).append(part)

    step = engine.prefill(ids, tap=tap, all_logits=True, mtp=True)
    out = {key: np.concatenate(parts).tobytes() for key, parts in kept.items()}
    return out | {"logits": step.logits.tobytes(), "top8": step.top8_logprobs.tobytes(), "hidden": step.hidden.tobytes()}


def engine_with(model, isa, **options):
    """The engine's kernels follow the process-wide choice, the variants' the instruction set of their own Kernels."""
    native.set_isa(isa)
    if options.get("float_mode"):
        return Engine(model, **options)
    from edge0verify.variants.kernels import Kernels

    return Engine(model, kernels=Kernels(isa=isa, threads=options["threads"]), **options)


@pytest.fixture(autouse=True)
def keep_isa():
    before = native.isa()
    yield
    native.set_isa(before)


@pytest.mark.parametrize("float_mode", MODES)
@pytest.mark.parametrize("name", ["p1", "p2", "p3", "p4", "piece"])
def test_threads_and_chunks(model, name, float_mode):
    best = native.usable_isas()[-1]
    ids = tokens(name)
    want = all_bits(engine_with(model, best, float_mode=float_mode, threads=1, chunk=512), ids)
    for threads, chunk in ((2, 512), (2, 1), (1, 7), (2, 64)):
        if chunk == 1 and name not in ("p2", "piece"):
            continue
        got = all_bits(engine_with(model, best, float_mode=float_mode, threads=threads, chunk=chunk), ids)
        assert got.keys() == want.keys()
        assert [key for key in want if got[key] != want[key]] == []


@pytest.mark.parametrize("float_mode", MODES)
@pytest.mark.parametrize("name", ["p4", "piece"])
def test_instruction_sets(model, name, float_mode):
    ids = tokens(name)[:100]      # the baseline object forms its fma in software
    *others, best = native.usable_isas()
    want = all_bits(engine_with(model, best, float_mode=float_mode, threads=2), ids)
    for isa in others:
        got = all_bits(engine_with(model, isa, float_mode=float_mode, threads=2), ids)
        assert [key for key in want if got[key] != want[key]] == [], isa


@pytest.mark.parametrize("float_mode", MODES)
def test_batch_widths(model, float_mode):
    """A window of 1 to 8 tokens gives each token the bits it has alone, in the main layers and in the drafter."""
    ids = tokens("p2")
    engine = engine_with(model, native.usable_isas()[-1], float_mode=float_mode, threads=2)
    head, tail = ids[:-8], ids[-8:]
    hidden0 = engine.prefill(head, mtp=True).hidden
    alone = [engine.forward([t]) for t in tail]
    logits, hidden = (np.concatenate(x) for x in ([s.logits for s in alone], [s.hidden for s in alone]))
    rows = np.concatenate([hidden0[-1:], hidden[:-1]])
    start = engine.mtp_length
    drafts = [engine.draft(rows[i : i + 1], tail[i : i + 1]) for i in range(8)]
    out, draft_logits = (np.concatenate(x) for x in zip(*drafts))
    for width in range(1, 9):
        engine.truncate(len(head))
        engine.truncate_mtp(start)
        step = engine.forward(tail[:width])
        assert step.logits.tobytes() == logits[:width].tobytes() and step.hidden.tobytes() == hidden[:width].tobytes()
        drafted = engine.draft(rows[:width], tail[:width])
        assert drafted[0].tobytes() == out[:width].tobytes() and drafted[1].tobytes() == draft_logits[:width].tobytes()


def test_a_chunk_that_loses_a_key_would_be_seen(model):
    """Negative control: the comparison above tells a cache that is one key short."""
    ids = tokens("p4")
    engine = Engine(model, float_mode=True, threads=1)
    engine.prefill(ids[:-1])
    want = engine.forward(ids[-1:]).logits
    engine.prefill(np.delete(ids, -2)[:-1])
    assert engine.forward(ids[-1:]).logits.tobytes() != want.tobytes()
