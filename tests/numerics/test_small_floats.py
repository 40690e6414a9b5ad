"""E2M1 and E4M3 tables and roundings against ml_dtypes, and the two block layouts that use them."""

import ml_dtypes
import numpy as np
import pytest

from edge0verify.numerics import small_floats
from tests.numerics.vectors import load, same_bits


def test_tables():
    z = load("small_floats")
    assert same_bits(small_floats.E4M3_VALUES, z["e4m3_decode"]).all()
    assert same_bits(small_floats.E2M1_VALUES, z["e2m1_decode"]).all()


def test_roundings():
    z = load("small_floats")
    assert (small_floats.e4m3_encode(z["e4m3_in"]) == z["e4m3_out"]).all()
    assert (small_floats.e2m1_encode(z["e2m1_in"]) == z["e2m1_out"]).all()
    x = np.linspace(-500, 500, 20001).astype(np.float32)
    assert (small_floats.e4m3_encode(x) == x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)).all()


def test_fp8_blocks_with_partial_last_blocks():
    z = load("small_floats")
    got = small_floats.fp8_blocks_decode(z["fp8blk_codes"], z["fp8blk_scale"])
    assert same_bits(got, z["fp8blk_deq"]).all()
    assert any(side % 128 for side in got.shape)
    with pytest.raises(ValueError, match="need scales"):
        small_floats.fp8_blocks_decode(z["fp8blk_codes"], z["fp8blk_scale"][:, :-1])


def test_nvfp4_checkpoint_layout():
    packed = np.array([[0x21] * 8 + [0x7F] * 8], np.uint8)  # sixteen values .5 1 .5 1 ..., sixteen values -6 6 ...
    scale = small_floats.e4m3_encode(np.array([[2.0, 0.5]], np.float32))
    got = small_floats.nvfp4_checkpoint_decode(packed, scale, 4.0)
    assert got.shape == (1, 32)
    assert got[0, :2].tolist() == [4.0, 8.0] and got[0, 16:18].tolist() == [-12.0, 12.0]
    with pytest.raises(ValueError, match="do not fit"):
        small_floats.nvfp4_checkpoint_decode(packed, scale[:, :1], 4.0)
