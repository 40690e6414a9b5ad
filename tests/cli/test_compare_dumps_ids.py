"""Expert ids that no router may choose, in dumps: refused with the row as an input, failed as a result."""

from __future__ import annotations

import numpy as np
import pytest

from edge0verify.cli.main import run
from tests.cli.doctored import change, manifest, reasons, verdict

WRONG = {"repeated": None, "beyond": 99, "negative": -1}


def wrong_id(value, *, foreign=False, nan=False):
    """An edit: the third expert of token 4 in layer 2 is the second once more (None), or `value`."""

    def edit(f):
        ids = f["layers/002/route-ids"]
        ids[4, 2] = ids[4, 1] if value is None else value
        f["layers/002/pairs"][4 * 4 + 2, 3] = ids[4, 2]
        if nan:
            f["layers/002/route-logits"][4] = np.nan
        if foreign:
            manifest(f, lambda m: m.update(launches=None))

    return edit


@pytest.mark.parametrize("wrong", WRONG)
class TestRefused:
    def test_by_a_stage_that_reads_them(self, plain, folder, wrong, capsys):
        made = change(plain, folder / f"{wrong}.h5", wrong_id(WRONG[wrong]))
        for dumps in ((plain, made), (made, plain)):
            assert run(["compare", *map(str, dumps), "--stage", "A"]) == 2
            said = capsys.readouterr().err
            assert f"{wrong}.h5: layers/002/route-ids row 4: expected distinct ids below 16, found [" in said
            assert len(said.splitlines()) == 1

    def test_of_another_engines_dump_by_any(self, plain, folder, wrong, capsys):
        made = change(plain, folder / f"{wrong}-foreign.h5", wrong_id(WRONG[wrong], foreign=True))
        for more in ([], ["--stage", "route"], ["--stage", "A"]):
            assert run(["compare", str(plain), str(made), *more]) == 2
            assert "route-ids row 4" in capsys.readouterr().err

    def test_when_they_are_brought_in(self, wrong, tmp_path, capsys):
        ids = np.tile(np.arange(4, dtype=np.int32), (9, 1))
        ids[6, 3] = 2 if WRONG[wrong] is None else WRONG[wrong]
        np.save(tmp_path / "ids.npy", ids)
        arguments = ["import", str(tmp_path / "ids.npy"), "--tensor", "route-ids", "--layer", "1", "-o", str(tmp_path / "x.h5")]
        code = run(arguments)
        if wrong == "beyond":                              # how many experts there are is not known here
            assert code == 0
        else:
            assert code == 2 and not (tmp_path / "x.h5").exists()
            assert "route-ids row 6: expected distinct ids, found [0, 1, 2, " in capsys.readouterr().err


@pytest.mark.parametrize("wrong", WRONG)
def test_as_a_result_they_fail_with_the_row_and_everything_else_is_judged(plain, folder, wrong, capsys):
    made = change(plain, folder / f"{wrong}-result.h5", wrong_id(WRONG[wrong]))
    code, found = verdict(capsys, plain, made)
    assert code == 1 and "layer 2 route-ids" in found["reasons"][0] and "repeat or are out of range in row 4" in found["reasons"][0]
    judged = {(r["layer"], r["tensor"]) for r in found["layers"] if r["n"]}
    assert {(2, "a-h"), (2, "a-yl"), (5, "u")} <= judged
    if WRONG[wrong] is not None:
        assert "layer 2 a-yl: 1 token rows not judged, their inputs are not finite or name no expert" in reasons(found)


def test_ids_made_of_nan_are_the_routers_fault(plain, folder, capsys):
    made = change(plain, folder / "nan-logits.h5", wrong_id(None, foreign=True, nan=True))
    code, found = verdict(capsys, plain, made, "--stage", "route")
    assert code == 1 and "layer 2 route-logits" in found["reasons"][0] and "nonfinite" in found["reasons"][0]


def test_right_ids_are_refused_nowhere(plain, folder, capsys):
    made = change(plain, folder / "right.h5", lambda f: manifest(f, lambda m: m.update(launches=None)))
    for more in ((), ("--stage", "A"), ("--stage", "route")):
        code, found = verdict(capsys, plain, made, *more)
        assert code == 3 and "launches of" in reasons(found), reasons(found)
