"""Statements that kernels rest on, each checked over every code it speaks of (`edge0verify prove`).

A claim is a function: its docstring says what is claimed and where it comes from, its result whether it holds and for exactly
which set.  A false claim is kept here with the truth beside it, because people keep making it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .rounding import bf16_decode, to_f16
from .small_floats import E2M1_VALUES, E4M3_VALUES


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The outcome of one claim."""

    name: str
    statement: str
    holds: bool
    where: str
    """The exact set for which it holds."""
    checked: int
    """Cases looked at: all there are."""
    source: str
    stated: bool = True
    """Whether it is said here to hold; False for what people keep claiming although it does not."""

    @property
    def as_stated(self) -> bool:
        """Whether the check came out as it is said to."""
        return self.holds == self.stated


def q3_k_negated_product_fits_int8() -> Claim:
    """(4-code)*(sc-32) fits int8 for all 8 codes and 64 scales.

    The w11 kernel of A1 feeds this product to an int8 matrix step.  Source: ggml's Q3_K (3-bit code, 6-bit scale).
    """
    products = _q3_k_products(-1)
    low, high = int(products.min()), int(products.max())
    return Claim(name="q3k-int8", statement="(4-code)*(sc-32) fits int8", holds=low >= -128 and high <= 127,
                 where=f"all 8 x 64 cells, range [{low}, {high}]", checked=products.size, source="Q3_K layout")


def q3_k_textbook_product_fits_int8() -> Claim:
    """(code-4)*(sc-32), the sign in which the format is written down, fits int8.

    False: at code 0 and sc 0 it is +128.  Source: ggml's dequantize_row_q3_K.
    """
    products = _q3_k_products(1)
    bad = np.argwhere((products < -128) | (products > 127))
    cells = "; ".join(f"code {code}, sc {sc}: {products[code, sc]}" for code, sc in bad)
    return Claim(name="q3k-int8-textbook", statement="(code-4)*(sc-32) fits int8", holds=not len(bad),
                 where=f"{products.size - len(bad)} of {products.size} cells; not {cells}", checked=products.size,
                 source="Q3_K layout", stated=False)


def _q3_k_products(sign: int) -> np.ndarray:
    return sign * np.multiply.outer(np.arange(8) - 4, np.arange(64) - 32)


def q3_k_int8_sum_is_exact() -> Claim:
    """A sum of 32 products of that int8 weight with an int8 activation is exact in int32 and in float32, 256 terms in int32.

    Every pair of int8 is looked at, so the largest term is found, not assumed.  Source: the w11 contract of A1.
    """
    codes = np.arange(-128, 128)
    largest = int(np.abs(np.multiply.outer(codes, codes)).max())
    block, super_block = 32 * largest, 256 * largest
    return Claim(name="q3k-sum", statement="a 32-term sum of the int8 products is exact in int32 and float32",
                 holds=block <= 1 << 24 and super_block < 1 << 31,
                 where=f"32 terms: at most {block:,}; 256 terms: at most 2^{super_block.bit_length() - 1}", checked=codes.size**2,
                 source="A1 w11 contract")


def e2m1_low_byte_is_zero() -> Claim:
    """The float16 of every E2M1 value has a zero low byte, so a kernel may keep the high byte alone.

    Source: OCP Microscaling v1.0, E2M1.
    """
    low = to_f16(E2M1_VALUES).view(np.uint16) & 0xFF
    return _over("e2m1-byte", "f16(e2m1) has a zero low byte", low == 0, "codes", "OCP MX v1.0")


def e2m1_times_e4m3_is_exact() -> Claim:
    """The product of an E2M1 value and a finite E4M3 scale is a float16, and a bfloat16 too.

    Source: NVFP4 (16 E2M1 values to an E4M3 scale).
    """
    scales = E4M3_VALUES[np.isfinite(E4M3_VALUES)].astype(np.float64)
    product = np.multiply.outer(E2M1_VALUES.astype(np.float64), scales)
    as_f16 = to_f16(product).astype(np.float64) == product
    as_bf16 = (product.astype(np.float32).view(np.uint32) & 0xFFFF) == 0
    good = as_f16 & as_bf16 & (product.astype(np.float32) == product)
    size = np.abs(product)
    low = int(np.log2(size[size > 0].min()))
    return Claim(name="nvfp4-f16", statement="e2m1*e4m3 is exact in f16 (and in bf16)", holds=bool(good.all()),
                 where=f"{int(good.sum())} of {good.size}; largest {size.max():g}, smallest 2^{low}",
                 checked=good.size, source="NVFP4")


def e4m3_by_plain_shift() -> Claim:
    """An E4M3 code becomes its value by shifting all its bits left by 7, reading a float16 and multiplying by 256.

    False: the sign bit lands in the exponent.  Source: fast FP8 decoders that treat the sign apart.
    """
    good = _shift_decodes(lambda b: (b << 7) & 0xFFFF)
    return Claim(name="e4m3-plain-shift", statement="E4M3 decodes by (b<<7) read as f16, times 256", holds=bool(good.all()),
                 where=f"the {int(good.sum())} codes with a clear sign bit; wrong for {int((~good).sum())} of {good.size}",
                 checked=good.size, source="FP8 E4M3 (fn)", stated=False)


