"""Block formats of weights and activations: layout, decoding, encoding.

Source: ggml's block structs and its dequantize_row_*/quantize_row_*_ref functions; tests/vectors holds their output.  All
fields are little endian.  `raw` below is uint8 with whole blocks along the last axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import small_floats
from .quantise import quantise
from .rounding import bf16_decode, bf16_encode, to_f16

IQ4_NL_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)


@dataclass(frozen=True)
class Format:
    """A storage format: `values` numbers take `bytes` bytes."""

    name: str
    values: int
    bytes: int

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row; ValueError where the columns do not fill whole blocks."""
        if columns % self.values:
            raise ValueError(f"{self.name} rows hold multiples of {self.values} values, not {columns}")
        return columns // self.values * self.bytes


FORMATS = {f.name: f for f in (
    Format("F32", 1, 4), Format("F16", 1, 2), Format("BF16", 1, 2),
    Format("Q8_0", 32, 34), Format("Q8_1", 32, 36), Format("Q8_K", 256, 292),
    Format("Q4_0", 32, 18), Format("Q3_K", 256, 110), Format("IQ4_NL", 32, 18), Format("NVFP4", 64, 36),
)}


@dataclass(frozen=True)
class Unpacked:
    """Weights as integers and scales, the terms of the integer dots.

    q int8 [..., K]: the code (Q8_0), code-8 (Q4_0), T[code] (IQ4_NL), code-4 (Q3_K); d float32 [..., K/32], for Q3_K
    [..., K/256]; sc int8 [..., K/16] = scale-32 for Q3_K, else None.
    """

    fmt: str
    q: np.ndarray
    d: np.ndarray
    sc: np.ndarray | None

    @property
    def columns(self) -> int:
        return self.q.shape[-1]

    def __getitem__(self, rows) -> Unpacked:
        """The weights of some experts or rows (any index of the leading axes)."""
        return Unpacked(self.fmt, self.q[rows], self.d[rows], None if self.sc is None else self.sc[rows])

    def values(self) -> np.ndarray:
        """float64 [..., K], exact."""
        per = self.columns // self.d.shape[-1]
        d = np.repeat(self.d.astype(np.float64), per, axis=-1)
        return self.q * (d if self.sc is None else d * np.repeat(self.sc, 16, axis=-1))


def format_of(name: str) -> Format:
    """The format called `name`; ValueError names the known ones."""
    try:
        return FORMATS[name]
    except KeyError:
        raise ValueError(f"unknown format {name!r}, expected one of {', '.join(FORMATS)}") from None


def blocks_of(fmt: str, raw) -> np.ndarray:
    """uint8 [..., blocks, bytes] view of raw rows [..., row_bytes]."""
    size = format_of(fmt).bytes
    raw = np.ascontiguousarray(raw, dtype=np.uint8)
    if raw.ndim == 0 or raw.shape[-1] % size:
        raise ValueError(f"{fmt} rows are multiples of {size} bytes, found shape {list(raw.shape)}")
    return raw.reshape(*raw.shape[:-1], raw.shape[-1] // size, size)


def decode(fmt: str, raw) -> np.ndarray:
    """float32 [..., values] of raw uint8 [..., bytes], with the bits ggml's dequantize_row gives."""
    b = blocks_of(fmt, raw)
    with np.errstate(invalid="ignore", over="ignore"):
        out = _DECODERS[fmt](b)
    return out.reshape(*b.shape[:-2], -1)


def unpack(fmt: str, raw) -> Unpacked:
    """Integers and scales of Q8_0, Q4_0, IQ4_NL or Q3_K rows; see `Unpacked`."""
    if fmt not in ("Q8_0", "Q4_0", "IQ4_NL", "Q3_K"):
        raise ValueError(f"{fmt} is no weight format of the kernels; expected Q8_0, Q4_0, IQ4_NL or Q3_K")
    b = blocks_of(fmt, raw)
    lead = b.shape[:-2]
    if fmt == "Q3_K":
        codes, scales = q3_k_codes(b), q3_k_scales(b)
        return Unpacked(fmt, (codes.astype(np.int8) - np.int8(4)).reshape(*lead, -1), _f16_at(b, 108),
                        (scales.astype(np.int8) - np.int8(32)).reshape(*lead, -1))
    if fmt == "Q8_0":
        q = b[..., 2:].view(np.int8)
    elif fmt == "Q4_0":
        q = _nibbles(b[..., 2:]).astype(np.int8) - np.int8(8)
    else:
        q = IQ4_NL_VALUES[_nibbles(b[..., 2:])]
    return Unpacked(fmt, np.ascontiguousarray(q.reshape(*lead, -1)), _f16_at(b, 0), None)


def _f16_at(b: np.ndarray, at: int) -> np.ndarray:
    """float32 of the f16 field at byte `at` of each block."""
    return np.ascontiguousarray(b[..., at:at + 2]).view("<f2")[..., 0].astype(np.float32)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """Codes of blocks whose byte j holds value j (low nibble) and value j + count (high nibble)."""
    return np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1)


