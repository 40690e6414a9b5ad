"""Dump against dump: what is no whole dump, or no sensible question, ends with 2 and one line."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from edge0verify.cli.main import run
from tests.cli.doctored import change, fewer_rows


class TestInputErrors:
    def check(self, capsys, code_and_words: tuple, message: str):
        capsys.readouterr()
        assert run(list(map(str, code_and_words))) == 2
        said = capsys.readouterr()
        assert message in said.err and said.out == "" and "Traceback" not in said.err

    def test_truncated(self, plain, folder, capsys):
        made = folder / "cut.h5"
        made.write_bytes(plain.read_bytes()[: plain.stat().st_size // 2])
        self.check(capsys, ("compare", plain, made), "cut.h5")

    def test_damaged(self, plain, folder, capsys):
        raw = bytearray(plain.read_bytes())
        raw[len(raw) // 2] ^= 4
        (folder / "flip.h5").write_bytes(raw)
        self.check(capsys, ("compare", plain, folder / "flip.h5"), "damaged")

    def test_duplicate_keys(self, plain, folder, capsys):
        made = change(plain, folder / "twice.h5", lambda f: f["rows"].__setitem__(7, f["rows"][6]))
        self.check(capsys, ("compare", plain, made), "expected unique keys")

    def test_no_such_file_and_no_such_layer(self, plain, other, folder, capsys):
        self.check(capsys, ("compare", plain, folder / "none.h5"), "found no such file")
        self.check(capsys, ("compare", plain, other, "--layer", "9"), "--layer 9")

    def test_words_that_do_not_fit(self, plain, other, capsys):
        self.check(capsys, ("compare", plain), "expected two dumps or none, found 1")
        self.check(capsys, ("compare", plain, other, "--prompt", "code"), "--prompt")
        self.check(capsys, ("compare", plain, other, "--knobs", "peer=off"), "--knobs: expected only without dumps")
        self.check(capsys, ("compare", plain, other, "--a", "mmvq"), "expected --stage")
        self.check(capsys, ("compare", plain, other, "--flags-a", "STRATA_LATENT_MQM=1"), "did you mean STRATA_LATENT_MMQ")
        self.check(capsys, ("compare", plain, other, "--rows", "900:901"), "--rows 900:901: expected token positions")

    def test_fewer_rows_than_the_manifest_says_on_both_sides(self, plain, other, folder, capsys):
        both = [change(side, folder / f"half{i}.h5", lambda f: fewer_rows(f, 12)) for i, side in enumerate((plain, other))]
        self.check(capsys, ("compare", *both), "half0.h5: rows: expected 24 rows as the manifest's signature says, found 12")

    def test_another_width_than_the_model_on_both_sides(self, plain, other, folder, capsys):
        def edit(f):
            x = f["layers/001/u"][...]
            del f["layers/001/u"]
            f["layers/001/u"] = x[:, :-32]

        both = [change(side, folder / f"narrow{i}.h5", edit) for i, side in enumerate((plain, other))]
        self.check(capsys, ("compare", *both), "narrow0.h5: layers/001/u: expected 384 columns as in the model, found 352")

    @pytest.mark.parametrize(("put", "message"), [
        (lambda f: np.zeros((24, 256), np.float32), "layers/000/d-xlq: expected codes and their scales (q8_1), found rows"),
        (lambda f: np.zeros(24, np.float32), "layers/000/d-xlq: expected codes"),
        (lambda f: h5py.SoftLink("/none"), "layers/000/d-xlq: expected an array, found a dead link"),
    ])
    def test_another_form_than_the_schema(self, plain, folder, capsys, put, message):
        def edit(f):
            del f["layers/000/d-xlq"]
            f["layers/000/d-xlq"] = put(f)

        self.check(capsys, ("compare", plain, change(plain, folder / "form.h5", edit)), f"form.h5: {message}")

    def test_one_dimension(self, plain, folder, capsys):
        def edit(f):
            del f["layers/000/u"]
            f["layers/000/u"] = np.zeros(24, np.float32)

        self.check(capsys, ("show", change(plain, folder / "flat.h5", edit)), "layers/000/u: expected [rows, columns], found")

    def test_a_token_twice_among_the_best(self, plain, other, folder, capsys):
        made = change(other, folder / "twice8.h5", lambda f: f["head/top8-ids"].__setitem__((0, 3), f["head/top8-ids"][0, 2]))
        self.check(capsys, ("compare", plain, made), "twice8.h5: head/top8-ids row 0: expected distinct ids")

    def test_a_name_that_is_no_layer(self, plain, folder, capsys):
        made = change(plain, folder / "name.h5", lambda f: f.move("layers/003", "layers/0x3"))
        self.check(capsys, ("show", made), "name.h5: layers/0x3: expected three digits or mtp")
