"""Faults made in a kernel's outputs after it ran: what wrong indexing, a stale buffer or a wrong layout leave behind.

Each changes the first tensor it shows in and, where the engine would go on from there, what is stored of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edge0verify.numerics.blocks import POISON_CODE, POISON_F16_BITS, POISON_F32_BITS
from edge0verify.numerics.quantise import quantise
from edge0verify.study.replay import replay
from edge0verify.study.selftest import scenes
from edge0verify.study.selftest.types import Doctor, Doctored, Tensors
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.weights import layer_weights

Change = Callable[[np.ndarray], None]
POISON_F32 = np.array(POISON_F32_BITS, np.uint32).view(np.float32)
POISON_F16 = np.array(POISON_F16_BITS, np.uint16).view(np.float16)


def rows(tensor: str, change: Change) -> Doctor:
    """Change f32 rows in place; what D stores is stored of the changed rows."""

    def apply(outputs: Tensors, rng, inputs) -> Tensors:
        change(outputs[tensor])
        if tensor == "d-xl":
            outputs["d-xlq"] = quantise(outputs["d-xlq"].quantiser, outputs["d-xl"])
        return outputs

    return apply


def moved(tensor: str, order: Callable[[int, np.random.Generator], np.ndarray]) -> Doctor:
    """Row i becomes what row order[i] was, in f32 rows and in what is stored of it."""

    def apply(outputs: Tensors, rng, inputs) -> Tensors:
        new = order(len(outputs[tensor]), rng)
        outputs[tensor] = outputs[tensor][new]
        if tensor == "d-xl":
            outputs["d-xlq"] = outputs["d-xlq"].take(new)
        return outputs

    return apply


def blocks(tensor: str, *, codes: Change | None = None, d: Change | None = None, s: Change | None = None) -> Doctor:
    """Change codes int8 [n, m], scales [n, m/32] or sums [n, m/32] in place."""

    def apply(outputs: Tensors, rng, inputs) -> Tensors:
        for change, array in ((codes, outputs[tensor].codes), (d, outputs[tensor].d), (s, outputs[tensor].s)):
            if change is not None:
                change(array)
        return outputs

    return apply


def put(index, value) -> Change:
    def change(array: np.ndarray) -> None:
        array[index] = value

    return change


def scaled(index, factor: float) -> Change:
    def change(array: np.ndarray) -> None:
        array[index] = (array[index] * factor).astype(array.dtype)

    return change


def copied(to, source) -> Change:
    def change(array: np.ndarray) -> None:
        array[to] = array[source].copy()

    return change


def ulp_up(index) -> Change:
    def change(array: np.ndarray) -> None:
        array[index] = np.nextafter(array[index], np.copysign(np.float32(np.inf), array[index]))

    return change


def ulp_toward_plus(index) -> Change:
    def change(array: np.ndarray) -> None:
        array[index] = np.nextafter(array[index], np.float32(np.inf))

    return change


def cleared_last_bit(array: np.ndarray) -> None:
    array.view(np.uint32)[...] &= np.uint32(0xFFFFFFFE)


def exchanged(first: slice, second: slice) -> Change:
    """Two runs of columns exchanged."""

    def change(array: np.ndarray) -> None:
        kept = array[:, first].copy()
        array[:, first] = array[:, second]
        array[:, second] = kept

    return change


def inverted(d: np.ndarray) -> None:
    with np.errstate(divide="ignore", over="ignore"):
        d[...] = np.where(d != 0, 1 / d.astype(np.float32), 0).astype(d.dtype)


def scattered(share: float, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Elements here and there, by a fixed seed."""

    def apply(array: np.ndarray) -> None:
        hit = np.random.default_rng(11).random(array.shape) < share
        array[hit] = change(array[hit])

    return apply


def flipped_exponent(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) ^ np.uint32(1 << 23)).view(np.float32)


def one_off(codes: np.ndarray) -> np.ndarray:
    return np.where(codes < 127, codes + 1, codes - 1).astype(codes.dtype)


def wider_stride(array: np.ndarray) -> None:
    """Rows written 32 columns further apart than they are read."""
    flat = array.reshape(-1)
    n, m = array.shape
    wide = np.full(n * (m + 32), 0, array.dtype)
    wide.reshape(n, m + 32)[:, :m] = array
    flat[:] = wide[: flat.size]


def within_token(outputs: Tensors, rng, inputs) -> Tensors:
    """a-y left in the order of ascending expert id within each token."""
    ids = inputs["route-ids"]
    order = np.argsort(ids, axis=1, kind="stable") + np.arange(len(ids))[:, None] * ids.shape[1]
    outputs["a-y"] = outputs["a-y"][order.reshape(-1)]
    return outputs


