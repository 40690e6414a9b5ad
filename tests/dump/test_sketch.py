"""A sketch finds and places every change, and stays small."""

import numpy as np
import pytest

from edge0verify.dump.reader import open_dump
from edge0verify.dump.sketch import MOMENTS, compare_sketch, compare_sketches, join_moments, moments, sketch_array, tile_rows
from edge0verify.dump.writer import DumpWriter

from . import samples


class TestTiles:
    def test_a_tile_is_whole_rows_of_at_least_two_kibibytes(self):
        assert [tile_rows(n) for n in (1, 16, 1024, 1536, 2047, 2048, 4096)] == [2048, 128, 2, 2, 2, 1, 1]

    @pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16])
    def test_every_single_change_is_found_in_its_tile(self, dtype):
        rng = np.random.default_rng(11)
        x = (rng.standard_normal((700, 96)) * 40).astype(dtype)
        sketch = sketch_array(x)
        for _ in range(340):
            y = x.copy()
            place = rng.integers(0, y.size)
            bits = y.reshape(-1).view(np.uint8)
            bits[place * y.itemsize + int(rng.integers(0, y.itemsize))] ^= 1 << int(rng.integers(0, 8))
            found = compare_sketch(sketch, y)
            row = int(place) // 96
            assert len(found.tiles) == 1 and found.spans()[0][0] <= row < found.spans()[0][1]

    def test_the_same_array_is_equal(self):
        x = np.arange(4000, dtype=np.float32).reshape(1000, 4)
        assert compare_sketch(sketch_array(x), x.copy()).equal

    def test_another_shape_or_dtype_is_refused(self):
        sketch = sketch_array(np.zeros((10, 4), np.float32))
        for other in (np.zeros((9, 4), np.float32), np.zeros((10, 4), np.int32)):
            with pytest.raises(ValueError, match=r"expected float32 \(10, 4\)"):
                compare_sketch(sketch, other)


class TestMoments:
    def test_against_numpy_with_values_that_are_not_finite(self):
        rng = np.random.default_rng(12)
        x = rng.standard_normal((3000, 40), dtype=np.float32)
        x[5, 5], x[6, 6] = np.nan, np.inf
        ok = x[np.isfinite(x)].astype(np.float64)
        whole = sketch_array(x).moments
        parts = join_moments(moments(x[:777]), moments(x[777:]))
        expected = [ok.size, 2, ok.mean(), ok.var() * ok.size, ok.min(), ok.max()]
        assert len(MOMENTS) == 6
        assert whole == pytest.approx(expected, rel=1e-12) and parts == pytest.approx(expected, rel=1e-12)

    def test_nothing_finite(self):
        x = np.full((3, 3), np.nan, np.float32)
        assert moments(x).tolist() == [0, 9, 0, 0, np.inf, -np.inf]
        assert join_moments(moments(x), moments(np.ones(2, np.float32))).tolist() == [2, 9, 1, 0, 1, 1]


class TestInADump:
    tokens = 5268

    def write(self, path, level, x, blocks, step):
        with DumpWriter(path, manifest=samples.manifest(level)) as w:
            for at in range(0, self.tokens, step):
                w.rows(samples.token_keys(min(step, self.tokens - at), at))
                w.write(0, "u", x[at : at + step])
                w.write(0, "d-xlq", blocks.take(slice(at, at + step)))

    def test_it_is_what_the_arrays_give_and_at_most_a_hundredth_and_a_half(self, tmp_path):
        rng = np.random.default_rng(13)
        x, blocks = rng.standard_normal((self.tokens, 384), dtype=np.float32), samples.blocks(rng, self.tokens, 256)
        self.write(tmp_path / "full.h5", "replay", x, blocks, self.tokens)
        self.write(tmp_path / "a.h5", "sketch", x, blocks, self.tokens)
        self.write(tmp_path / "b.h5", "sketch", x, blocks, 1000)
        assert (tmp_path / "a.h5").stat().st_size <= 0.015 * (tmp_path / "full.h5").stat().st_size
        with open_dump(tmp_path / "a.h5") as a, open_dump(tmp_path / "b.h5") as b:
            for part, whole in ((None, x), ("codes", blocks.codes), ("d", blocks.d), ("s", blocks.s)):
                name = "u" if part is None else "d-xlq"
                stored, direct = a.sketch(0, name, part), sketch_array(whole)
                assert compare_sketches(stored, direct).equal and compare_sketches(stored, b.sketch(0, name, part)).equal
                assert stored.sha256 == direct.sha256 and (stored.sample == whole[stored.sample_rows]).all()
                assert (stored.moments == b.sketch(0, name, part).moments).all()
                assert len(stored.sample) == 10
            codes = a.sketch(0, "d-xlq", "codes").histogram
            assert (codes == np.bincount(blocks.codes.reshape(-1).astype(int) + 128, minlength=256)).all()
