"""Dump against dump: what is no whole dump, or no sensible question, ends with 2 and one line."""

from __future__ import annotations

from edge0verify.cli.main import run
from tests.cli.doctored import change


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
        self.check(capsys, ("compare", plain, other, "--a", "mmvq"), "expected --stage")
        self.check(capsys, ("compare", plain, other, "--flags-a", "STRATA_LATENT_MQM=1"), "did you mean STRATA_LATENT_MMQ")