def by_expert(outputs: Tensors, rng, inputs) -> Tensors:
    """a-h left grouped by expert, as the kernel worked through them."""
    outputs["a-h"] = outputs["a-h"].take(np.argsort(inputs["route-ids"].reshape(-1), kind="stable"))
    return outputs


def another_layer(outputs: Tensors, rng, inputs) -> Tensors:
    """The stage run with the weights of the layer before."""
    ran = replay(scenes.model(), "A", scenes.LAYER - 1, "w11", inputs, Kernels(threads=scenes.THREADS))
    return dict(ran.tensors)


def going_on(apply: Doctor) -> Doctor:
    """A fault in a-h, with A2 run on what it left: the engine would go on from there."""

    def applied(outputs: Tensors, rng, inputs) -> Tensors:
        outputs = apply(outputs, rng, inputs)
        kernels = Kernels(threads=scenes.THREADS)
        down = layer_weights(scenes.model(), scenes.LAYER, kernels).down_exps
        ran = kernels.a2("w11", down, outputs["a-h"], inputs["route-ids"], inputs["route-weights"])
        outputs["a-y"], outputs["a-yl"] = ran.y, ran.yl
        return outputs

    return applied


def before(outputs: Tensors, rng, inputs) -> Tensors:
    """a-h: pairs of tokens 64 to 95 keep those of 32 tokens before."""
    k = inputs["route-ids"].shape[1]
    order = np.arange(outputs["a-h"].rows)
    order[64 * k : 96 * k] -= 32 * k
    outputs["a-h"] = outputs["a-h"].take(order)
    return outputs