def q3_k_codes(b: np.ndarray) -> np.ndarray:
    """uint8 [..., 256] 3-bit codes 0..7 of Q3_K blocks [..., 110].

    Half h of the block keeps its four planes of 32 values in bit pairs of qs[32h:32h+32]; the third bit of plane p is bit
    4h+p of hmask.
    """
    hmask = b[..., None, None, :32]
    qs = b[..., 32:96].reshape(*b.shape[:-1], 2, 1, 32)
    plane = np.arange(4, dtype=np.uint8)[:, None]
    low = (qs >> (2 * plane).astype(np.uint8)) & np.uint8(3)
    bit = (np.array([0, 4], np.uint8)[:, None, None] + plane[None]).astype(np.uint8)
    high = (hmask >> bit) & np.uint8(1)
    return (low | (high << np.uint8(2))).reshape(*b.shape[:-1], 256)


def q3_k_scales(b: np.ndarray) -> np.ndarray:
    """uint8 [..., 16] 6-bit scales: low nibbles in bytes 96..103 (two scales each), bit pairs in bytes 104..107."""
    low = np.concatenate([b[..., 96:104] & np.uint8(15), b[..., 96:104] >> np.uint8(4)], axis=-1)
    pairs = b[..., None, 104:108] >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    return low | ((pairs.reshape(*b.shape[:-1], 16) & np.uint8(3)) << np.uint8(4))


def _decode_q8(b, at):
    return _f16_at(b, 0)[..., None] * b[..., at:].view(np.int8).astype(np.float32)


def _decode_q8_k(b):
    d = np.ascontiguousarray(b[..., :4]).view("<f4")[..., 0]
    return d[..., None] * b[..., 4:260].view(np.int8).astype(np.float32)


def _decode_q3_k(b):
    d = _f16_at(b, 108)[..., None]
    scale = d * (q3_k_scales(b).astype(np.float32) - np.float32(32))
    return np.repeat(scale, 16, axis=-1) * (q3_k_codes(b).astype(np.float32) - np.float32(4))


def _decode_nvfp4(b):
    # ggml's integer table of the elements has no -0, hence the + 0.
    scale = small_floats.UE4M3_VALUES[b[..., :4]]
    codes = _nibbles(b[..., 4:].reshape(*b.shape[:-1], 4, 8))
    return (small_floats.E2M1_VALUES[codes] + np.float32(0)) * scale[..., None]


_DECODERS = {
    "F32": lambda b: b.view("<f4"),
    "F16": lambda b: b.view("<f2").astype(np.float32),
    "BF16": lambda b: bf16_decode(b.view("<u2")),
    "Q8_0": lambda b: _decode_q8(b, 2),
    "Q8_1": lambda b: _decode_q8(b, 4),
    "Q8_K": _decode_q8_k,
    "Q4_0": lambda b: _f16_at(b, 0)[..., None] * (_nibbles(b[..., 2:]).astype(np.float32) - np.float32(8)),
    "IQ4_NL": lambda b: _f16_at(b, 0)[..., None] * IQ4_NL_VALUES[_nibbles(b[..., 2:])].astype(np.float32),
    "Q3_K": _decode_q3_k,
    "NVFP4": _decode_nvfp4,
}


