"""Conformance: legitimate rows and blocks pass, one code, one scale, one sum off does not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge0verify.numerics import conform, oracle
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.quantise import QUANTISERS, quantise
from tests.numerics.scenes import scene

f32 = np.float32


@pytest.mark.parametrize("variant", ["ref", "mmvq", "mmq", "w11"])
@pytest.mark.parametrize("stage", ["D", "A1"])
@pytest.mark.parametrize("store", QUANTISERS)
def test_legitimate_blocks_conform(stage, variant, store):
    s = scene(stage, variant)
    t, b = s.oracle
    result = conform.blocks_conform(quantise(store, s.y), t, b, chunk=77)
    assert result.codes.all() and result.scales.all()
    assert not result.loose.any() and not result.loose_scales.any()


def codes_off_by_one(blocks, seed=0):
    codes = blocks.codes.astype(np.int16) + np.random.default_rng(seed).choice([-1, 1], blocks.codes.shape)
    return Blocks(np.clip(codes, -127, 127).astype(np.int8), blocks.d, blocks.s, blocks.quantiser)


@pytest.mark.parametrize("store", ["mmvq", "mmq"])
def test_one_code_off_is_caught(store):
    s = scene("D", "mmvq")
    t, b = s.oracle
    good = quantise(store, s.y)
    bad = codes_off_by_one(good)
    moved = bad.codes != good.codes
    kept = conform.blocks_conform(bad, t, b).codes
    assert (~kept[moved]).mean() >= 0.99 and kept[~moved].all()


def test_scale_faults_are_caught():
    s = scene("D", "mmvq")
    t, b = s.oracle
    good = quantise("mmvq", s.y)
    neighbour = Blocks(good.codes, np.roll(good.d, 1, axis=1), good.s, "mmvq")
    changed = neighbour.d != good.d
    assert not conform.blocks_conform(neighbour, t, b).scales[changed].any()
    up = Blocks(good.codes, np.nextafter(good.d, np.float16(np.inf)), good.s, "mmvq")
    assert (~conform.blocks_conform(up, t, b).scales).mean() > 0.98  # an f16 d has one right value unless it sits on a border
    undeclared = Blocks(good.codes, quantise("mmq", s.y).d, None, "mmvq")  # f32 scale where f16 is declared
    assert not conform.store_matches(undeclared, s.y, "mmvq")[1].any()


def test_row_faults_are_caught():
    s = scene("D", "w11")
    t, b = s.oracle
    assert conform.rows_conform(s.y, t, b).all()
    f16 = s.y.astype(np.float16).astype(f32)
    assert (~conform.rows_conform(f16, t, b)).mean() > 0.95
    assert not conform.rows_conform(np.roll(s.y, 1, axis=0), t, b).any()
    nan = s.y.copy()
    nan[3, 5] = np.nan
    assert (np.argwhere(~conform.rows_conform(nan, t, b)) == [[3, 5]]).all()
    c, raw = s.contract, s.weights
    dropped = Blocks(np.where(np.arange(512) // 32 == 9, 0, s.blocks.codes).astype(np.int8), s.blocks.d, s.blocks.s, "mmvq")
    assert (~conform.rows_conform(oracle.own_oracle(c, raw, dropped)[0].astype(f32), t, b)).mean() > 0.99


def test_both_sides_with_the_same_fault_do_not_conform():
    """Conformance looks at one side alone, so agreement between two faulty sides buys nothing."""
    s = scene("D", "mmvq")
    t, b = s.oracle
    bad = codes_off_by_one(quantise("mmvq", s.y))
    assert (conform.blocks_conform(bad, t, b).codes == conform.blocks_conform(bad, t, b).codes).all()
    assert (~conform.blocks_conform(bad, t, b).codes).mean() > 0.95


block_values = st.lists(st.one_of(st.floats(-(2.0**100), 2.0**100, width=32), st.floats(-(2.0**-140), 2.0**-140, width=32),
                                  st.integers(-254, 254).map(lambda i: i / 2)), min_size=32, max_size=32)


@settings(max_examples=300, deadline=None)
@given(block_values, st.floats(0, 1e-3), st.sampled_from(QUANTISERS), st.integers(0, 2**32 - 1))
def test_whatever_rows_within_the_bound_quantise_to_conforms(values, width, name, seed):
    """Soundness: any float32 rows within t +- B give codes and scales that conform, zeros and subnormals included."""
    y = np.array([values], f32)
    b = np.abs(y).astype(np.float64) * width + 2.0**-149
    t = y + b * np.random.default_rng(seed).uniform(-1, 1, b.shape)
    b += np.abs(y) * 2.0**-50  # t itself was rounded
    stored = quantise(name, y)
    assert conform.rows_conform(y, t, b).all()
    result = conform.blocks_conform(stored, t, b)
    assert result.codes.all() and result.scales.all()


@settings(max_examples=150, deadline=None)
@given(block_values, st.sampled_from(["mmvq", "mmq"]))
def test_the_set_of_codes_is_tight(values, name):
    """Completeness: with B = 0 at most two codes conform, and only beside a border."""
    y = np.array([values], f32)
    if np.abs(y).max() < 1e-30:
        return
    t = y.astype(np.float64)
    lo, hi = conform.enclose_scale(t, t * 0, name)
    cmin, cmax = conform.code_interval(t, t * 0, lo, hi, name)
    assert (cmax - cmin <= 1).all()
    position = np.abs(t) / np.repeat(lo, 32, axis=1)
    near_border = np.abs(position - np.floor(position) - 0.5) < 127 * 2.0**-20
    assert ((cmax == cmin) | near_border).all()


def test_loose_is_said():
    t = np.full((1, 64), 1.0)
    b = np.full((1, 64), 0.5)
    b[0, 32:] = 2.0
    lo, hi = conform.enclose_scale(t, b, "mmvq")
    assert lo[0, 0] > 0 and lo[0, 1] == 0
    cmin, cmax = conform.code_interval(t, b, lo, hi, "mmvq")
    assert conform.loose_codes(cmin, cmax, lo).all()
    result = conform.blocks_conform(quantise("mmvq", t), t, b)
    assert result.loose.all() and result.loose_scales.tolist() == [[False, True]]


def test_nan_never_conforms():
    t = np.ones((1, 64))
    t[0, 3] = np.nan
    result = conform.blocks_conform(quantise("mmvq", np.ones((1, 64))), t, t * 0 + 1e-6)
    assert not result.codes[0, :32].any() and not result.scales[0, 0]
    assert result.codes[0, 32:].all() and result.scales[0, 1]
    broken = quantise("mmvq", np.full((1, 64), np.nan, f32))
    assert not conform.blocks_conform(broken, np.ones((1, 64)), np.zeros((1, 64))).scales.any()


def test_store_matches_is_by_bits():
    y = scene("D", "mmq").y
    good = quantise("mmvq", y)
    codes, d, s = conform.store_matches(good, y, "mmvq")
    assert codes.all() and d.all() and s.all()
    bad = Blocks(good.codes, good.d, good.s.copy(), "mmvq")
    bad.s[4, 1] = np.nextafter(bad.s[4, 1], np.float16(np.inf))
    assert (np.argwhere(~conform.store_matches(bad, y, "mmvq")[2]) == [[4, 1]]).all()
    assert not conform.store_matches(Blocks(good.codes, good.d, None, "mmvq"), y, "mmvq")[2].any()
    assert conform.store_matches(quantise("mmq", y), y, "mmq")[2] is None
    assert not conform.store_matches(quantise("mmq", y), y, "mmvq")[1].any()


@pytest.mark.parametrize("name", QUANTISERS)
def test_code_of_oracle_is_the_quantiser_without_roundings(name):
    s = scene("D", "mmvq")
    t, _ = s.oracle
    codes, d = conform.code_of_oracle(t, name)
    stored = quantise(name, s.y)
    assert (codes != stored.codes).mean() < 1e-3 and d.dtype == stored.d.dtype
    assert np.abs(d.astype(float) / stored.d.astype(float) - 1).max() < 2.0**-9
    odd = np.zeros((1, 96))
    odd[0, 40], odd[0, 64:] = np.inf, 1e9
    codes, d = conform.code_of_oracle(odd, name)
    assert (codes[0, :64] == 0).all() and (codes[0, 64:] == 127).all()
    assert d[0, 0] == 0 and np.isnan(d[0, 1]) and (np.isinf(d[0, 2]) or name == "mmq")


def test_operand_differences_show_in_the_oracles():
    a, b = scene("D", "mmvq"), scene("D", "mmq")
    assert (a.weights.q == b.weights.q).all()
    ca, _ = conform.code_of_oracle(a.oracle[0], "mmvq")
    cb, _ = conform.code_of_oracle(b.oracle[0], "mmvq")
    assert 0.001 < (ca != cb).mean() < 0.05
