"""Float mode against float64 outputs of the same weights, made by other code."""

import numpy as np
import pytest

from edge0verify.engine import Engine, native
from edge0verify.engine import forward as forward_module
from edge0verify.model import encode, prompt

PROMPTS = ("p1", "p2", "p3", "p4")
TOLERANCE = 2e-3
GAP = 1e-4
attention = native.attention


def run(model, name, **options):
    """Step, routes per layer (ids, logits) and other tensors of layer 0."""
    kept = {}

    def tap(layer, tensor, first, value):
        kept.setdefault((layer, tensor), []).append(value)

    step = Engine(model, float_mode=True, threads=2, **options).prefill(encode(prompt(name)), tap=tap, all_logits=True)
    return step, {key: np.concatenate(parts) for key, parts in kept.items()}


def route_differences(kept, reference, name, layers=6):
    """Tokens whose chosen experts differ, although the 4th and 5th logit are more than GAP apart."""
    wrong = 0
    for layer in range(layers):
        ordered = np.sort(kept[layer, "route-logits"], axis=1)[:, ::-1]
        clear = ordered[:, 3] - ordered[:, 4] > GAP
        ours, theirs = (np.sort(a, axis=1) for a in (kept[layer, "route-ids"], reference[f"{name}.blk.{layer}.experts"]))
        wrong += int((clear & (ours != theirs).any(1)).sum())
    return wrong


@pytest.mark.parametrize("name", PROMPTS)
def test_prompt(model, reference, name):
    assert (encode(prompt(name)) == reference[f"{name}.tokens"]).all()
    step, kept = run(model, name)
    assert np.max(np.abs(step.logits - reference[f"{name}.logits_all"])) < TOLERANCE
    assert (step.logits_last == step.logits[-1]).all()
    assert (step.top8_ids == reference[f"{name}.top8_ids"]).all()
    assert np.max(np.abs(step.top8_logprobs - reference[f"{name}.top8_logprobs"])) < TOLERANCE
    assert route_differences(kept, reference, name) == 0


def test_inner_tensors(model, reference):
    _, kept = run(model, "p1")
    rows = reference["p1.rows"]
    for layer in range(6):
        at = slice(None) if layer == 0 else rows
        for ours, theirs in (("ffn-in", "h"), ("d-xl", "xl"), ("a-yl", "yl"), ("u", "u_out")):
            assert np.max(np.abs(kept[layer, ours][at] - reference[f"p1.blk.{layer}.{theirs}"])) < TOLERANCE, (layer, ours)
        assert np.max(np.abs(kept[layer, "route-logits"] - reference[f"p1.blk.{layer}.router_logits"])) < TOLERANCE
        assert np.max(np.abs(kept[layer, "route-weights"] - reference[f"p1.blk.{layer}.expert_weights"])) < TOLERANCE


@pytest.mark.parametrize("name", PROMPTS)
def test_drafter(model, reference, name):
    ids = encode(prompt(name))
    engine = Engine(model, float_mode=True, threads=2)
    hidden = engine.prefill(ids).hidden
    _, logits = engine.draft(hidden[:-1], ids[1:])
    assert np.max(np.abs(logits[-1] - reference[f"{name}.mtp_logits_last"])) < TOLERANCE
    if f"{name}.mtp_logits_all" in reference:
        assert np.max(np.abs(logits - reference[f"{name}.mtp_logits_all"])) < TOLERANCE


def test_long_prompt(model, reference):
    step = Engine(model, float_mode=True, threads=2).prefill(encode(prompt("long")), all_logits=True)
    x = step.logits.astype(np.float64)
    x -= x.max(1, keepdims=True)
    x -= np.log(np.exp(x).sum(1, keepdims=True))
    ours = np.take_along_axis(x, reference["p5268.top8_ids_all"].astype(np.int64), 1)
    moved = np.abs(ours - reference["p5268.top8_logprobs_all"]).max(1)
    assert np.mean(moved < 0.02) >= 0.99
    assert (native.top_logprobs(step.logits, 8, 2)[0] == reference["p5268.top8_ids_all"]).all(1).mean() >= 0.99
    assert np.max(np.abs(step.logits_last - reference["p5268.logits_last"])) < 0.02


def interleaved(x, cos, sin, heads, threads):
    n = len(x)
    pairs = x.reshape(n, heads, -1, 2)
    a, b, c, s = pairs[..., 0].copy(), pairs[..., 1].copy(), cos[:, None], sin[:, None]
    pairs[..., 0], pairs[..., 1] = a * c - b * s, b * c + a * s


def late_mask(q, cache, heads, scale, threads):
    """Every token also misses its own key."""
    out = np.empty_like(q)
    k, v = np.empty((2, cache.length, 128), np.float32)
    cache.read(k, v)
    first = cache.length - len(q)
    shifted = native.KvCache(2, 64)
    for i in range(len(q)):
        seen = max(first + i, 1)
        shifted.append(k[shifted.length : seen], v[shifted.length : seen])
        out[i] = attention(q[i : i + 1], shifted, heads, scale, threads)[0]
    return out


def coarse_angles(self, first, n):
    """Inverse frequencies that lost bits."""
    position = np.arange(first, first + n)[:, None]
    angle = position * self._inv_freq.astype(np.float16).astype(np.float64)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


@pytest.mark.parametrize("where, name, fault", [
    (forward_module, "rotate", interleaved), (native, "attention", late_mask), (forward_module.RopeTable, "rows", coarse_angles),
])
def test_faults_fail_the_comparison(model, reference, monkeypatch, where, name, fault):
    """Negative controls: another rotation, a shifted mask, coarse angles."""
    monkeypatch.setattr(where, name, fault)
    step, _ = run(model, "p4")
    assert np.max(np.abs(step.logits - reference["p4.logits_all"])) > TOLERANCE
