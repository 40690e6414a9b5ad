"""Orders of operations: one row value per weight row and token, float32 [n, M]."""

import numpy as np

from .arithmetic import butterfly, f, f32, f64, fma, mul
from .weights import plain, q3_k


def terms(raw, fmt, operand):
    """C int64 [n, M, nb] (exact dots of the 32-blocks), dw f32 [1, M, nb], da f32 [n, 1, nb]."""
    q, dw = plain(raw, fmt)
    a = operand.codes.astype(np.int64).reshape(operand.codes.shape[0], -1, 32)
    return np.einsum("mbi,nbi->nmb", q, a), dw[None], operand.d.astype(f32)[:, None]


def float64_rows(C, dw, da):
    acc = np.zeros(C.shape[:2], f64)
    with np.errstate(all="ignore"):
        for b in range(C.shape[2]):
            acc = acc + C[..., b].astype(f64) * (dw[..., b].astype(f64) * da[..., b].astype(f64))
    return f(acc)


def mmvq_rows(C, dw, da):
    lanes = np.zeros((32, *C.shape[:2]), f32)
    for b in range(C.shape[2]):
        lanes[b % 32] = fma(mul(dw[..., b], da[..., b]), f(C[..., b]), lanes[b % 32])
    return butterfly(lanes)


def mmq_rows(C, dw, da):
    acc = np.zeros(C.shape[:2], f32)
    for b in range(C.shape[2]):
        acc = fma(mul(dw[..., b], da[..., b]), f(C[..., b]), acc)
    return acc


def w11_rows(C, dw, da):
    acc = np.zeros(C.shape[:2], f32)
    for b in range(C.shape[2]):
        acc = fma(mul(f(C[..., b]), dw[..., b]), da[..., b], acc)
    return acc


PLAIN = {"ref": float64_rows, "mmvq": mmvq_rows, "mmq": mmq_rows, "w11": w11_rows}


def plain_rows(variant, raw, fmt, operand):
    """D, A2 and U: weights Q8_0 or IQ4_NL, Q4_0 with ref and mmvq alone."""
    if fmt == "Q4_0" and variant in ("mmq", "w11"):
        raise ValueError(f"Q4_0 has no {variant}")
    return PLAIN[variant](*terms(raw, fmt, operand))


def q3_k_rows(variant, raw, operand):
    """A1: weights Q3_K."""
    code, sc, d = q3_k(raw)
    n, nsb = operand.codes.shape[0], d.shape[1]
    a = operand.codes.astype(np.int64).reshape(n, nsb, 256)
    da = operand.d.astype(f32).reshape(n, nsb, 8)
    return Q3_K[variant](code, sc - 32, d, a, da)


def q3_k_ref(code, m, d, a, da):
    acc = np.zeros((a.shape[0], d.shape[0]), f64)
    with np.errstate(all="ignore"):
        for k in range(d.shape[1]):
            for b in range(8):
                total = block_sum(code[:, k] - 4, m[:, k], a[:, k], b)
                acc = acc + total.astype(f64) * (d[None, :, k].astype(f64) * da[:, None, k, b].astype(f64))
    return f(acc)


def block_sum(w, m, a, b):
    """Exact sum over 32-block b of w * m * a: w [M, 256], m [M, 16], a [n, 256] -> int64 [n, M]."""
    total = np.zeros((a.shape[0], w.shape[0]), np.int64)
    for i in range(32 * b, 32 * b + 32):
        total += a[:, None, i] * (w[:, i] * m[:, i // 16])[None]
    return total


def q3_k_mmvq(code, m, d, a, da):
    lanes = np.zeros((16, a.shape[0], d.shape[0]), f32)
    for k in range(d.shape[1]):
        for lane in range(16):
            side, group = lane // 8, lane % 8
            s = np.zeros(lanes.shape[1:], f32)
            for plane in range(4):
                at = 128 * side + 32 * plane + 4 * group
                dot4 = np.zeros(lanes.shape[1:], np.int64)
                for i in range(at, at + 4):
                    dot4 += a[:, None, k, i] * (code[None, :, k, i] - 4)
                s = fma(da[:, None, k, at // 32], f(dot4 * m[None, :, k, at // 16]), s)
            lanes[lane] = fma(d[None, :, k], s, lanes[lane])
    return butterfly(lanes)


def q3_k_mmq(code, m, d, a, da):
    acc = np.zeros((a.shape[0], d.shape[0]), f32)
    for k in range(d.shape[1]):
        for b in range(8):
            c = []
            for sub in range(2):
                total = np.zeros(acc.shape, np.int64)
                for i in range(32 * b + 16 * sub, 32 * b + 16 * sub + 16):
                    total += a[:, None, k, i] * (code[None, :, k, i] - 4)
                c.append(f(total))
            scale0 = mul(d[None, :, k], f(m[None, :, k, 2 * b]))
            scale1 = mul(d[None, :, k], f(m[None, :, k, 2 * b + 1]))
            acc = fma(da[:, None, k, b], fma(c[1], scale1, mul(c[0], scale0)), acc)
    return acc


def q3_k_w11(code, m, d, a, da):
    acc = np.zeros((a.shape[0], d.shape[0]), f32)
    for k in range(d.shape[1]):
        for b in range(8):
            total = block_sum(4 - code[:, k], m[:, k], a[:, k], b)
            acc = fma(f(total), mul(-d[None, :, k], da[:, None, k, b]), acc)
    return acc


Q3_K = {"ref": q3_k_ref, "mmvq": q3_k_mmvq, "mmq": q3_k_mmq, "w11": q3_k_w11}
