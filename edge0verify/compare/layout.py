"""Why decoded weights are wrong though every shape fits: which mistake in the layout turns the reference into what was found.

Each hypothesis undoes one mistake; the one that brings the error down to what the format loses anyway is named. A hypothesis that
helps and leaves more than that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from edge0verify.compare.loss import SCALE_BLOCK, expected_loss, relative
from edge0verify.compare.scale_order import ORDERS
from edge0verify.numerics import formats
from edge0verify.records.errors import InputError

SLACK = 1.5
"""Times the format's own loss that may be left: an encoder that is a little worse is no fault of layout."""
HELPS = 0.1
"""Share of the error that may be left where the format's own loss is not known."""
NIBBLES = ("Q4_0", "IQ4_NL", "NVFP4")


@dataclass(frozen=True)
class Layout:
    """The error of a decoded tensor, beside what its format loses anyway."""

    rel_l2: float
    expected: float | None
    """The format's own loss; None for an unknown format."""
    hypothesis: str | None
    """The mistake that fits; None where none is needed or none fits."""
    left: float | None
    """Error once that mistake is undone."""

    @property
    def wrong(self) -> bool:
        """Whether the error is more than the format's own."""
        return self.rel_l2 > _allowed(self.rel_l2, self.expected)

    def text(self) -> str:
        """'rel L2 0.76 where the format's own loss is 0.095: scales stored as the reciprocal (0.095 once undone)'."""
        said = f"rel L2 {self.rel_l2:.2g}"
        if self.expected is not None:
            said += f" where the format's own loss is {self.expected:.2g}"
        if self.hypothesis is None:
            return said + (": no layout fault fits" if self.wrong else "")
        return f"{said}: {self.hypothesis} ({self.left:.2g} once undone)"


def _allowed(found: float, expected: float | None) -> float:
    return HELPS * found if expected is None else max(SLACK * expected, 1e-6)


def diagnose(found: np.ndarray, reference: np.ndarray, *, fmt: str | None = None, raw: np.ndarray | None = None) -> Layout:
    """Hold decoded weights `found` [rows, K] against `reference` [rows, K] of the same values before they were stored.

    `fmt` is the storage format; with `raw` uint8 [rows, bytes], the stored bytes, mistakes in the bytes are tried too.
    InputError for shapes that do not fit.
    """
    found, reference = np.asarray(found, np.float64), np.asarray(reference, np.float64)
    if found.ndim != 2 or found.shape != reference.shape:
        raise InputError(f"layout: expected the reference's shape {list(reference.shape)}, found {list(found.shape)}")
    error, expected = relative(found, reference), None if fmt is None else expected_loss(fmt, reference)
    if error == 0 or (expected is not None and error <= _allowed(error, expected)):
        return Layout(error, expected, None, None)
    best: tuple[float, str] | None = None
    for name, undo in _hypotheses(found, reference, fmt, raw):
        with np.errstate(all="ignore"):
            undone = undo()
        left = np.inf if undone is None else relative(undone, reference)
        # The first of equals: they stand in the order of how little they assume.
        if left <= _allowed(error, expected) and (best is None or left < 0.9 * best[0]):
            best = (left, name)
    return Layout(error, expected, best and best[1], best and best[0])


Undo = Callable[[], np.ndarray | None]


def _hypotheses(found, reference, fmt, raw) -> Iterator[tuple[str, Undo]]:
    yield "every sign is inverted", lambda: -found
    yield from _factor(found, reference)
    yield from _nibbles(found, fmt)
    if raw is not None and fmt is not None:
        yield from _bytes(fmt, np.asarray(raw, np.uint8))
    block = SCALE_BLOCK.get(fmt or "", 32)
    if found.shape[1] % block == 0:
        yield from _scales(found, reference, block)
        offset = f"an offset in every block of {block}, as of codes taken without their zero point"
        yield offset, lambda: _offset(found, reference, block)
    yield from _strides(found, reference)
    if found.shape[0] == found.shape[1]:
        yield "rows and columns are exchanged", lambda: found.T
    yield "rows are one further on", lambda: np.roll(found, 1, axis=0)
    yield "rows are one further back", lambda: np.roll(found, -1, axis=0)


def _factor(found: np.ndarray, reference: np.ndarray) -> Iterator[tuple[str, Undo]]:
    size = float(np.vdot(reference, reference))
    factor = float(np.vdot(found, reference)) / size if size > 0 else 0.0
    if np.isfinite(factor) and factor > 0 and abs(factor - 1) > 1e-3:
        yield f"everything is {factor:.6g} times too large, as by a tensor scale left out or inverted", lambda: found / factor


def _nibbles(found: np.ndarray, fmt: str | None) -> Iterator[tuple[str, Undo]]:
    """Both nibbles of a byte exchanged, or taken for neighbours where they stand half a group apart (and the reverse)."""
    if fmt not in (None, *NIBBLES):
        return
    for group in (16,) if fmt == "NVFP4" else (32,) if fmt else (32, 16):
        if found.shape[1] % group:
            continue
        order = np.arange(group)
        half = group // 2
        for name, source in (
            (f"low and high nibbles are exchanged (values j and j+{half} of {group})", np.roll(order, half)),
            ("low and high nibbles are exchanged (neighbours)", order ^ 1),
            (f"nibbles of a byte are read as neighbours, not {half} apart", np.concatenate([order[::2], order[1::2]])),
            (f"nibbles of a byte are read {half} apart, not as neighbours", np.argsort(np.concatenate([order[::2], order[1::2]]))),
        ):
            yield name, lambda s=source, g=group: found.reshape(len(found), -1, g)[:, :, s].reshape(found.shape)


