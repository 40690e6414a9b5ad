"""A sketch is small, and any changed element is found in its tile."""

import numpy as np
import pytest

from edge0verify.dump.levels import KEYS
from edge0verify.dump.reader import open_dump
from edge0verify.dump.sketch import compare_sketch
from edge0verify.golden.check import Asked, check
from edge0verify.golden.making import RunAsked, make, reduce
from edge0verify.golden.record import Wanted, accept_candidate, record_new
from edge0verify.golden.store import Store
from edge0verify.golden.tiles import changes, trace
from edge0verify.model import encode, prompt
from tests.golden.conftest import PLAN

CHANGES = 1000


@pytest.fixture(scope="module")
def run(tmp_path_factory, model):
    """(store with the golden `prose`, a sketch of all its tokens; the dump with whole tensors of the same run)."""
    folder = tmp_path_factory.mktemp("prose")
    tokens = encode(prompt("prose"))
    store = Store(folder / "s")
    wanted = Wanted(name="prose", model=model, prompt="prose", tokens=tokens, variants=PLAN, level="sketch", threads=2)
    record_new(store, wanted)
    accept_candidate(store, "prose", reason="test")
    make(RunAsked(model=model, tokens=tokens, variants=PLAN, threads=2), folder / "whole.h5", "replay")
    return store, folder / "whole.h5"


def test_it_is_at_most_1_5_percent_of_the_dump(run):
    kept = run[0].open("prose").current
    assert kept.level == "sketch"
    assert kept.bytes <= 0.015 * kept.whole_bytes
    assert kept.bytes <= 0.015 * run[1].stat().st_size


def test_a_reduced_dump_is_the_sketch_that_the_run_itself_writes(run, model, tmp_path):
    with open_dump(run[1]) as dump:
        reduce(dump, tmp_path / "a.h5", "sketch")
    make(RunAsked(model=model, tokens=encode(prompt("prose")), variants=PLAN, threads=1), tmp_path / "b.h5", "sketch")
    with open_dump(tmp_path / "a.h5") as a, open_dump(tmp_path / "b.h5") as b:
        assert {p: i.sha256 for p, i in a.arrays.items()} == {p: i.sha256 for p, i in b.arrays.items()}
        assert not changes(a, b)


def test_a_thousand_single_changes_are_found_and_located_to_the_tile(run):
    """One element of one array, one other value: its tile is the only one that differs."""
    rng = np.random.default_rng(6)
    store, whole = run
    golden = store.open("prose")
    with store.dump(golden, golden.current) as path, open_dump(path) as kept, open_dump(whole) as dump:
        infos = [info for info in dump.arrays.values() if info.tensor not in KEYS]
        weights = np.array([np.prod(info.shape) for info in infos], np.float64)
        picked = rng.choice(len(infos), CHANGES, p=weights / weights.sum())
        located = 0
        for which in np.unique(picked):
            info = infos[which]
            sketch, data = kept.sketch(info.layer, info.tensor, info.part), dump.read_path(info.path)
            assert compare_sketch(sketch, data).equal
            for _ in range(int((picked == which).sum())):
                at = tuple(int(rng.integers(n)) for n in info.shape)
                before = data[at]
                data[at] = _other(before, rng)
                found = compare_sketch(sketch, data)
                assert found.tiles.tolist() == [at[0] // sketch.tile_rows], (info.path, at)
                assert found.spans()[0][0] <= at[0] < found.spans()[0][1]
                data[at] = before
                located += 1
    assert located == CHANGES


def _other(value, rng):
    """Another value: one bit of it flipped."""
    bits = np.array([value]).view(f"u{value.dtype.itemsize}")
    return (bits ^ bits.dtype.type(1 << int(rng.integers(8 * value.dtype.itemsize)))).view(value.dtype)[0]


@pytest.mark.parametrize(
    ("path", "row", "said"),
    [
        ("layers/002/d-xl", 77, "layer 2 stage D d-xl: 1 of 96 tiles of 2 rows changed (rows 76..77)"),
        ("layers/mtp/u", 190, "layer mtp stage U u: 1 of 96 tiles of 2 rows changed (rows 190..190)"),
        ("layers/000/a-h/codes", 401, "layer 0 stage A a-h: 1 of 48 tiles of 16 rows changed (rows 400..415)"),
        ("layers/005/ffn-in", 9, "layer 5 ffn-in: 2 rows changed from row 8 on, and no stage before it did"),
        ("head/top8-logprobs", 0, "layer head top8-logprobs: 1 of 1 tiles"),
    ],
)
def test_the_command_names_the_tile_stage_and_layer(run, tmp_path, path, row, said):
    store, whole = run
    changed = tmp_path / "changed.h5"
    _change(whole, changed, path, row)
    found = check(store, "prose", Asked(dump=changed, threads=2))
    assert found.status == "FAIL"
    assert any(said in reason for reason in found.reasons), found.reasons


def test_what_merely_came_in_is_told_apart(run):
    """Rows behind a changed one are a cascade; the stage where it began is the first."""
    store, whole = run
    golden = store.open("prose")
    with store.dump(golden, golden.current) as path, open_dump(path) as kept, open_dump(whole) as dump:
        fresh = {info.path: dump.read_path(info.path) for info in dump.arrays.values()}
        places = {"layers/001/d-xl": 40, "layers/001/d-xlq/codes": 40, "layers/001/a-h/codes": 160, "layers/001/u": 150}
        fake = changes(_Changed(kept, fresh, places), kept)
        heritage = trace(kept, fake)
    assert heritage.began == "layer 1 stage D d-xl"
    told = {path: heritage.explained(change) for path, change in fake.items()}
    assert told["layers/001/d-xl"] == (0, 0)
    assert told["layers/001/d-xlq/codes"] == (0, fake["layers/001/d-xlq/codes"].elements)
    assert told["layers/001/a-h/codes"] == (fake["layers/001/a-h/codes"].elements, 0)
    assert told["layers/001/u"] == (0, 0)


class _Changed:
    """A dump's sketches with one row of some arrays changed."""

    def __init__(self, dump, values, places):
        from dataclasses import replace

        from edge0verify.dump.sketch import sketch_array

        self._sketches, self.arrays = {}, dict(dump.arrays)
        for path, row in places.items():
            data = values[path].copy()
            data[row, 0] += 1
            info = self.arrays[path]
            self._sketches[info.layer, info.tensor, info.part] = sketch_array(data)
            self.arrays[path] = replace(info, sha256="changed")
        self._dump = dump

    def sketch(self, *which):
        return self._sketches.get(which) or self._dump.sketch(*which)


def _change(source, target, path, row):
    """A copy of a dump with one value of one row changed and its sha256 set right, as by another run."""
    import hashlib
    import shutil

    import h5py

    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file:
        data = file[path][...]
        data[row].reshape(-1)[3:4].view("u1")[0] ^= 1
        file[path][...] = data
        file[path].attrs["sha256"] = np.bytes_(hashlib.sha256(np.ascontiguousarray(data)).hexdigest())
