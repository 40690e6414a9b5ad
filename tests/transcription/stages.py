"""The stages D, A1, A2, U of every variant: operands, rows, SwiGLU, expert sum, store.

Pairs are token-major: pair = token*k + slot.  Raw weights are uint8 [rows, bytes], with a leading expert axis in A1 and A2.
"""

import numpy as np

from .arithmetic import add, div, f, f32, f64, fma, mul
from .quantisers import quantise
from .rows import plain_rows, q3_k_rows

STORE = {"D": {"ref": "mmvq", "mmvq": "mmvq", "mmq": "mmvq", "w11": "mmvq"},
         "A1": {"ref": "mmvq", "mmvq": "mmvq", "mmq": "mmq", "w11": "mmvq"}}
OPERAND = {"ref": "mmvq", "mmvq": "mmvq", "mmq": "mmq", "w11": "mmvq"}


def d_rows(variant, raw, fmt, x):
    """ffn-in x f32 [n, hidden] -> (d-hq Blocks, d-xl f32 [n, latent])."""
    operand = quantise(OPERAND[variant], x)
    return operand, plain_rows(variant, raw, fmt, operand)


def d(variant, raw, fmt, x):
    """-> (d-hq, d-xl, d-xlq)."""
    operand, xl = d_rows(variant, raw, fmt, x)
    return operand, xl, quantise(STORE["D"][variant], xl)


def swiglu(gate, up, exp):
    """f(f(g / f(1 + E(-g))) * u)."""
    return mul(div(gate, add(f32(1), exp(-gate))), up)


def a1(variant, raw_gate, raw_up, xl, xlq, ids, exp):
    """-> (a-gate, a-up f32 [pairs, F], a-h Blocks); `exp` maps f32 arrays to f32 arrays."""
    operand = quantise("mmq", xl) if variant == "mmq" else xlq
    n, k = ids.shape
    gate = np.zeros((n * k, raw_gate.shape[1]), f32)
    up = np.zeros_like(gate)
    for expert in np.unique(ids):
        pairs = np.flatnonzero(ids.ravel() == expert)
        rows = operand.take(pairs // k)
        gate[pairs] = q3_k_rows(variant, raw_gate[expert], rows)
        up[pairs] = q3_k_rows(variant, raw_up[expert], rows)
    return gate, up, quantise(STORE["A1"][variant], swiglu(gate, up, exp))


def a2(variant, raw_down, h, ids, weights, fmt="IQ4_NL"):
    """a-h Blocks [pairs, F] -> (a-y f32 [pairs, latent], a-yl f32 [n, latent])."""
    n, k = ids.shape
    y = np.zeros((n * k, raw_down.shape[1]), f32)
    for expert in np.unique(ids):
        pairs = np.flatnonzero(ids.ravel() == expert)
        y[pairs] = plain_rows(variant, raw_down[expert], fmt, h.take(pairs))
    return y, expert_sum(variant, y, ids, weights)


def expert_sum(variant, y, ids, weights):
    n, k = ids.shape
    out = np.zeros((n, y.shape[1]), f32)
    for token in range(n):
        order = range(k)
        if variant == "mmq":
            order = sorted(order, key=lambda slot: ids[token, slot])
        if variant == "ref":
            total = np.zeros(y.shape[1], f64)
            for slot in order:
                total = total + f64(weights[token, slot]) * y[token * k + slot].astype(f64)
            out[token] = f(total)
            continue
        acc = np.zeros(y.shape[1], f32)
        for slot in order:
            acc = fma(weights[token, slot], y[token * k + slot], acc)
        out[token] = acc
    return out


def u(variant, raw, fmt, yl):
    """a-yl f32 [n, latent] -> (u-ylq Blocks, u f32 [n, hidden])."""
    operand = quantise(OPERAND[variant], yl)
    return operand, plain_rows(variant, raw, fmt, operand)
