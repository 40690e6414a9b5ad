"""The activation quantisers, one block of 32 after the other along K, rows side by side."""

import numpy as np

from edge0verify.numerics.blocks import Blocks

from .arithmetic import add, div, f, h, mul, round_half_away, round_half_even

ONE, B127 = np.float32(1), np.float32(127)


def quantise(name, x):
    x = f(x)
    rows, width = x.shape
    codes = np.zeros((rows, width), np.int8)
    d = np.zeros((rows, width // 32), np.float32 if name == "mmq" else np.float16)
    s = None if name == "mmq" else np.zeros((rows, width // 32), np.float16)
    for b in range(width // 32):
        block = x[:, 32 * b:32 * b + 32]
        c, scale, total = one_block(name, block)
        bad = ~np.isfinite(block).all(axis=1)
        codes[:, 32 * b:32 * b + 32] = np.where(bad[:, None], 0, c)
        d[:, b] = np.where(bad, np.nan, scale if name == "mmq" else h(scale))
        if s is not None:
            s[:, b] = np.where(bad, np.nan, h(total))
    return Blocks(codes, d, s, name)


def one_block(name, x):
    """codes [rows, 32], f32 d [rows], f32 s [rows] of finite x [rows, 32]."""
    amax = np.abs(x).max(axis=1)
    d = div(amax, B127)
    if name == "mmvq":
        zero = d == 0
        q = round_half_away(div(x, d[:, None]))
        s = butterfly_of(x)
    elif name == "ggml-ref":
        r = div(ONE, d)
        zero = (d == 0) | np.isinf(r)
        q = round_half_away(mul(x, r[:, None]))
    else:
        r = div(B127, amax)
        zero = (d == 0) | np.isinf(r)
        q = mul(x, r[:, None])
        q = round_half_away(q) if name == "mmq" else round_half_even(q)
        if name == "mmq":
            d = div(ONE, r)
    with np.errstate(invalid="ignore"):
        codes = np.where(zero[:, None], 0, np.nan_to_num(np.clip(q, -127, 127))).astype(np.int64)
    d = np.where(zero, np.float32(0), d)
    if name == "mmvq":
        return codes, d, s
    return codes, d, mul(d, f(codes.sum(axis=1)))


def butterfly_of(x):
    lanes = x.T.copy()
    for step in (16, 8, 4, 2, 1):
        lanes = add(lanes, lanes[np.arange(32) ^ step])
    return lanes[0]
