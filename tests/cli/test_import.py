"""`import`: other engines' tensors, and what a comparison can say of them."""

from __future__ import annotations

import numpy as np
import pytest

from edge0verify.cli.main import run
from edge0verify.dump.reader import open_dump
from tests.cli.doctored import reasons, verdict

Q8_1 = np.dtype([("d", "<f2"), ("s", "<f2"), ("codes", "i1", (32,))])
MODEL = "edge0verify/data/edge0-mini-q3_k.gguf"


def raw(source, path, layer=0):
    """d-xlq of a dump as another engine keeps it: rows of 36-byte blocks."""
    with open_dump(source) as made:
        q = made.read(layer, "d-xlq")
    units = np.zeros((q.rows, q.columns // 32), Q8_1)
    units["d"], units["s"], units["codes"] = q.d, q.s, q.codes.reshape(q.rows, -1, 32)
    units.tofile(path)
    return path


def bring(path, out, *more, tensor="d-xlq", layout="q8_1", rows=24, cols=256) -> int:
    words = ["import", path, "--tensor", tensor, "--layout", layout, "--rows", rows, "--cols", cols, "-o", out, *more]
    return run([str(word) for word in words])


def test_raw_blocks_come_back(other, tmp_path):
    assert bring(raw(other, tmp_path / "d-xlq.bin"), tmp_path / "x.h5", "--layer", 3) == 0
    with open_dump(other) as made, open_dump(tmp_path / "x.h5") as brought:
        assert brought.read(3, "d-xlq").same_bits(made.read(0, "d-xlq")) and brought.manifest.foreign


def test_two_raw_imports_without_a_model(plain, other, tmp_path, capsys):
    for name, source, layer in (("a", plain, 0), ("b", other, 1)):
        assert bring(raw(source, tmp_path / name, layer), tmp_path / f"{name}.h5") == 0
    code, found = verdict(capsys, tmp_path / "a.h5", tmp_path / "b.h5")
    assert code == 3 and found["layers"][0]["corr"] is not None and found["layers"][0]["code_diffs"]
    assert "do not say which model they are of" in reasons(found)
    assert "not judged by a contract: d-xlq: the variant that wrote it is not named" in reasons(found)
    assert found["engaged"] == {"a": None, "b": None}


def test_equal_raw_imports_are_still_not_shown_to_have_run(plain, tmp_path, capsys):
    for name in "ab":
        assert bring(raw(plain, tmp_path / name), tmp_path / f"{name}.h5", "--engine", name) == 0
    code, found = verdict(capsys, tmp_path / "a.h5", tmp_path / "b.h5")
    assert code == 3 and found["totals"]["equal"] == found["totals"]["n"] and "launches of unknown are not known" in reasons(found)


def test_unlike_sizes_are_not_cut_to_fit(plain, tmp_path, capsys):
    raw(plain, tmp_path / "a")
    (tmp_path / "b").write_bytes((tmp_path / "a").read_bytes()[: 23 * 8 * 36])
    assert bring(tmp_path / "a", tmp_path / "a.h5") == 0 and bring(tmp_path / "b", tmp_path / "b.h5", rows=23) == 0
    code, found = verdict(capsys, tmp_path / "a.h5", tmp_path / "b.h5")
    assert code == 3 and "1 only in a" in reasons(found)


def test_an_engine_that_dumps_inputs_too_is_judged(plain, other, tmp_path, capsys):
    """The same tensors under another engine's name: bounds from the model, contracts from the variants it names, no launches."""
    with open_dump(other) as made:
        arrays = {path: made.read_path(path) for path in made.arrays if not path.startswith("layers/mtp")}
    np.savez(tmp_path / "run.npz", **arrays)
    words = ("--set", "D=w11,A=mmq,U=mmvq", "--of-model", MODEL, "--engine", "strata")
    assert run(["import", str(tmp_path / "run.npz"), "-o", str(tmp_path / "good.h5"), *words]) == 0
    code, found = verdict(capsys, plain, tmp_path / "good.h5", "--stage", "D")
    assert code == 3 and all(r["conforming"]["b"] == r["n"] for r in found["layers"] if r["n"])
    assert found["reasons"][0] == "b: launches of w11 are not known, so nothing shows that it ran"
    arrays["layers/002/d-xl"] = arrays["layers/002/d-xl"].copy()
    arrays["layers/002/d-xl"][4, 9] += 1
    np.savez(tmp_path / "run.npz", **arrays)
    assert run(["import", str(tmp_path / "run.npz"), "-o", str(tmp_path / "bad.h5"), *words]) == 0
    code, found = verdict(capsys, plain, tmp_path / "bad.h5", "--stage", "D")
    assert code == 1 and "layer 2 d-xl: 1 of" in reasons(found)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rows": 25}, "expected 7200 bytes, found 6912"),
        ({"cols": 250}, "expected columns in a multiple of 32"),
        ({"layout": "q9"}, "expected one of f32"),
        ({"layout": "f32"}, "expected a layout of q8_1, found f32"),
        ({"tensor": "a-yl"}, "expected a layout of f32, found q8_1"),
    ],
)
def test_a_layout_that_does_not_fit(plain, tmp_path, capsys, more, message):
    given = {"tensor": "d-xlq", "layout": "q8_1", "rows": 24, "cols": 256, **more}
    assert bring(raw(plain, tmp_path / "d-xlq.bin"), tmp_path / "x.h5", **given) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "x.h5").exists()


