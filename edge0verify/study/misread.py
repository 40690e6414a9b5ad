"""What a product would be if its operands were read wrongly: one mistake of layout after another, each with the rows it gives.

`compare` asks for them where a whole tensor is wrong, and names the mistake whose rows are those that were found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from edge0verify.compare.scale_order import ORDERS
from edge0verify.numerics import formats
from edge0verify.numerics.blocks import BLOCK, Blocks
from edge0verify.numerics.formats import Unpacked
from edge0verify.numerics.rounding import to_f16
from edge0verify.records.evidence import Misreadings
from edge0verify.study.oracle import WeightTensor

MOST_WEIGHTS = 1 << 24
"""Weights above which nothing is tried: every mistake decodes them once."""
ALIGNED = (32, 64, 128, 256)
"""Bytes that rows are padded to by code that takes them to be."""


def misreadings(tensor: WeightTensor, blocks: Blocks, *, experts: np.ndarray | None = None) -> Misreadings | None:
    """A function of row numbers int [r] that gives (what is wrong with the operands, f64 [r, M] the rows that follow).

    None for weights that are not quantised, or too many.
    """
    if tensor.raw.size > MOST_WEIGHTS or tensor.fmt not in ("Q8_0", "Q4_0", "IQ4_NL", "Q3_K"):
        return None

    def found(rows: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        x = blocks.take(rows).values()
        chosen = np.zeros(len(rows), np.int64) if experts is None else experts[rows]
        raw = tensor.raw.reshape(-1, *tensor.raw.shape[-2:])
        used = np.unique(chosen)

        def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
            out = np.empty((len(rows), raw.shape[1]))
            for at, expert in enumerate(used):
                here = chosen == expert
                with np.errstate(invalid="ignore", over="ignore"):
                    out[here] = x[here] @ w[at].T
            return out

        for text, wrong in mistakes(tensor.fmt, raw[used]):
            yield text, product(x, wrong)
        right = formats.unpack(tensor.fmt, raw[used]).values()
        for text, wrong in _activations(blocks, rows):
            yield text, product(wrong, right)

    return found


def _activations(blocks: Blocks, rows: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(text, f64 [r, K]) of the activations of some rows, read with each mistake."""
    part = blocks.take(rows)
    scale = part.dot_scale().astype(np.float64)

    def values(codes: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return codes * np.repeat(scale, BLOCK, axis=1)

    yield "the activations' codes are taken without their sign", values(part.codes.view(np.uint8).astype(np.int16), scale)
    for text, by in (("next block", -1), ("block before", 1)):
        yield f"the activations' scales are those of the {text}", values(part.codes, np.roll(scale, by, axis=1))
    every = blocks.dot_scale().astype(np.float64)
    for text, by in (("next row", 1), ("row before", -1)):
        yield f"the activations' scales are those of the {text}", values(part.codes, every[(rows + by) % len(every)])
    with np.errstate(divide="ignore"):
        yield "the activations' scales are taken for their reciprocal", values(part.codes, np.where(scale == 0, 0, 1 / scale))


def mistakes(fmt: str, raw: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(text, f64 [E, M, K]) of weights uint8 [E, M, bytes] read with each mistake that their format allows."""
    right = formats.unpack(fmt, raw)
    for text, change in _BYTES.get(fmt, ()):
        blocks = formats.blocks_of(fmt, raw).copy()
        change(blocks)
        yield f"the weights are read with {text}", _decoded(fmt, blocks.reshape(raw.shape))
    for text, q in _codes(right):
        yield f"the weights are read with {text}", replace(right, q=q).values()
    if right.sc is not None:
        yield "the weights' 6-bit scales are taken without their zero point", replace(right, sc=right.sc + np.int8(32)).values()
        for text, order in ORDERS.items():
            moved = [order(sc) for sc in right.sc]
            if all(sc is not None for sc in moved):
                yield f"the weights' 6-bit scales {text}", replace(right, sc=np.stack(moved)).values()
    with np.errstate(divide="ignore"):
        inverse = np.where(right.d == 0, np.float32(0), 1 / right.d)
    for text, d in (("taken for", inverse), ("stored as", to_f16(inverse).astype(np.float32))):
        yield f"the weights' scales are {text} their reciprocal", _values(right, d)
    for text, order in ORDERS.items():
        moved = [order(d) for d in right.d]
        if all(d is not None for d in moved):
            yield f"the weights' scales {text}", replace(right, d=np.stack(moved)).values()
    values = right.values()
    for text, by in (("one row further on", -1), ("one row further back", 1)):
        yield f"the weights are read {text}", np.roll(values, by, axis=1)
    if values.shape[1] == values.shape[2]:
        yield "the weights' rows and columns are exchanged", values.transpose(0, 2, 1)
    yield from _strides(fmt, raw)


def _decoded(fmt: str, raw: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):                # bytes that were no scale make NaN of any kind
        return formats.unpack(fmt, raw).values()


def _values(right: Unpacked, d: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):                # an infinite scale times a code of 0
        return replace(right, d=d).values()


def _codes(right: Unpacked) -> Iterator[tuple[str, np.ndarray]]:
    """Codes in another order within their block, or without their sign or zero point (int16)."""
    shape = right.q.shape
    cut = right.q.reshape(*shape[:-1], -1, BLOCK)
    halves = np.arange(BLOCK).reshape(2, -1).T.reshape(-1)
    for text, order in (
        ("neighbouring values exchanged", np.arange(BLOCK) ^ 1),
        ("every four values in reverse", np.arange(BLOCK) ^ 3),
        ("the values of a block in reverse", np.arange(BLOCK)[::-1]),
        ("the halves of a block exchanged", np.arange(BLOCK) ^ 16),
        ("values that are neighbours taken from the two halves of a block", halves),
        ("values of the two halves of a block taken for neighbours", np.argsort(halves)),
    ):
        yield text, cut[..., order].reshape(shape)
    if right.fmt == "Q8_0":
        yield "codes taken without their sign", right.q.view(np.uint8).astype(np.int16)
    elif right.fmt in ("Q4_0", "Q3_K"):
        yield "codes taken without their zero point", right.q.astype(np.int16) + (8 if right.fmt == "Q4_0" else 4)


def _strides(fmt: str, raw: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Rows taken further apart, or nearer, than they are stored; what lies beyond the tensor is NaN."""
    experts, rows, stored = raw.shape
    size = formats.format_of(fmt).bytes
    others = {stored - size, stored + size, *(-(-stored // to) * to for to in ALIGNED)} - {0, stored}
    for stride in sorted(others):
        whole = min(rows, (rows * stored - stored) // stride + 1)
        if whole < 3:
            continue
        at = np.arange(whole)[:, None] * stride + np.arange(stored)
        part = _decoded(fmt, raw.reshape(experts, -1)[:, at])
        out = np.full((experts, rows, part.shape[2]), np.nan)
        out[:, :whole] = part
        yield f"the weights' rows are read {stride} bytes apart, not {stored}", out


def _exchange_nibbles(blocks: np.ndarray) -> None:
    blocks[..., 2:] = (blocks[..., 2:] << np.uint8(4)) | (blocks[..., 2:] >> np.uint8(4))


def _swap_bytes(at: int) -> Callable[[np.ndarray], None]:
    def change(blocks: np.ndarray) -> None:
        blocks[..., at : at + 2] = blocks[..., [at + 1, at]]

    return change


def _invert_hmask(blocks: np.ndarray) -> None:
    blocks[..., :32] ^= np.uint8(255)


def _clear_hmask(blocks: np.ndarray) -> None:
    blocks[..., :32] = 0


_SCALE = "the two bytes of each scale exchanged"
_NIBBLES = ("low and high nibbles exchanged", _exchange_nibbles)
_BYTES: dict[str, tuple[tuple[str, Callable[[np.ndarray], None]], ...]] = {
    "Q8_0": ((_SCALE, _swap_bytes(0)),),
    "Q4_0": (_NIBBLES, (_SCALE, _swap_bytes(0))),
    "IQ4_NL": (_NIBBLES, (_SCALE, _swap_bytes(0))),
    "Q3_K": (
        ("the high bits (hmask) inverted", _invert_hmask), ("the high bits (hmask) left out", _clear_hmask),
        (_SCALE, _swap_bytes(108)),
    ),
}
