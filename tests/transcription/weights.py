"""Raw GGUF rows to integers and scales, byte by byte as the format table says."""

import numpy as np

T = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def half(blocks, at):
    return blocks[..., at:at + 2].copy().view("<f2")[..., 0].astype(np.float32)


def plain(raw, fmt):
    """Q8_0, Q4_0, IQ4_NL rows uint8 [M, bytes] -> q int64 [M, nb, 32], dw float32 [M, nb]."""
    size = {"Q8_0": 34, "Q4_0": 18, "IQ4_NL": 18}[fmt]
    blocks = np.ascontiguousarray(raw).reshape(raw.shape[0], -1, size)
    q = np.zeros((*blocks.shape[:2], 32), np.int64)
    for j in range(32):
        if fmt == "Q8_0":
            q[..., j] = blocks[..., 2 + j].view(np.int8)
            continue
        byte = blocks[..., 2 + j % 16]
        code = byte & 15 if j < 16 else byte >> 4
        q[..., j] = code.astype(np.int64) - 8 if fmt == "Q4_0" else np.array(T)[code]
    return q, half(blocks, 0)


def q3_k(raw):
    """Q3_K rows uint8 [M, bytes] -> code int64 [M, nsb, 256] (0..7), sc int64 [M, nsb, 16] (0..63), d float32 [M, nsb]."""
    blocks = np.ascontiguousarray(raw).reshape(raw.shape[0], -1, 110)
    code = np.zeros((*blocks.shape[:2], 256), np.int64)
    for v in range(256):
        side, plane, at = v // 128, v % 128 // 32, v % 32
        low = (blocks[..., 32 + 32 * side + at] >> (2 * plane)) & 3
        high = (blocks[..., at] >> (4 * side + plane)) & 1
        code[..., v] = low + 4 * high.astype(np.int64)
    sc = np.zeros((*blocks.shape[:2], 16), np.int64)
    for j in range(16):
        nibbles = blocks[..., 96 + j % 8]
        low = nibbles & 15 if j < 8 else nibbles >> 4
        high = (blocks[..., 104 + j % 4] >> (2 * (j // 4))) & 3
        sc[..., j] = low.astype(np.int64) + 16 * high.astype(np.int64)
    return code, sc, half(blocks, 108)
