"""Pictures: the reduced grids hold what the tensors hold, planted faults show in their bins, and the files are whole."""

import struct
from dataclasses import replace

import numpy as np
import pytest

from edge0verify.cli.main import run
from edge0verify.compare import compare
from edge0verify.numerics.blocks import Blocks
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Evidence, Side
from edge0verify.report import plots
from edge0verify.study.grids import BINS, LINES, Grids, grid


def rows_item(n=300, m=96, layer=0, tensor="d-xl"):
    rng = np.random.default_rng(3)
    t = rng.standard_normal((n, m))
    bound = np.full(t.shape, 1e-6)
    a, b = ((t + rng.uniform(-0.5, 0.5, t.shape) * bound).astype(np.float32) for _ in range(2))
    sides = [Side(rows=y, t=t, bound=bound) for y in (a, b)]
    return Evidence(layer=layer, tensor=tensor, kind="rows", stage="D", a=sides[0], b=sides[1])


def blocks_item(n=300, m=96, layer=0):
    rng = np.random.default_rng(4)
    codes = rng.integers(-127, 128, (n, m)).astype(np.int8)
    d, s = np.ones((n, m // 32), np.float16), np.ones((n, m // 32), np.float16)
    sides = [Side(blocks=Blocks(c, d, s, "mmvq"), exact=Blocks(c, d, s, "mmvq"), store="mmvq") for c in (codes, codes.copy())]
    return Evidence(layer=layer, tensor="d-xlq", kind="blocks", stage="D", a=sides[0], b=sides[1])


def seen(item):
    grids = Grids()
    grids.add(item, compare(item, threads=1))
    return grids.grids[0]


class FakeVerdict:
    stage, a, b, status = "D", "mmq", "w11", "FAIL"


def size_of(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-12:-8] == b"\0\0\0\0" and data[-8:-4] == b"IEND"
    return struct.unpack(">II", data[16:24])


def test_a_grid_of_rows_holds_shares_and_the_worst_of_each_bin():
    item = rows_item()
    item.a.rows[40, 70] += 5e-6
    item.b.rows[299, 95] = np.nan
    g = seen(item)
    assert g.step == (8, 2) and g.differing.shape == (38, 48) and max(g.differing.shape) <= BINS
    unlike = item.a.rows != item.b.rows
    assert g.differing[5, 35] == unlike[40:48, 70:72].mean() and g.differing[37, 47] == unlike[296:300, 94:96].mean()
    assert g.over[0].argmax() == 5 * 48 + 35 and g.over[0].max() > 4
    assert np.isnan(g.over[1][37, 47]) and np.isnan(g.over[1]).sum() == 1
    assert g.worst[0] > 4 and g.worst[1] == np.inf


def test_a_grid_of_codes_holds_every_difference():
    item = blocks_item()
    item.a.blocks.codes[17, 33] = np.int8(np.clip(int(item.b.blocks.codes[17, 33]) - 100, -127, 127))
    gap = int(item.a.blocks.codes[17, 33]) - int(item.b.blocks.codes[17, 33])
    g = seen(item)
    assert g.histogram == {gap: 1, 0: 300 * 96 - 1}
    assert np.count_nonzero(g.differing) == 1 and g.differing[17 // 8, 33 // 2] == 1 / 16
    assert g.farthest.max() == abs(gap) == g.farthest[17 // 8, 33 // 2]


@pytest.mark.parametrize("shape", [(1, 32), (64, 64), (65, 4096), (5268, 256), (21072, 128)])
def test_grids_are_small_and_tile_lines_fall_on_bins(shape):
    item = rows_item(8, 32)
    a = np.zeros(shape, np.float32)
    item = replace(item, a=Side(rows=a), b=Side(rows=a))
    g = grid(item, compare(rows_item(8, 32), threads=1)[0])
    assert max(g.differing.shape) <= BINS and g.over == (None, None)
    for n, step, tile in zip(shape, g.step, g.tile):
        assert n // tile <= LINES and (tile % step == 0)


def test_pages_hold_six_layers_and_files_are_whole(tmp_path):
    collected = Grids()
    for layer in range(7):
        for item in (rows_item(layer=layer), blocks_item(layer=layer)):
            collected.add(item, compare(item, threads=1))
    written = plots.write_pictures(FakeVerdict, collected.grids, tmp_path / "new" / "folder")
    assert [p.name for p in written] == ["d-xl.png", "d-xl-2.png", "d-xlq.png", "d-xlq-2.png", "ladder.png"]
    heights = [size_of(p)[1] for p in written]
    assert heights[0] > 4 * heights[1] and not list((tmp_path / "new" / "folder").glob(".*"))


def test_ids_and_missing_sides_have_no_picture(tmp_path):
    collected = Grids()
    item = replace(rows_item(), b=Side())
    collected.add(item, compare(item, threads=1))
    ids = np.zeros((4, 2), np.int32)
    collected.add(Evidence(layer=0, tensor="route-ids", kind="ids", a=Side(ids=ids), b=Side(ids=ids)), [])
    assert collected.grids == []
    assert plots.write_pictures(FakeVerdict, [], tmp_path) == []


def test_a_tensor_without_a_bound_is_drawn_and_says_so(tmp_path):
    item = rows_item()
    item = replace(item, a=Side(rows=item.a.rows), b=Side(rows=item.b.rows))
    assert len(plots.write_pictures(FakeVerdict, [seen(item)], tmp_path)) == 2


def test_a_fault_is_red_and_a_kernel_within_its_bound_is_not(tmp_path):
    """Reads the pixels back: beyond the bound is a colour of its own."""
    import matplotlib.image as image

    def red(item, folder):
        plots.write_pictures(FakeVerdict, [seen(item)], tmp_path / folder)
        pixels = image.imread(tmp_path / folder / "d-xl.png")[..., :3]
        wanted = np.array([int(plots.BEYOND[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return int((np.abs(pixels - wanted).max(axis=-1) < 0.01).sum())

    item = rows_item()
    assert red(item, "good") == 0
    item.a.rows[:, 32:64] += 1e-4
    assert red(item, "bad") > 5000


def test_the_command_draws_what_it_compared(tmp_path, capsys):
    arguments = ["compare", "--stage", "U", "--a", "mmq", "--b", "w11", "--prompt", "prose", "--layer", "0"]
    assert run([*arguments, "--png", str(tmp_path / "p")]) == 0
    said = capsys.readouterr()
    assert sorted(p.name for p in (tmp_path / "p").iterdir()) == ["ladder.png", "u-ylq.png", "u.png"]
    assert "u.png" in said.err and "u.png" not in said.out


def test_a_folder_that_cannot_be_written_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a folder"):
        plots.write_pictures(FakeVerdict, [seen(rows_item())], tmp_path / "file")
