"""F11: scales stored as the reciprocal, or swizzled. Every shape was right; rel L2 0.76 where 0.095 is the format's own loss."""

import numpy as np
import pytest

from edge0verify.compare.layout import diagnose
from edge0verify.compare.loss import expected_loss
from edge0verify.compare.scale_order import ORDERS
from edge0verify.numerics import formats
from edge0verify.numerics.small_floats import E2M1_VALUES, E4M3_VALUES, e2m1_encode, e4m3_encode
from edge0verify.records.errors import InputError

ROWS, COLUMNS = 256, 512


def weights(seed=12):
    rng = np.random.default_rng(seed)
    size = np.exp(0.4 * rng.standard_normal((ROWS, 1)))
    return (rng.standard_normal((ROWS, COLUMNS)) * size * 0.05).astype(np.float32)


def nvfp4(w, scales=lambda s: s):
    """Weights stored in four bits with an E4M3 scale per 16 and decoded with `scales` of them."""
    cut = w.reshape(ROWS, -1, 16)
    wanted = np.abs(cut).max(axis=2) / 6
    whole = wanted.max() / 448
    stored = E4M3_VALUES[e4m3_encode((wanted / whole).astype(np.float32))].astype(np.float64) * whole
    codes = E2M1_VALUES[e2m1_encode((cut / stored[:, :, None]).astype(np.float32))]
    return (codes * scales(stored)[:, :, None]).reshape(w.shape)