def encode(fmt: str, x) -> np.ndarray:
    """uint8 [..., bytes] of float32 [..., values] as ggml's reference encoder writes it: Q8_0, Q8_1, Q8_K, Q4_0, BF16.

    Blocks that ggml leaves undefined (1/d beyond float32) become d = 0 and codes of value 0.
    """
    if fmt not in _ENCODERS:
        raise ValueError(f"no encoder for {fmt}; there are {', '.join(_ENCODERS)}")
    x = np.ascontiguousarray(x, dtype=np.float32)
    values = format_of(fmt).values
    if x.ndim == 0 or x.shape[-1] % values:
        raise ValueError(f"{fmt} rows hold multiples of {values} values, found shape {list(x.shape)}")
    with np.errstate(all="ignore"):
        out = _ENCODERS[fmt](x.reshape(-1, values))
    return out.reshape(*x.shape[:-1], -1)


def pack_q8(blocks, fmt: str) -> np.ndarray:
    """uint8 [rows, row_bytes]: quantised rows laid out as Q8_0 (d, codes) or Q8_1 (d, s, codes)."""
    heads = [blocks.d] if fmt == "Q8_0" else [blocks.d, blocks.s]
    if any(h is None or h.dtype != np.float16 for h in heads):
        raise ValueError(f"{fmt} stores float16 scales{' and sums' if fmt == 'Q8_1' else ''}; {blocks.quantiser} has none")
    rows, groups = blocks.d.shape
    parts = [np.ascontiguousarray(h).view(np.uint8).reshape(rows, groups, 2) for h in heads]
    parts.append(blocks.codes.view(np.uint8).reshape(rows, groups, 32))
    return np.concatenate(parts, axis=-1).reshape(rows, -1)


def _encode_q8(fmt):
    def encoder(x):
        return pack_q8(quantise("ggml-ref", x), fmt)
    return encoder


def _signed_extreme(x):
    """The value of largest magnitude of each block, the first one among equals."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1)[:, None], axis=-1)


def _encode_q4_0(x):
    d = (_signed_extreme(x) + np.float32(0)) / np.float32(-8)  # -0 counts as +0: an empty block stores d = -0
    inverse = np.where(d == 0, np.float32(0), np.float32(1) / d)
    inverse = np.where(np.isinf(inverse), np.float32(0), inverse)
    codes = np.clip(x * inverse + np.float32(8.5), 0, 15).astype(np.uint8)
    packed = codes[:, :16] | (codes[:, 16:] << np.uint8(4))
    return np.concatenate([to_f16(d).view(np.uint8), packed], axis=-1)


def _encode_q8_k(x):
    top = _signed_extreme(x)
    scale = np.where(top == 0, np.float32(0), np.float32(-127) / top)
    dead = (scale == 0) | np.isinf(scale)
    codes = np.minimum(np.rint(np.where(dead, np.float32(0), scale * x)), np.float32(127)).astype(np.int8)
    d = np.where(dead, np.float32(0), np.float32(1) / scale)
    sums = codes.reshape(-1, 16, 16).sum(axis=-1, dtype=np.int16)
    return np.concatenate([d.view(np.uint8), codes.view(np.uint8), sums.view(np.uint8)], axis=-1)


_ENCODERS = {
    "Q8_0": _encode_q8("Q8_0"),
    "Q8_1": _encode_q8("Q8_1"),
    "Q8_K": _encode_q8_k,
    "Q4_0": _encode_q4_0,
    "BF16": lambda x: bf16_encode(x).view(np.uint8),
}
