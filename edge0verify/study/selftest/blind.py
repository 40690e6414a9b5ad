"""Ten faults written by someone who had not read the comparator, so that it cannot have been fitted to how it decides.

They follow what kernel authors get wrong; the causes each may be given come from the design's table alone. A doctor sees no
weights: where a real fault would need them, its effect is made from the operands and the outputs, and the docstring says so. What
a fault feeds inside its own stage follows from the faulty values (blocks are stored again, rows summed again), as it would in the
engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from edge0verify.numerics.blocks import BLOCK, Blocks
from edge0verify.numerics.quantise import quantise
from edge0verify.numerics.rounding import to_f16, to_f32, ulp
from edge0verify.study.selftest.types import Doctored, Tensor, Tensors

ROW_TILE = 16
EXPERT_TILE = 8
"""Rows of one expert that a block of threads takes at a time."""
WAVES = 4


def _store_again(out: Tensors) -> Tensors:
    """d-xlq stored from the rows as they are now, by the quantiser that stored it before."""
    out["d-xlq"] = quantise(out["d-xlq"].quantiser, out["d-xl"])
    return out


def weighted_sum(y: np.ndarray, weights: np.ndarray, order: np.ndarray) -> np.ndarray:
    """f32 [n, m]: acc = fma(weight, y, acc) over slots; y f32 [n, k, m], weights f32 [n, k], order [n, k] slots in their turn.

    The product is exact in float64; a double rounding of the sum can cost one ulp once in 2^29.
    """
    token = np.arange(len(y))
    acc = np.zeros((len(y), y.shape[2]), np.float32)
    for slot in order.T:
        acc = to_f32(weights[token, slot, None].astype(np.float64) * y[token, slot] + acc)
    return acc


def _last_block_of_next_row(out: Tensors, rng: np.random.Generator, inputs: Mapping[str, Tensor]) -> Tensors:
    """Off by one in the peeled last step of the loop over K: it loads weight block nb of the row, which is block 0 of the next row.

    Every latent value loses the last block's right term and gains one with foreign weights. The weights are not known here: the
    wrong ones less the right ones are drawn at random, as large as the rows say that weights are.
    """
    operand = out["d-hq"].values()[:, -BLOCK:]
    rows = out["d-xl"].astype(np.float64)
    foreign = rng.integers(-127, 128, (BLOCK, rows.shape[1])).astype(np.float64)
    term = operand @ foreign
    blocks = out["d-hq"].columns // BLOCK
    size = np.sqrt(2 / blocks) * np.sqrt(np.mean(rows**2)) / max(np.sqrt(np.mean(term**2)), 1e-30)
    out["d-xl"] = to_f32(rows + size * term)
    return _store_again(out)


def _missed_barrier(out: Tensors, rng: np.random.Generator, inputs: Mapping[str, Tensor]) -> Tensors:
    """No barrier between filling shared memory with a token's activations and the wave of columns 32 to 63 reading them.

    That wave now and then runs ahead: about one token in four has the token's before it in these columns, and stores them.
    """
    rows = out["d-xl"]
    ahead = rng.random(len(rows)) < 0.25
    ahead[0] = False
    ahead[-1] |= not ahead.any() and len(rows) > 1
    late = np.flatnonzero(ahead)
    wrong = rows.copy()
    wrong[late, BLOCK : 2 * BLOCK] = rows[late - 1, BLOCK : 2 * BLOCK]
    out["d-xl"] = wrong
    return _store_again(out)


def _mask_forgotten(out: Tensors, rng: np.random.Generator, inputs: Mapping[str, Tensor]) -> Tensors:
    """Four codes packed into a word with one `& 0xff` forgotten: (q0 & 255) | (q1 & 255) << 8 | q2 << 16 | q3 << 24.

    The sign of a negative third code runs over the byte above it: the fourth code of the word becomes -1.
    """
    stored = out["d-xlq"]
    codes = stored.codes.copy()
    codes[:, 3::4] = np.where(codes[:, 2::4] < 0, np.int8(-1), codes[:, 3::4])
    out["d-xlq"] = replace(stored, codes=codes)
    return out


def _butterfly_step_twice(out: Tensors, rng: np.random.Generator, inputs: Mapping[str, Tensor]) -> Tensors:
    """Butterfly xor 16, 8, 4, 2, 2 (copied line, last mask not changed) in the path of the last of four waves.

    Lane 0 of that wave ends with twice the sum of the even lanes; only s of every fourth block is wrong, codes and d are right.
    """
    stored = out["d-xlq"]
    x = out["d-xl"].reshape(stored.rows, -1, BLOCK)[:, WAVES - 1 :: WAVES]
    for mask in (16, 8, 4, 2, 2):
        x = x + x[..., np.arange(BLOCK) ^ mask]
    s = stored.s.copy()
    s[:, WAVES - 1 :: WAVES] = to_f16(x[..., 0])
    out["d-xlq"] = replace(stored, s=s)
    return out


def _scale_toward_zero(out: Tensors, rng: np.random.Generator, inputs: Mapping[str, Tensor]) -> Tensors:
    """The scale made a half by cutting its bits off (a cvt_pkrtz, or a shift by 13) instead of to nearest.

    Half of the scales are one ulp of f16 low; the codes, divided by the f32 scale, are right.
    """
    stored = out["d-xlq"]
    exact = np.abs(out["d-xl"]).reshape(stored.rows, -1, BLOCK).max(axis=-1) / np.float32(127)
    down = np.nextafter(stored.d, np.float16(0))
    out["d-xlq"] = replace(stored, d=np.where(stored.d.astype(np.float32) > exact, down, stored.d))
    return out


def _tile_not_reloaded(out: Tensors, rng: np.random.Generator, inputs: Mapping[str, Tensor]) -> Tensors:
    """Shared memory not reloaded: the busiest expert's second tile of rows multiplies the first tile's activations.

    Same expert, same weights, other tokens: gate, up, H and y of these pairs are another token's, and the sums follow.
    """
    ids, weights = inputs["route-ids"], inputs["route-weights"]
    pairs = np.flatnonzero(ids.reshape(-1) == np.bincount(ids.reshape(-1)).argmax())
    late = pairs[EXPERT_TILE : 2 * EXPERT_TILE]
    source = np.arange(ids.size)
    source[late] = pairs[: len(late)]
    for name in ("a-gate", "a-up", "a-h", "a-y"):
        out[name] = out[name].take(source) if isinstance(out[name], Blocks) else out[name][source]
    tokens = np.unique(late // ids.shape[1])
    y = out["a-y"].reshape(*ids.shape, -1)[tokens]
    out["a-yl"] = out["a-yl"].copy()
    out["a-yl"][tokens] = weighted_sum(y, weights[tokens], np.argsort(ids[tokens], axis=1, kind="stable"))
    return out


def _weights_not_sorted(out: Tensors, rng: np.random.Generator, inputs: Mapping[str, Tensor]) -> Tensors:
    """A token's experts sorted by id for locality, their weights left in route order: experts are summed with each other's weights.

    The rows of the pairs are right; a token whose route came in ascending order shows nothing.
    """
    ids, weights = inputs["route-ids"], inputs["route-weights"]
    order = np.argsort(ids, axis=1, kind="stable")
    hit = np.flatnonzero((order != np.arange(ids.shape[1])).any(axis=1))
    wrong = np.empty_like(weights)
    np.put_along_axis(wrong, order, weights, axis=1)  # the expert that comes first by id takes the first weight
    out["a-yl"] = out["a-yl"].copy()
    out["a-yl"][hit] = weighted_sum(out["a-y"].reshape(*ids.shape, -1)[hit], wrong[hit], order[hit])
    return out


def _scale_and_sum_swapped(out: Tensors, rng: np.random.Generator, inputs: Mapping[str, Tensor]) -> Tensors:
    """make_half2(s, d) for make_half2(d, s) in the scalar path that stores the last row tile, which is not full.

    A fused kernel: A2 takes H from shared memory, so that y is right and only the stored blocks are wrong.
    """
    stored = out["a-h"]
    tail = slice((stored.rows - 1) // ROW_TILE * ROW_TILE, stored.rows)
    d, s = stored.d.copy(), stored.s.copy()
    d[tail], s[tail] = stored.s[tail], stored.d[tail]
    out["a-h"] = replace(stored, d=d, s=s)
    return out


def _clamp_one_short(out: Tensors, rng: np.random.Generator, inputs: Mapping[str, Tensor]) -> Tensors:
    """The weight load guarded by min(column, N - 2) for min(column, N - 1): the last column gets its neighbour's weights.

    One value in a row, and a copy of a right value.
    """
    out["u"] = out["u"].copy()
    out["u"][:, -1] = out["u"][:, -2]
    return out


def _scale_one_ulp_up(out: Tensors, rng: np.random.Generator, inputs: Mapping[str, Tensor]) -> Tensors:
    """The activation scale by an approximate reciprocal (v_rcp_f32, not refined): one ulp of f32 too large in every product.

    The blocks written are right, the register that the product uses is not. Terms per block need the weights: each row grows here
    by the mean of its blocks' relative ulps, which is well inside any bound on rounding and moves all values the same way.
    """
    d = out["u-ylq"].d.astype(np.float64)
    step = np.where(d > 0, ulp(d) / np.where(d > 0, d, 1), 0).mean(axis=1)
    out["u"] = to_f32(out["u"] * (1 + step)[:, None])
    return out


BLIND_FAULTS: tuple[Doctored, ...] = (
    Doctored(
        name="blind-last-k-block",
        stage="D",
        tensor="d-xl",
        # Every element is touched, so no tile shows; a rule that finds the one faulty block of K is right too.
        expect=("unexplained", "structured"),
        apply=_last_block_of_next_row,
        what="the last block of K is multiplied with the next row's weights",
    ),
    Doctored(
        name="blind-missed-barrier",
        stage="D",
        tensor="d-xl",
        variant="mmq",
        # Part of the row of another token: stale by what it holds, structured by where it stands.
        expect=("stale", "structured"),
        apply=_missed_barrier,
        what="32 columns of some tokens hold the values of the token before",
    ),
    Doctored(
        name="blind-pack-sign",
        stage="D",
        tensor="d-xlq",
        variant="mmvq",
        # Columns 3 mod 4 only, and there only where the code before is negative: a stride with gaps.
        expect=("structured", "unexplained"),
        apply=_mask_forgotten,
        what="a negative third code of a word turns the fourth into -1",
    ),
    Doctored(
        name="blind-butterfly-mask",
        stage="D",
        tensor="d-xlq",
        # s of every fourth block.
        expect=("structured", "unexplained"),
        apply=_butterfly_step_twice,
        what="one wave of four sums the even lanes twice into s",
    ),
    Doctored(
        name="blind-scale-toward-zero",
        stage="D",
        tensor="d-xlq",
        variant="mmq",
        # Scattered over half of the scales: no rule of place fits, and beyond what the enclosure of d allows.
        expect=("unexplained",),
        apply=_scale_toward_zero,
        what="the stored scale is rounded toward zero",
    ),
    Doctored(
        name="blind-tile-not-reloaded",
        stage="A",
        tensor="a-gate",
        variant="mmq",
        # Whole rows of other tokens of the same run.
        expect=("stale",),
        apply=_tile_not_reloaded,
        what="the busiest expert's second tile of rows repeats its first",
    ),
    Doctored(
        name="blind-weights-not-sorted",
        stage="A",
        tensor="a-yl",
        # Tokens by their routes, so no place; where routes out of order happen to come at a stride, that rule fits as well.
        expect=("unexplained", "structured"),
        apply=_weights_not_sorted,
        what="experts are summed with each other's route weights",
    ),
    Doctored(
        name="blind-d-s-swapped",
        stage="A",
        tensor="a-h",
        # The last row tile, all of it.
        expect=("structured", "unexplained"),
        apply=_scale_and_sum_swapped,
        what="d and s change places in the last row tile",
    ),
    Doctored(
        name="blind-clamp-one-short",
        stage="U",
        tensor="u",
        # One column in every row: the plainest rule there is.
        expect=("structured",),
        apply=_clamp_one_short,
        what="the last column repeats the one before it",
    ),
    Doctored(
        name="blind-scale-one-ulp-up",
        stage="U",
        tensor="u",
        variant="mmq",
        # All conform; only the bias test can tell, and it needs 10^4 values.
        expect=("biased",),
        apply=_scale_one_ulp_up,
        what="every activation scale is one ulp too large in the product",
    ),
)