def shuffled(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(n)


def rotated(n: int, rng: np.random.Generator) -> np.ndarray:
    return (np.arange(n) + 1) % n


def two_swapped(n: int, rng: np.random.Generator) -> np.ndarray:
    order = np.arange(n)
    order[[20, 90]] = order[[90, 20]]
    return order


def one_stale(n: int, rng: np.random.Generator) -> np.ndarray:
    order = np.arange(n)
    order[41] = 40
    return order


def left_out(first: int) -> Doctor:
    """U without the values from `first` on along its inner dimension."""

    def apply(outputs: Tensors, rng, inputs) -> Tensors:
        tensor = scenes.model().tensor("latent_up.weight")
        x, w = outputs["u-ylq"].values()[:, first:], tensor.values().astype(np.float64)[:, first:]
        outputs["u"] -= (x @ w.T).astype(np.float32)
        return outputs

    return apply


def tail_of(tile: int) -> Callable[[np.ndarray], slice]:
    return lambda array: slice(len(array) // tile * tile, None)


def tail_scaled(array: np.ndarray) -> None:
    """Rows after the last full tile of 16 under twice the scale."""
    array[tail_of(16)(array)] *= 2


def last_columns_poison(array: np.ndarray) -> None:
    """The second half of the last tile of 128 columns is never written."""
    array[:, -64:] = POISON_F32


def _fault(name: str, stage: str, tensor: str, expect: str, apply: Doctor, what: str, **more) -> Doctored:
    apply = going_on(apply) if tensor == "a-h" else apply
    return Doctored(name=name, stage=stage, tensor=tensor, expect=tuple(expect.split()), apply=apply, what=what, **more)


DOCTORED: tuple[Doctored, ...] = (
    # nonfinite
    _fault("nan-value", "D", "d-xl", "nonfinite", rows("d-xl", put((70, 33), np.nan)), "one row value is NaN"),
    _fault("inf-tile", "U", "u", "nonfinite", rows("u", put((slice(64, 80), slice(32, 48)), np.inf)), "a tile overflowed"),
    _fault("nan-scale", "A", "a-h", "nonfinite", blocks("a-h", d=put((5, 2), np.nan)), "one stored scale is NaN"),
    _fault("sum-overflow", "D", "d-xlq", "nonfinite", blocks("d-xlq", s=put((9, 1), np.inf)), "a block sum past float16"),
    # unwritten
    _fault(
        "half-tile-unwritten", "U", "u", "unwritten", rows("u", last_columns_poison), "half of the last column tile not written"
    ),
    _fault(
        "codes-unwritten",
        "A",
        "a-h",
        "unwritten",
        blocks("a-h", codes=put(slice(-20, None), POISON_CODE), d=put(slice(-20, None), POISON_F16)),
        "the last pairs not written",
    ),
    _fault(
        "token-unwritten", "A", "a-yl", "unwritten", rows("a-yl", put(slice(-1, None), POISON_F32)), "the last token not written"
    ),
    _fault(
        "scales-unwritten", "D", "d-xlq", "unwritten", blocks("d-xlq", d=put((slice(None), 7), POISON_F16)), "one block's scales"
    ),
    # stale
    _fault("stale-row", "D", "d-xl", "stale", moved("d-xl", one_stale), "token 41 keeps the row of token 40"),
    _fault(
        "stale-every-16th", "U", "u", "stale", rows("u", copied(slice(16, None, 16), slice(15, -1, 16))), "first row of each tile"
    ),
    _fault("stale-window", "A", "a-h", "stale", before, "tokens 64..95 keep what the buffer held 32 tokens before"),
    _fault(
        "stale-half-row", "U", "u", "stale", rows("u", copied((50, slice(192, None)), (49, slice(192, None)))), "half a row kept"
    ),
    # permuted, in dumps without keys
    _fault("rows-shuffled", "D", "d-xl", "permuted", moved("d-xl", shuffled), "rows in the order of an atomic counter"),
    _fault("rows-rotated", "U", "u", "permuted", moved("u", rotated), "each row one further on"),
    _fault("two-rows-swapped", "U", "u", "permuted", moved("u", two_swapped), "two rows exchanged"),
    _fault("slots-by-expert", "A", "a-y", "permuted", within_token, "slots of a token in the order of expert ids"),
    _fault("pairs-by-expert", "A", "a-h", "permuted", by_expert, "pairs left grouped by expert"),
    # structured
    _fault("column-block-zero", "U", "u", "structured", rows("u", put((slice(None), slice(96, 128)), 0.0)), "columns 96..127 zero"),
    _fault("row-tile-doubled", "D", "d-xl", "structured", rows("d-xl", scaled(slice(32, 48), 2.0)), "one tile added twice"),
    _fault("tail-doubled", "U", "u", "structured", rows("u", tail_scaled), "rows after the last full tile of 16 doubled"),
    _fault(
        "every-8th-column", "A", "a-yl", "structured", rows("a-yl", scaled((slice(None), slice(3, None, 8)), 0.5)), "one lane of 8"
    ),
    _fault("one-column", "A", "a-gate", "structured", rows("a-gate", scaled((slice(None), 77), -1.0)), "one weight row negated"),
    _fault("blocks-exchanged", "U", "u", "structured", rows("u", exchanged(slice(0, 32), slice(32, 64))), "two column blocks"),
    _fault("row-stride", "U", "u", "structured stale", rows("u", wider_stride), "rows written 32 columns too far apart"),
    _fault("scales-inverted", "D", "d-xlq", "structured", blocks("d-xlq", d=inverted), "scales stored as their reciprocals"),
    _fault(
        "scales-swizzled", "D", "d-xlq", "structured", blocks("d-xlq", d=exchanged(slice(0, 4), slice(4, 8))), "scales by halves"
    ),
    _fault("codes-negated", "A", "a-h", "structured", blocks("a-h", codes=scaled(slice(None), -1)), "codes with the other sign"),
    _fault("k-split-inside-a-block", "U", "u", "structured", left_out(144), "a k-split's second part, from value 144, not added"),
    _fault("one-row-halved", "A", "a-yl", "structured", rows("a-yl", scaled(100, 0.5)), "one token under half the scale"),
    # biased
    _fault("last-bit-cleared", "D", "d-xl", "biased", rows("d-xl", cleared_last_bit), "the last bit of each row value cleared"),
    _fault("all-one-ulp-up", "U", "u", "biased", rows("u", ulp_up(slice(None))), "each row value one ulp up"),
    _fault("column-one-ulp-up", "U", "u", "biased", rows("u", ulp_toward_plus((slice(None), 40))), "one column one ulp up"),
    _fault("column-too-large", "U", "u", "biased", rows("u", ulp_up((slice(None), 40))), "one column one ulp up in magnitude"),
    # unexplained
    _fault(
        "exponent-bits", "U", "u", "unexplained", rows("u", scattered(1e-3, flipped_exponent)), "exponent bits flipped at random"
    ),
    _fault("codes-off-by-one", "D", "d-xlq", "unexplained", blocks("d-xlq", codes=scattered(0.01, one_off)), "codes off by one"),
    _fault(
        "rows-of-noise", "A", "a-yl", "unexplained", rows("a-yl", scattered(0.3, lambda v: v + np.float32(0.01))), "noise added"
    ),
    _fault("weights-of-another-layer", "A", "a-gate", "unexplained structured", another_layer, "two layers' experts exchanged"),
    _fault(
        "one-code", "A", "a-h", "unexplained structured", blocks("a-h", codes=scattered(1e-5, one_off)), "a single code off by one"
    ),
)