class TestScales:
    def test_the_format_s_own_loss_is_no_fault(self):
        w = weights()
        found = diagnose(nvfp4(w), w, fmt="NVFP4")
        assert found.expected == pytest.approx(0.095, abs=0.003)
        assert not found.wrong and found.hypothesis is None

    def test_the_reciprocal_is_named_beside_the_format_s_own_loss(self):
        w = weights()
        found = diagnose(nvfp4(w, lambda s: 1 / s), w, fmt="NVFP4")
        assert found.wrong and "reciprocal" in found.hypothesis
        assert found.left <= 1.1 * found.expected
        assert "where the format's own loss is 0.09" in found.text()

    def test_the_reciprocal_of_scales_near_one_has_the_size_of_an_honest_error(self):
        """The numbers of the story: inverted scales around 1 give 0.7, which no threshold on cosine would call a layout fault."""
        w = weights()
        w = (w.reshape(ROWS, -1, 16) / np.abs(w.reshape(ROWS, -1, 16)).max(axis=2, keepdims=True) * 6).reshape(w.shape)
        by = np.exp(0.35 * np.random.default_rng(13).standard_normal((ROWS, COLUMNS // 16)))
        w = (w.reshape(ROWS, -1, 16) * by[:, :, None]).reshape(w.shape).astype(np.float32)
        found = diagnose(nvfp4(w, lambda s: 1 / s), w, fmt="NVFP4")
        assert 0.4 < found.rel_l2 < 1.2 and "reciprocal" in found.hypothesis

    @pytest.mark.parametrize("order", ORDERS)
    def test_scales_in_another_order_are_named(self, order):
        w = weights()
        found = diagnose(nvfp4(w, ORDERS[order]), w, fmt="NVFP4")
        assert found.hypothesis is not None and order in found.hypothesis, found.text()

    def test_scales_in_no_known_order_are_still_scales(self):
        w = weights()
        mixed = np.random.default_rng(14).permutation(ROWS * COLUMNS // 16)
        found = diagnose(nvfp4(w, lambda s: s.reshape(-1)[mixed].reshape(s.shape)), w, fmt="NVFP4")
        assert "stand in another order" in found.hypothesis

    def test_a_tensor_scale_that_was_left_out_is_a_factor(self):
        w = weights()
        assert "tensor scale" in diagnose(nvfp4(w) * 37.5, w, fmt="NVFP4").hypothesis


class TestCodes:
    def stored(self, fmt="Q4_0"):
        w = weights()
        return w, formats.encode(fmt, w)

    def test_nibbles_exchanged(self):
        w, raw = self.stored()
        blocks = raw.reshape(ROWS, -1, 18).copy()
        blocks[..., 2:] = (blocks[..., 2:] << 4) | (blocks[..., 2:] >> 4)
        bad = blocks.reshape(raw.shape)
        assert "nibbles are exchanged" in diagnose(formats.decode("Q4_0", bad), w, fmt="Q4_0", raw=bad).hypothesis

    @pytest.mark.parametrize("group", [32, 16])
    def test_nibbles_taken_for_neighbours(self, group):
        w = weights()
        order = np.arange(group).reshape(2, -1).T.reshape(-1)
        decoded = nvfp4(w) if group == 16 else formats.decode("Q4_0", formats.encode("Q4_0", w))
        bad = decoded.reshape(ROWS, -1, group)[:, :, order].reshape(w.shape)
        found = diagnose(bad, w, fmt="NVFP4" if group == 16 else "Q4_0")
        assert "nibbles of a byte are read" in found.hypothesis

    def test_signs_inverted(self):
        w, raw = self.stored()
        assert "sign" in diagnose(-formats.decode("Q4_0", raw), w, fmt="Q4_0").hypothesis

    def test_the_zero_point_left_out(self):
        w, raw = self.stored()
        u = formats.unpack("Q4_0", raw)
        bad = (u.q + 8.0) * np.repeat(u.d, 32, axis=1)
        assert "zero point" in diagnose(bad, w, fmt="Q4_0").hypothesis

    @pytest.mark.parametrize("stride", [480, 544, 528])
    def test_rows_read_at_another_stride(self, stride):
        w, raw = self.stored("Q8_0")
        flat = np.concatenate([formats.decode("Q8_0", raw).reshape(-1), np.zeros(ROWS * COLUMNS, np.float32)])
        bad = np.stack([flat[r * stride : r * stride + COLUMNS] for r in range(ROWS)])
        assert f"rows are read {stride} values apart, not 512" in diagnose(bad, w, fmt="Q8_0").hypothesis

    def test_scale_bytes_exchanged(self):
        w, raw = self.stored("Q8_0")
        bad = raw.reshape(ROWS, -1, 34).copy()
        bad[..., :2] = bad[..., [1, 0]]
        bad = bad.reshape(raw.shape)
        assert "bytes of each scale" in diagnose(formats.decode("Q8_0", bad), w, fmt="Q8_0", raw=bad).hypothesis


class TestNoFalseName:
    @pytest.mark.parametrize("fmt", ["Q8_0", "Q4_0", "BF16"])
    def test_what_the_encoder_loses_is_expected(self, fmt):
        w = weights()
        found = diagnose(formats.decode(fmt, formats.encode(fmt, w)), w, fmt=fmt)
        assert not found.wrong and found.rel_l2 == pytest.approx(expected_loss(fmt, w))

    def test_other_weights_fit_no_hypothesis(self):
        found = diagnose(weights(99), weights(), fmt="NVFP4")
        assert found.wrong and found.hypothesis is None and "no layout fault fits" in found.text()

    def test_one_bad_row_fits_no_hypothesis(self):
        w = weights()
        bad = nvfp4(w)
        bad[5:45] = weights(99)[5:45]
        assert diagnose(bad, w, fmt="NVFP4").hypothesis is None

    def test_an_unknown_format_is_held_to_what_undoing_helps(self):
        w = weights()
        assert "sign" in diagnose(-nvfp4(w), w).hypothesis
        assert diagnose(weights(99), w).hypothesis is None

    def test_shapes_that_do_not_fit_are_refused(self):
        with pytest.raises(InputError, match=r"layout: expected the reference's shape \[256, 512\], found \[256, 511\]"):
            diagnose(weights()[:, :-1], weights())
