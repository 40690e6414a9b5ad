"""Rules of place: what follows one, and what only looks so."""

import numpy as np
import pytest

from edge0verify.compare.shape import TILES, area, line

SIZE = (97, 320)


def mask(rows=slice(None), columns=slice(None), size=SIZE, filled=1.0, seed=0):
    out = np.zeros(size, bool)
    if isinstance(rows, slice) or isinstance(columns, slice):
        out[rows, columns] = True
    else:
        out[np.ix_(rows, columns)] = True
    return out & (np.random.default_rng(seed).random(size) < filled)


@pytest.mark.parametrize("filled", [1.0, 0.7])
class TestRules:
    @pytest.mark.parametrize("tile", TILES)
    def test_tiles_of_columns(self, tile, filled):
        start = tile if 2 * tile <= SIZE[1] else 0
        found = area(mask(columns=slice(start, start + tile), filled=filled))
        assert f"columns {start}..{start + tile - 1}, a tile of {tile}" in found.text

    @pytest.mark.parametrize("tile", [8, 16, 32])
    def test_tiles_of_rows(self, tile, filled):
        assert f"rows {tile}..{2 * tile - 1}, a tile of {tile}" in area(mask(rows=slice(tile, 2 * tile), filled=filled)).text

    def test_a_tile_of_both(self, filled):
        found = area(mask(slice(32, 64), slice(128, 192), filled=filled))
        assert found.text == "columns 128..191, a tile of 64 of rows 32..63, a tile of 32"

    @pytest.mark.parametrize("columns, tile, start", [(96, 64, 64), (320, 256, 256), (160, 64, 128), (200, 128, 128)])
    def test_the_tail_after_the_last_full_tile(self, columns, tile, start, filled):
        found = area(mask(columns=slice(start, None), size=(97, columns), filled=filled))
        assert f"columns {start}..{columns - 1}, the tail after the last full tile of " in found.text
        assert found.kinds[1] == "tail"

    def test_one_column_and_one_row(self, filled):
        assert area(mask(columns=slice(37, 38), filled=filled)).text == "column 37"
        assert area(mask(rows=slice(5, 6), filled=filled)).text == "row 5"

    @pytest.mark.parametrize("step, first", [(7, 0), (8, 3), (2, 1)])
    def test_a_stride(self, step, first, filled):
        assert area(mask(rows=slice(first, None, step), filled=filled)).text == f"every {step}th row from {first}"
        assert area(mask(columns=slice(first, None, step), filled=filled)).text == f"every {step}th column from {first}"

    def test_a_period(self, filled):
        found = area(mask(columns=np.flatnonzero(np.arange(320) % 32 < 8), rows=np.arange(97), filled=filled))
        assert found.text == "columns 0..7 of every 32"

    def test_a_range_that_is_no_tile(self, filled):
        assert area(mask(columns=slice(43, 141), filled=filled)).text == "columns 43..140"


class TestNoRule:
    @pytest.mark.parametrize("share", [0.001, 0.01, 0.3, 1.0])
    def test_scattered_places_and_whole_tensors(self, share):
        for seed in range(20):
            assert area(mask(filled=share, seed=seed)) is None

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_a_few_places_of_one_column_may_be_chance(self, n):
        out = np.zeros(SIZE, bool)
        out[np.arange(n) * 30, 37] = True
        assert area(out) is None

    def test_one_place_outside_is_not_claimed(self):
        out = mask(columns=slice(64, 96))
        out[50, 300] = True
        found = area(out)
        assert found.text == "columns 64..95, a tile of 32" and not found.mask[50, 300]

    def test_random_sets_of_rows_are_no_period(self):
        rng = np.random.default_rng(3)
        for _ in range(50):
            rows = rng.random(200) < 0.2
            if rows.sum() > 3:
                found = line(rows, "row")
                assert found is None or found.kind not in ("stride", "period", "tile", "tail")


def test_a_stride_that_runs_on_over_the_rows():
    out = np.zeros(97 * 320, bool)
    out[5::11] = True
    assert area(out.reshape(97, 320)).text == "every 11th element in memory from 5"
