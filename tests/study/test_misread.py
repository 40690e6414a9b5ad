"""Operands that a kernel reads wrongly: the whole tensor is wrong, and the mistake is named beside the error it makes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from edge0verify.compare import compare
from edge0verify.numerics import formats
from edge0verify.numerics.contracts import contract
from edge0verify.numerics.quantise import quantise
from edge0verify.records.evidence import Evidence, Side
from edge0verify.study import oracle
from edge0verify.study.kernel_cases import Case, Shape, make
from edge0verify.study.misread import misreadings

SHAPE = {"Q8_0": Shape(96, 24, 320), "Q4_0": Shape(96, 24, 320), "IQ4_NL": Shape(96, 24, 320), "Q3_K": Shape(96, 24, 768)}
STAGE = {"Q8_0": "D", "Q4_0": "D", "IQ4_NL": "A2", "Q3_K": "A1"}


def inputs(fmt):
    """(weights of one expert, activations)"""
    made = make("D", fmt, Case(name="test", shape=SHAPE[fmt]), seed=4)
    return made.weights[0], quantise("mmvq", made.x)


def judged(fmt, change, experts=None):
    """The entry of side b, whose rows are the product after `change(raw, x)`: (uint8 [M, bytes], f64 [n, K])."""
    weights, x = inputs(fmt)
    rules = contract(STAGE[fmt], "mmvq")
    own = oracle.own_oracle(rules, weights, x)
    right = own.t.astype(np.float32)
    raw, values = change(weights.raw.copy(), x)
    with np.errstate(all="ignore"):
        wrong = (values @ formats.unpack(fmt, raw).values().T).astype(np.float32)
    sides = [Side(rows=rows, t=own.t, bound=own.bound, misread=misreadings(weights, x)) for rows in (right, wrong)]
    keys = np.stack([np.zeros(24), np.arange(24), np.ones(24)], axis=1).astype(np.int32)
    truth = oracle.float_rows(weights, make("D", fmt, Case(name="test", shape=SHAPE[fmt]), seed=4).x)
    item = Evidence(layer=1, tensor="d-xl", kind="rows", stage=STAGE[fmt], a=sides[0], b=sides[1], keys=keys, oracle=truth)
    return compare(item)[0]


def nibbles(raw, x):
    blocks = raw.reshape(96, -1, 18)
    blocks[..., 2:] = blocks[..., 2:] // 16 + blocks[..., 2:] % 16 * 16
    return raw, x.values()


def next_scale(raw, x):
    blocks = raw.reshape(96, -1, 34)
    blocks[..., :2] = np.roll(blocks[..., :2], -1, axis=1)
    return raw, x.values()


def scales_by_column(raw, x):
    blocks = raw.reshape(96, -1, 34)
    blocks[..., :2] = blocks[..., :2].transpose(1, 0, 2).reshape(96, -1, 2)
    return raw, x.values()


def reciprocal(raw, x):
    blocks = raw.reshape(96, -1, 18)
    d = blocks[..., :2].copy().view(np.float16)
    blocks[..., :2] = np.clip(1 / d.astype(np.float32), -60000, 60000).astype(np.float16).view(np.uint8)
    return raw, x.values()


def hmask(raw, x):
    raw.reshape(96, -1, 110)[..., :32] ^= 255
    return raw, x.values()


def next_small_scale(raw, x):
    """The 6-bit scales of the next sub-block, packed as Q3_K packs them."""
    blocks = raw.reshape(96, -1, 110)
    packed = blocks[..., 96:108]
    low = np.concatenate([packed[..., :8] & 15, packed[..., :8] >> 4], axis=-1)
    high = np.stack([packed[..., 8 + j % 4] >> (2 * (j // 4)) & 3 for j in range(16)], axis=-1)
    sc = np.roll((low | high << 4).reshape(96, -1), -1, axis=1).reshape(96, -1, 16)
    packed[..., :8] = sc[..., :8] & 15 | (sc[..., 8:] & 15) << 4
    packed[..., 8:] = sum((sc[..., 4 * j : 4 * j + 4] >> 4) << (2 * j) for j in range(4))
    return raw, x.values()


def stride(raw, x):
    """Rows of 340 bytes read as if they were padded to 352."""
    flat = raw.reshape(-1)
    far = np.concatenate([flat, np.zeros(96 * 12, np.uint8)])
    return np.stack([far[r * 352 : r * 352 + 340] for r in range(96)]), x.values()


def pairs(raw, x):
    codes = raw.reshape(96, -1, 34)[..., 2:]
    codes[:] = codes.reshape(96, -1, 16, 2)[..., ::-1].reshape(codes.shape)
    return raw, x.values()


def unsigned(raw, x):
    codes = x.codes.astype(np.float64)
    codes[codes < 0] += 256
    return raw, codes * np.repeat(x.d.astype(np.float64), 32, axis=1)


PLANTED = [
    ("Q4_0", nibbles, "the weights are read with low and high nibbles exchanged"),
    ("IQ4_NL", nibbles, "the weights are read with low and high nibbles exchanged"),
    ("Q8_0", next_scale, "the weights' scales are those of the next block"),
    ("Q8_0", scales_by_column, "the weights' scales are stored by column and read by row"),
    ("Q4_0", reciprocal, "the weights' scales are stored as their reciprocal"),
    ("Q3_K", hmask, "the weights are read with the high bits (hmask) inverted"),
    ("Q3_K", next_small_scale, "the weights' 6-bit scales are those of the next block"),
    ("Q8_0", stride, "the weights' rows are read 352 bytes apart, not 340"),
    ("Q8_0", pairs, "the weights are read with neighbouring values exchanged"),
    ("Q8_0", unsigned, "the activations' codes are taken without their sign"),
]


@pytest.mark.parametrize("fmt, change, said", PLANTED, ids=[f"{p[0]} {p[1].__name__}" for p in PLANTED])
def test_the_mistake_is_named_beside_its_error(fmt, change, said):
    found = judged(fmt, change)
    assert found.status == "FAIL" and max(found.causes, key=found.causes.get) == "structured"
    reason = next(text for text in found.reasons if "structured" in text)
    assert f"b: {said}" in reason and "where quantising the activations makes 0.00" in reason


@pytest.mark.parametrize("fmt", SHAPE)
def test_right_operands_pass(fmt):
    assert judged(fmt, lambda raw, x: (raw, x.values())).status == "PASS"


@pytest.mark.parametrize("fmt", SHAPE)
def test_other_weights_are_no_mistake_of_layout(fmt):
    def drawn(raw, x):
        return make("D", fmt, Case(name="other", shape=SHAPE[fmt]), seed=5).weights[0].raw, x.values()

    found = judged(fmt, drawn)
    assert found.status == "FAIL" and "structured" not in found.causes


def test_each_row_takes_its_own_experts_weights():
    made = make("A2", "IQ4_NL", Case(name="test", shape=Shape(32, 12, 64, 4, 2)), seed=3)
    weights, x, experts = made.weights[0], quantise("mmvq", made.x), made.ids.reshape(-1)
    rows = np.array([3, 0, 17])
    found = dict(misreadings(weights, x, experts=experts)(rows))["the weights are read one row further on"]
    values = formats.unpack("IQ4_NL", weights.raw).values()
    expected = np.stack([np.roll(values[experts[r]], -1, axis=0) @ x.take(np.array([r])).values()[0] for r in rows])
    assert np.allclose(found, expected, rtol=1e-12)


def test_weights_that_are_not_quantised_have_none():
    assert misreadings(SimpleNamespace(fmt="F32", raw=np.zeros((2, 8), np.uint8)), None) is None