def _bytes(fmt: str, raw: np.ndarray) -> Iterator[tuple[str, Undo]]:
    """Mistakes that only the stored bytes can undo."""
    size = formats.format_of(fmt).bytes

    def decoded(change: Callable[[np.ndarray], None]) -> np.ndarray | None:
        blocks = raw.copy().reshape(len(raw), -1, size)
        change(blocks)
        return formats.decode(fmt, blocks.reshape(raw.shape)).astype(np.float64)

    if fmt in NIBBLES:
        first = 4 if fmt == "NVFP4" else 2

        def exchange(blocks: np.ndarray) -> None:
            codes = blocks[..., first:]
            blocks[..., first:] = (codes << np.uint8(4)) | (codes >> np.uint8(4))

        yield "low and high nibbles are exchanged in the bytes", lambda: decoded(exchange)
    if fmt == "Q3_K":

        def hmask(blocks: np.ndarray) -> None:
            blocks[..., :32] ^= np.uint8(255)

        yield "the high bits (hmask) are inverted", lambda: decoded(hmask)
    at = {"Q8_0": 0, "Q4_0": 0, "IQ4_NL": 0, "Q3_K": 108}.get(fmt)
    if at is not None:

        def swapped(blocks: np.ndarray) -> None:
            blocks[..., at : at + 2] = blocks[..., [at + 1, at]]

        yield "the two bytes of each scale are exchanged", lambda: decoded(swapped)


def _scales(found: np.ndarray, reference: np.ndarray, block: int) -> Iterator[tuple[str, Undo]]:
    """Blocks that are right but for a factor each: inverted scales, or scales that belong to other blocks."""
    cut = (len(found), found.shape[1] // block, block)
    x, y = found.reshape(cut), reference.reshape(cut)
    with np.errstate(all="ignore"):
        factor = np.einsum("rbk,rbk->rb", x, y) / np.einsum("rbk,rbk->rb", y, y)
    own = np.abs(y).max(axis=2)
    good = np.isfinite(factor) & (factor != 0) & (own > 0)
    if good.sum() < 8:
        return
    size, ratio = np.log(own[good]), np.log(np.abs(factor[good]))

    def undone(by: np.ndarray) -> np.ndarray:
        return (x / by[:, :, None]).reshape(found.shape)

    slope = float(np.polyfit(size, ratio, 1)[0]) if np.ptp(size) > 0.2 else 0.0
    if abs(slope + 2) < 0.3:
        yield f"scales of blocks of {block} are stored as the reciprocal", lambda: undone(np.where(good, factor, 1))
    if np.all(np.abs(np.abs(factor[good]) - 1) < 0.3) and (factor[good] < 0).any() and (factor[good] > 0).any():
        yield f"some scales of blocks of {block} have the wrong sign", lambda: undone(np.where(good, np.sign(factor), 1))
    if not good.all():
        return
    held = np.abs(factor) * own  # the scale that each block was decoded with, as a magnitude
    if np.abs(np.sort(np.log(held), axis=None) - np.sort(np.log(own), axis=None)).mean() > 0.1:
        return
    for name, order in ORDERS.items():
        moved = order(own)
        if moved is not None and not np.array_equal(moved, own) and np.abs(np.log(held) - np.log(moved)).mean() < 0.1:
            yield f"scales of blocks of {block} {name}", lambda: undone(factor)
            return
    if np.ptp(np.log(own)) > 0.2 and np.abs(ratio).mean() > 0.05:
        yield f"scales of blocks of {block} stand in another order", lambda: undone(factor)


def _offset(found: np.ndarray, reference: np.ndarray, block: int) -> np.ndarray:
    cut = (len(found), found.shape[1] // block, block)
    gap = (found - reference).reshape(cut).mean(axis=2)
    return (found.reshape(cut) - gap[:, :, None]).reshape(found.shape)


def _strides(found: np.ndarray, reference: np.ndarray) -> Iterator[tuple[str, Undo]]:
    """Rows that were read at another distance than they are stored: row r begins at r*stride of the reference."""
    rows, columns = found.shape
    if rows < 3:
        return
    flat = reference.reshape(-1)
    windows = np.lib.stride_tricks.sliding_window_view(flat[: 3 * columns], columns)
    with np.errstate(all="ignore"):
        gap = np.square(windows - found[1]).sum(axis=1)
    stride = int(np.argmin(np.nan_to_num(gap, nan=np.inf)))
    whole = min(rows, (flat.size - columns) // stride + 1) if stride else 0
    if stride in (0, columns) or whole < 3:
        return

    def undo() -> np.ndarray:
        # Only rows that the reference holds can be undone; the rest would have been read beyond its end.
        out = reference.copy()
        read = np.stack([flat[r * stride : r * stride + columns] for r in range(whole)])
        out[:whole] += found[:whole] - read
        return out

    yield f"rows are read {stride} values apart, not {columns}", undo
