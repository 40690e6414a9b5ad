"""F02: half of the last tile of columns was never written, where the columns were no multiple of the tile."""

import numpy as np
import pytest

from edge0verify.numerics.blocks import Blocks, poison_f32
from edge0verify.numerics.quantise import quantise
from edge0verify.records.evidence import Side
from tests.field.common import evidence, product, verdict

TILE = 64


def scene(columns, *, skip, sentinel=None):
    rng = np.random.default_rng(2)
    w, x = rng.standard_normal((columns, 96)).astype(np.float32), rng.standard_normal((5, 96)).astype(np.float32)
    good, t, bound = product(w, x)
    out = poison_f32(good.shape) if sentinel is None else np.full(good.shape, sentinel, np.float32)
    for start in range(0, columns, TILE):
        full = start + TILE <= columns
        stop = start + TILE if full else (start + (columns - start) // 2 if skip else columns)
        out[:, start:stop] = good[:, start:stop]
    return (Side(rows=rows, t=t, bound=bound) for rows in (good, out))


@pytest.mark.parametrize("columns", [96, 160, 224])
def test_what_was_not_written_is_named_with_its_columns(columns):
    found = verdict(evidence(*scene(columns, skip=True)))
    assert found.status == "FAIL"
    assert found.layers[0].causes["unwritten"] == 5 * 16
    assert f"columns {columns - 16}..{columns - 1}" in found.reasons[0]
    assert found.engaged["b"] is True


def test_another_sentinel_is_not_a_number_and_has_its_columns_too():
    found = verdict(evidence(*scene(96, skip=True, sentinel=np.nan)))
    assert found.status == "FAIL"
    assert "nonfinite" in found.reasons[0] and "columns 80..95" in found.reasons[0]


def test_stored_codes_that_were_not_written_are_found_as_well():
    good, _ = scene(96, skip=True)
    stored = quantise("mmvq", good.rows)
    codes = stored.codes.copy()
    codes[:, 80:] = -128
    both = stored, Blocks(codes, stored.d, stored.s, "mmvq")
    sides = [Side(rows=good.rows, blocks=blocks, t=good.t, bound=good.bound) for blocks in both]
    found = verdict(evidence(*sides, kind="blocks"))
    assert found.status == "FAIL" and "unwritten" in found.reasons[0] and "columns 80..95" in found.reasons[0]


@pytest.mark.parametrize("columns", [64, 96, 128, 160])
def test_a_kernel_that_writes_its_last_tile_passes(columns):
    assert verdict(evidence(*scene(columns, skip=False))).status == "PASS"


def test_full_tiles_hide_nothing_since_nothing_is_wrong():
    assert verdict(evidence(*scene(128, skip=True))).status == "PASS"
