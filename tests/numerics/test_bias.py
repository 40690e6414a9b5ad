"""The bias test: silent on every legitimate variant, loud on each fault that hides inside the bound."""

import numpy as np
import pytest

from edge0verify.numerics import conform, oracle
from edge0verify.numerics.bias import FEWEST, BiasTest
from edge0verify.numerics.contracts import STAGES, VARIANTS, contract
from edge0verify.numerics.spread import expert_sum_spread, row_spread, rows_per_chunk
from tests.numerics.scenes import scene
from tests.transcription import rows, stages

f32 = np.float32
UP = f32(np.inf)


def judge(s, y, chunk=None):
    """Bias of rows y in scene s, in chunks of rows."""
    test = BiasTest(y.shape[1], s.weights.columns // 32)
    step = chunk or len(y)
    for lo in range(0, len(y), step):
        test.add(y[lo:lo + step], row_spread(s.contract, s.weights, s.blocks.take(slice(lo, lo + step))))
    return test.result()


def inside_bound(s, y):
    t, b = s.oracle
    return conform.rows_conform(y, t, b).mean()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", [0, 10, 20])
def test_legitimate_rounding_is_not_biased(stage, variant, seed):
    s = scene(stage, variant, k=256, seed=seed)
    bias = judge(s, s.y)
    assert bias.tested and not bias.biased, bias.reasons
    assert bias.largest < 5 and 0.7 < bias.mean_square < 1.5 and bias.suspects == 0


@pytest.mark.parametrize("stage", ["D", "A1"])
def test_long_rows_are_not_biased_either(stage):
    """33 blocks and more: the lanes wrap round."""
    for variant in VARIANTS:
        s = scene(stage, variant, k=1280)
        assert not judge(s, s.y).biased


def again(s, dw_factor=None, da=None):
    """Rows of scene s (plain formats) with altered scales."""
    C, dw, real_da = rows.terms(s.raw, s.weights.fmt, s.blocks)
    dw = dw if dw_factor is None else (dw * dw_factor).astype(f32)
    return rows.PLAIN[s.contract.variant](C, dw, real_da if da is None else da(real_da))


def toward_zero(x):
    """float64 -> float32, truncated."""
    y = x.astype(f32)
    return np.where(np.abs(y.astype(np.float64)) > np.abs(x), np.nextafter(y, f32(0)), y)


def truncating(s):
    """The variant's own order with every operation rounded toward zero."""
    C, dw, da = (v.astype(np.float64) for v in rows.terms(s.raw, s.weights.fmt, s.blocks))
    lanes = np.zeros((32 if s.contract.variant == "mmvq" else 1, *C.shape[:2]))
    for b in range(C.shape[2]):
        if s.contract.variant == "w11":
            term = toward_zero(C[..., b] * dw[..., b]) * da[..., b]
        else:
            term = toward_zero(dw[..., b] * da[..., b]) * C[..., b]
        lanes[b % len(lanes)] = toward_zero(lanes[b % len(lanes)] + term)
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = toward_zero(lanes[:half] + lanes[half:]).astype(np.float64)
    return lanes[0].astype(f32)


def every_seventh(s):
    return np.where(np.arange(len(s.y))[:, None] % 7 == 0, np.nextafter(s.y, UP), s.y)


def one_block_up(da):
    out = np.array(np.broadcast_to(da, da.shape))
    out[..., 3] = np.nextafter(out[..., 3], UP)
    return out


def one_block_wide(s):
    factor = np.ones(s.weights.columns // 32)
    factor[5] = 1 + 2.0**-18
    return factor


HIDDEN = {
    "toward zero": (truncating, "directed"),
    "weight scale off by 2^-21": (lambda s: again(s, dw_factor=1 + 2.0**-21), "gain"),
    "activation scale one ulp up": (lambda s: again(s, da=lambda d: np.nextafter(d, UP)), "gain"),
    "activation scale of one block one ulp up": (lambda s: again(s, da=one_block_up), "K block 3"),
    "scale of one block off by 2^-18": (lambda s: again(s, dw_factor=one_block_wide(s)), "K block 5"),
    "every 7th row one ulp up": (every_seventh, "mean of z"),
    "one column one ulp up": (lambda s: np.where(np.arange(64) == 17, np.nextafter(s.y, UP), s.y), "column 17"),
    "one column too large in magnitude": (lambda s: np.where(np.arange(64) == 17, np.nextafter(s.y, np.copysign(UP, s.y)), s.y),
                                          "z*sign(t) of column 17"),
    "too exact": (lambda s: s.oracle[0].astype(f32), "z^2"),
}
IN_ORDER = [(v, f) for v in ("mmvq", "mmq", "w11") for f in HIDDEN]


@pytest.mark.parametrize(("variant", "fault"), IN_ORDER)
@pytest.mark.parametrize("stage", ["D", "A2"])
def test_hidden_faults_are_biased(stage, variant, fault):
    s = scene(stage, variant)
    plant, reason = HIDDEN[fault]
    y = plant(s)
    assert (y != s.y).any(), "not exercised"
    assert inside_bound(s, y) > (0.5 if "2^-18" in fault else 0.97), "the bound must not be what catches it"
    bias = judge(s, y)
    assert bias.biased and any(reason in r for r in bias.reasons), bias.reasons


@pytest.mark.parametrize("variant", ["mmvq", "mmq", "w11"])
def test_hidden_faults_of_a1(variant):
    s = scene("A1", variant)
    assert any("mean of z" in r for r in judge(s, every_seventh(s)).reasons)
    scaled = (s.y * f32(1 + 2.0**-22)).astype(f32)
    assert inside_bound(s, scaled) > 0.99
    assert any("gain" in r for r in judge(s, scaled).reasons)


def test_another_variants_rows_are_no_excuse():
    """Rows of mmvq (fewer roundings on a path) judged as w11's: quieter than w11 can be, or at least not biased in mean."""
    s, other = scene("D", "w11", k=1280), scene("D", "ref", k=1280)
    assert any("z^2" in r for r in judge(s, other.y).reasons)


def test_suspects_are_placed():
    s = scene("D", "mmvq")
    y = s.y.copy()
    y[100, 7] *= f32(1 + 2.0**-18)
    bias = judge(s, y, chunk=33)
    assert bias.suspects == 1 and bias.places[0][:2] == (100, 7) and abs(bias.places[0][2]) > 12


def test_chunks_do_not_matter():
    s = scene("D", "mmq")
    one, many = judge(s, s.y), judge(s, s.y, chunk=rows_per_chunk(s.weights) % 50 + 7)
    assert one.n == many.n and abs(one.gain - many.gain) < 1e-9
    assert np.allclose(one.columns, many.columns, rtol=1e-9) and np.allclose(one.column_signs, many.column_signs, rtol=1e-9)
    assert np.allclose(one.blocks, many.blocks, rtol=1e-6, atol=1e-9)


def test_too_few_values_give_no_verdict():
    s = scene("D", "mmvq")
    test = BiasTest(64, 16)
    spread = row_spread(s.contract, s.weights, s.blocks.take(slice(0, 20)))
    test.add(np.nextafter(s.y[:20], UP), spread)
    bias = test.result()
    assert bias.n == 1280 < FEWEST and not bias.tested and not bias.biased
    assert bias.as_dict()["tested"] is False
    assert BiasTest(4).result().n == 0


def test_nonfinite_values_and_exact_zeros_are_left_out():
    s = scene("D", "mmvq")
    spread = row_spread(s.contract, s.weights, s.blocks)
    y = s.y.copy()
    y[0, 0] = np.nan
    spread.terms[:, 1], spread.variance[1], spread.t[1], y[1] = 0, 0, 0, 0
    test = BiasTest(64, 16)
    test.add(y, spread)
    bias = test.result()
    assert bias.n == y.size - 65 and not bias.biased and bias.suspects == 0
    y[1, 5] = 1e-20  # differs where no operation rounds
    test = BiasTest(64, 16)
    test.add(y, spread)
    assert test.result().places[0][:2] == (1, 5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_expert_sum(variant):
    rng = np.random.default_rng(4)
    n, k, latent = 200, 4, 64
    y = rng.standard_normal((n * k, latent)).astype(f32)
    weights = rng.dirichlet(np.ones(k), n).astype(f32)
    ids = np.argsort(rng.random((n, 16)), axis=1)[:, :k].astype(np.int32)
    yl = stages.expert_sum(variant, y, ids, weights)
    c = contract("A2", variant)

    def bias_of(rows_):
        test = BiasTest(latent, k)
        test.add(rows_, expert_sum_spread(c, y, weights, ids))
        return test.result()

    assert not bias_of(yl).biased, bias_of(yl).reasons
    spread = expert_sum_spread(c, y, weights, ids)
    t, _ = oracle.expert_sum(y.astype(np.float64), np.abs(y), weights)
    assert np.abs(spread.t - t).max() < 1e-14
    more = expert_sum_spread(c, y, weights, ids, variance=np.full(y.shape, 1e-14))
    assert (more.variance > spread.variance).all()
    off = weights.copy()
    off[:, 2] *= f32(1 + 2.0**-19)
    assert bias_of(stages.expert_sum(variant, y, ids, off)).biased
