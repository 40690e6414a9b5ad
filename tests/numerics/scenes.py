"""Small stages with rows of every variant, made by the transcription: what the tests of bounds and of the bias test judge."""

import functools
from dataclasses import dataclass

import numpy as np

from edge0verify.numerics import formats, oracle
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.contracts import Contract, contract
from tests.transcription import quantisers, rows, stages


@dataclass(frozen=True)
class Scene:
    """Rows y of one variant with everything needed to judge them."""

    contract: Contract
    weights: formats.Unpacked
    raw: np.ndarray
    blocks: Blocks
    y: np.ndarray
    n: int

    @property
    def oracle(self):
        t, s = oracle.own_oracle(self.contract, self.weights, self.blocks)
        return t, oracle.bound(self.n, s)


def q3_k_raw(m, k, seed):
    """Random Q3_K rows with scales of both signs near 0.01."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (m, k // 256, 110), dtype=np.uint8)
    d = (rng.standard_normal((m, k // 256, 1)) * 0.01).astype(np.float16)
    raw[..., 108:] = d.view(np.uint8)
    return raw.reshape(m, -1)


def iq4_nl_raw(m, k, seed):
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (m, k // 32, 18), dtype=np.uint8)
    raw[..., :2] = (rng.standard_normal((m, k // 32, 1)) * 0.01).astype(np.float16).view(np.uint8)
    return raw.reshape(m, -1)


def weights_of(fmt, m, k, seed):
    if fmt == "Q3_K":
        return q3_k_raw(m, k, seed)
    if fmt == "IQ4_NL":
        return iq4_nl_raw(m, k, seed)
    return formats.encode(fmt, (np.random.default_rng(seed).standard_normal((m, k)) * 0.05).astype(np.float32))


FORMAT = {"D": "Q8_0", "U": "Q8_0", "A1": "Q3_K", "A2": "IQ4_NL"}


@functools.cache
def scene(stage, variant, n=160, m=64, k=512, seed=0):
    """`n` rows of normals through `stage`, the weights in the stage's own format."""
    fmt = FORMAT[stage]
    raw = weights_of(fmt, m, k, seed)
    x = np.random.default_rng(seed + 1).standard_normal((n, k)).astype(np.float32)
    operand = quantisers.quantise(stages.OPERAND[variant], x)
    y = rows.q3_k_rows(variant, raw, operand) if fmt == "Q3_K" else rows.plain_rows(variant, raw, fmt, operand)
    c = contract(stage, variant)
    return Scene(c, formats.unpack(fmt, raw), raw, operand, y, c.roundings(nb=k // 32))