def test_nothing_is_guessed(plain, tmp_path, capsys):
    raw(plain, tmp_path / "d-xlq.bin")
    assert run(["import", str(tmp_path / "d-xlq.bin"), "--tensor", "d-xlq", "-o", str(tmp_path / "x.h5")]) == 2
    assert "needs --layout, --rows, --cols" in capsys.readouterr().err


def test_arrays_and_directories(tmp_path, capsys):
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    np.save(tmp_path / "a-yl.npy", x)
    assert run(["import", str(tmp_path / "a-yl.npy"), "--tensor", "a-yl", "--layer", "2", "-o", str(tmp_path / "x.h5")]) == 0
    folder = tmp_path / "sglang"
    folder.mkdir()
    np.save(folder / "step=0___rank=0___dump_index=1___name=latent___layer_id=5.npy", x)
    (folder / "step=0___rank=0___dump_index=2___name=other___layer_id=5.pt").write_bytes(b"pickled")
    assert run(["import", str(folder), "--name", "latent=a-yl", "-o", str(tmp_path / "y.h5")]) == 0
    assert "a pickle is not read" in capsys.readouterr().err
    with open_dump(tmp_path / "x.h5") as made, open_dump(tmp_path / "y.h5") as brought:
        assert np.array_equal(made.read(2, "a-yl"), x) and np.array_equal(brought.read(5, "a-yl"), x)
    assert run(["import", str(folder), "--name", "latent", "-o", str(tmp_path / "z.h5")]) == 2


@pytest.mark.parametrize(
    ("source", "words", "message"),
    [
        ("x.bin", ["--layout", "f32", "--rows", "4", "--cols", "16", "--member", "y"], "--member says nothing about a raw file"),
        ("x.bin", ["--layout", "f32", "--rows", "4", "--cols", "16", "--rank", "0"], "--rank says nothing about a raw file"),
        ("x.npy", ["--by-column"], "--by-column says nothing about an array file"),
        ("x.npy", ["--rows", "3"], "expected 3 rows, found 4"),
        ("x.npy", ["--rows", "4", "--cols", "15"], "expected 15 columns, found 16"),
        ("x.npy", ["--layer", "head"], "head/a-yl: expected this tensor in a layer"),
        (".", [], "--tensor says nothing about a directory"),
    ],
)
def test_what_does_not_fit_the_source_is_refused(tmp_path, capsys, source, words, message):
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    np.save(tmp_path / "x.npy", x)
    x.tofile(tmp_path / "x.bin")
    assert run(["import", str(tmp_path / source), "--tensor", "a-yl", "-o", str(tmp_path / "o.h5"), *words]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "o.h5").exists()


def test_a_device_is_never_replaced(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.zeros((4, 16), np.float32))
    assert run(["import", str(tmp_path / "x.npy"), "--tensor", "a-yl", "-o", "/dev/null", "--overwrite"]) == 2
    assert "found a device" in capsys.readouterr().err