def e4m3_by_shift_with_sign() -> Claim:
    """The same with the sign moved on its own: ((b&0x7f)<<7)|((b&0x80)<<8).

    It needs float16 subnormals: under flush to zero the codes of exponent 0 break.  Source: FP8 E4M3 (fn).
    """
    good = _shift_decodes(lambda b: ((b & 0x7F) << 7) | ((b & 0x80) << 8))
    b = np.arange(256)
    pattern = ((b & 0x7F) << 7).astype(np.uint16)
    subnormal = int(((pattern > 0) & (pattern < 0x400) & np.isfinite(E4M3_VALUES)).sum())
    return Claim(name="e4m3-shift", statement="E4M3 decodes by ((b&0x7f)<<7)|((b&0x80)<<8) read as f16, times 256",
                 holds=bool(good.all()), checked=good.size,
                 where=f"all {good.size} finite codes, where f16 subnormals work ({subnormal} codes need them)",
                 source="FP8 E4M3 (fn)")


def _shift_decodes(bits: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """bool over the 254 finite E4M3 codes: f16 of bits(code) times 256 is the value, sign of zero included."""
    finite = np.flatnonzero(np.isfinite(E4M3_VALUES))
    with np.errstate(invalid="ignore"):
        got = bits(finite).astype(np.uint16).view(np.float16).astype(np.float32) * np.float32(256)
    return got.view(np.uint32) == E4M3_VALUES[finite].view(np.uint32)


def e4m3_is_f16() -> Claim:
    """Every finite E4M3 value is a float16.

    Source: FP8 E4M3 (fn).
    """
    finite = E4M3_VALUES[np.isfinite(E4M3_VALUES)]
    good = to_f16(finite).astype(np.float32) == finite
    return _over("e4m3-f16", "every E4M3 value is an f16", good, "finite codes", "FP8 E4M3 (fn)")


def bf16_to_f16_below_the_limit() -> Claim:
    """Converting a bfloat16 to float16 is exact for |a| <= 65504.

    False: float16 has no room for small exponents.  Source: the usual argument from the largest float16 alone.
    """
    value = bf16_decode(np.arange(1 << 16, dtype=np.uint16))
    below = value[np.abs(value) <= 65504].astype(np.float64)
    good = to_f16(below).astype(np.float64) == below
    exact = np.abs(below[good])
    low, high = 2.0**-17, exact.max()
    inside = (np.abs(below) >= low) & (np.abs(below) <= high)
    everywhere = bool(good[inside].all()) and bool(good[below == 0].all())
    few = int(((exact > 0) & (exact < low)).sum())
    where = (f"2^-17 <= |a| <= {high:g} and zero, and {few} smaller multiples of 2^-24" if everywhere else
             f"{int(good.sum())} values")
    where = f"{where}; {int((~good).sum()):,} of {below.size:,} finite bf16 within the limit are inexact"
    return Claim(name="bf16-f16", statement="bf16 to f16 is exact for |a| <= 65504", holds=bool(good.all()), where=where,
                 checked=below.size, source="IEEE 754 binary16", stated=False)


def radix_order_is_rank_order() -> Claim:
    """Sorting by integer keys ranks as the host does: NaN as -inf, -0 as +0, larger first, equal ones by lower index.

    Checked on every bfloat16 and every float16 value as float32, each twice so that ties are met.  Source: top-k by radix select.
    """
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = np.concatenate([bf16_decode(bits), bits.view(np.float16).astype(np.float32)])
    x = np.concatenate([x, x[::-1]])
    key = radix_key(x)
    by_key = np.argsort(~key, kind="stable")
    host = np.where(np.isnan(x), np.float32(-np.inf), x).astype(np.float64)
    by_rank = np.lexsort((np.arange(x.size), -host))
    good = by_key == by_rank
    return _over("radix-order", "radix key order equals the host's rank order", good, "places", "top-k by radix select")


def radix_key(x: np.ndarray) -> np.ndarray:
    """uint32 keys of float32 values, larger key first: sign-magnitude bits made monotone, NaN as -inf, -0 as +0."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).copy()
    bits[np.isnan(x)] = 0xFF800000
    bits[bits == 0x80000000] = 0
    return np.where(bits >> 31, ~bits, bits | np.uint32(0x80000000))


def _over(name: str, statement: str, good: np.ndarray, what: str, source: str) -> Claim:
    share = f"all {good.size:,} {what}" if good.all() else f"{int(good.sum()):,} of {good.size:,} {what}"
    return Claim(name=name, statement=statement, holds=bool(good.all()), where=share, checked=good.size, source=source)


CLAIMS: tuple[Callable[[], Claim], ...] = (
    q3_k_negated_product_fits_int8, q3_k_textbook_product_fits_int8, q3_k_int8_sum_is_exact, e2m1_low_byte_is_zero,
    e2m1_times_e4m3_is_exact, e4m3_by_shift_with_sign, e4m3_by_plain_shift, e4m3_is_f16, bf16_to_f16_below_the_limit,
    radix_order_is_rank_order,
)


def prove() -> tuple[Claim, ...]:
    """Every claim's outcome, in the order of `CLAIMS`; under two seconds."""
    return tuple(claim() for claim in CLAIMS)
