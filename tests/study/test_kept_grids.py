"""Grids as JSON: small, read back as they were, and never moved across the bound."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge0verify.records.errors import InputError
from edge0verify.records.verdict import Verdict
from edge0verify.study.grids import Grid
from edge0verify.study.kept_grids import grids_from_json, grids_to_json, sizes
from tests.report import pages


def grid(kind: str = "rows", shape=(70, 96), over=None) -> Grid:
    rng = np.random.default_rng(5)
    step = tuple(2 if n > 64 else 1 for n in shape)
    bins = tuple(-(-n // s) for n, s in zip(shape, step))
    n = shape[0] * shape[1]
    blocks = kind == "blocks"
    counts = np.floor(rng.random(bins) * (sizes(shape, step) + 1))
    made = rng.random(bins) * 3 if over is None else over
    return Grid(
        layer=3,
        tensor="d-xlq" if blocks else "d-xl",
        kind=kind,
        shape=shape,
        step=step,
        tile=(16, 32),
        differing=counts / sizes(shape, step),
        over=(None, None) if blocks else (made, None),
        farthest=rng.integers(0, 255, bins).astype(float) if blocks else None,
        histogram={-3: 2, 0: n - 2} if blocks else None,
        result=pages.entry(3, "d-xlq" if blocks else "d-xl", n=n),
    )


def there_and_back(found: Grid, change=lambda data: None) -> Grid:
    verdict = replace(pages.verdict(layers=(found.result,)), grids=grids_to_json([found]))
    data = json.loads(verdict.dumps())
    change(data["grids"][0])
    return grids_from_json(Verdict.from_json(data))[0]


@pytest.mark.parametrize("kind", ["rows", "blocks"])
def test_a_grid_comes_back(kind):
    found = grid(kind)
    again = there_and_back(found)
    for name in ("layer", "tensor", "kind", "shape", "step", "tile", "histogram"):
        assert getattr(again, name) == getattr(found, name)
    assert np.array_equal(again.differing, found.differing)
    if kind == "blocks":
        assert np.array_equal(again.farthest, found.farthest) and again.over == (None, None)
    else:
        assert np.allclose(again.over[0], found.over[0], rtol=2**-10, atol=0) and again.over[1] is None


def test_a_grid_takes_a_few_kilobytes():
    found = grid(shape=(64, 64))
    assert len(json.dumps(grids_to_json([found]))) < 14_000


@settings(max_examples=200, deadline=None)
@given(st.floats(min_value=0) | st.just(np.nan))
def test_nothing_crosses_the_bound(value):
    found = grid(shape=(1, 32), over=np.full((1, 32), value))
    again = there_and_back(found).over[0]
    assert np.isnan(again).all() == np.isnan(value) and ((again > 1) == (value > 1)).all()
    assert np.isnan(value) or ((again >= value).all() and (again == 0).all() == (value == 0))


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0, 2.0, np.inf])
def test_round_values_stay(value):
    assert (there_and_back(grid(shape=(1, 32), over=np.full((1, 32), value))).over[0] == value).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(layer=4), "expected an entry of the verdict"),
        (dict(tensor="<script>"), "expected an entry of the verdict"),
        (dict(shape=[70]), "shape: expected rows and columns"),
        (dict(shape=[70, 97]), "expected 6720 elements"),
        (dict(step=[1, 1]), "at most 64 by 64 bins"),
        (dict(step=[0, 2]), "step"),
        (dict(tile=[1, 1]), "tile: expected at most 16 lines"),
        (dict(kind="blocks"), "farthest and histogram"),
        (dict(histogram={"0": 1}), "farthest and histogram"),
        (dict(differing="!"), "differing: expected deflated bytes"),
        (dict(over_a="AAAA"), "over_a: expected deflated bytes"),
        (dict(over_b=""), "over_b: expected"),
        (dict(extra=1), "extra"),
    ],
)
def test_a_damaged_grid_is_refused(change, said):
    with pytest.raises(InputError, match=said):
        there_and_back(grid(), lambda data: data.update(change))


def test_a_bomb_is_not_inflated():
    import base64
    import zlib

    bomb = base64.b64encode(zlib.compress(bytes(200_000_000), 9)).decode()
    with pytest.raises(InputError, match="found more"):
        there_and_back(grid(), lambda data: data.update(differing=bomb))


@pytest.mark.parametrize("key", ["x", "256", "-300", "1e3"])
def test_a_gap_that_no_codes_have_is_refused(key):
    with pytest.raises(InputError, match="histogram: expected whole numbers"):
        there_and_back(grid("blocks"), lambda data: data.update(histogram={key: 1}))
