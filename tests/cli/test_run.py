"""`run` and `show`: a dump says everything about the run that wrote it, and is whole or not there."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from edge0verify.cli.main import run
from edge0verify.dump.reader import open_dump
from edge0verify.model import encode, load_model, prompt
from edge0verify.study.dumping import prompt_sha256
from tests.cli.doctored import dump


def said(capsys, *words) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run([str(word) for word in words])
    out = capsys.readouterr()
    return code, out.out, out.err


class TestManifest:
    def test_everything_about_the_run(self, other, tmp_path):
        with open_dump(other) as made:
            m = made.manifest
            model = load_model()
            assert m.engine.name == "edge0verify" and len(m.engine.binary_sha256) == 64 and len(m.kernel_source_sha256) == 64
            assert m.model_sha256 == model.sha256 and m.prompt.tokens == 24
            assert m.prompt.sha256 == prompt_sha256(encode(prompt("prose"))[:24])
            assert dict(m.variants) == {"D": "w11", "A1": "mmq", "A2": "mmq", "U": "mmvq"}
            assert m.level == "replay" and m.signature.rows == 24 and m.signature.layers == (*range(6), "mtp")
            assert m.launches["D/w11/Q8_0"] == 7 and m.launches["A1/mmq/Q3_K"] == 7 and "D/mmvq/Q8_0" not in m.launches
            assert m.split == () and m.device.name.startswith("cpu: ")

    def test_flags_are_recorded_unset_ones_too(self, tmp_path):
        with open_dump(dump(tmp_path / "x.h5", "--flags", "STRATA_LATENT_MMQ=1 STRATA_ROUTE_PRIOR=0.5", tokens=8)) as made:
            m = made.manifest
        assert m.flags["STRATA_LATENT_MMQ"] == "1" and m.flags["STRATA_LATENT_FUSED_DU"] is None
        assert dict(m.variants) == {"D": "w11", "A1": "mmq", "A2": "mmq", "U": "w11"}

    def test_keys(self, plain):
        with open_dump(plain) as made:
            rows, pairs, ids = made.rows(), made.pairs(2), made.read(2, "route-ids")
            assert rows.tolist() == [[0, at, 1] for at in range(24)]
            assert pairs.shape == (96, 5) and np.array_equal(pairs[:, 3], ids.reshape(-1)) and (pairs[:, 4] == 1).all()
            assert len(made.token_keys("mtp")) == 23 == made.shape("mtp", "u")[0]


class TestGenerate:
    def test_drafted_and_taken_back_rows_are_there(self, tmp_path, capsys):
        code, out, _ = said(capsys, "run", "--prompt", "prose", "--tokens", 24, "--generate", 12, "-o", tmp_path / "x.h5")
        assert code == 0 and "12 tokens in" in out
        with open_dump(tmp_path / "x.h5") as made:
            rows = made.rows()
            later = rows[24:]
            assert (rows[:24, 0] == 0).all() and (later[:, 0] > 0).all() and len(later) >= 11
            kept = rows[rows[:, 2] == 1]
            assert len(np.unique(kept[:, 1])) == len(kept)                       # a position is accepted once
            assert kept[:, 1].max() == 24 + 12 - 2                               # the last token is decided, not read
            assert made.pairs(5).shape[0] == 4 * len(rows) and np.array_equal(made.pairs(5)[::4, [0, 1, 4]], rows)
            assert made.shape("mtp", "d-xl")[0] == len(made.token_keys("mtp"))
            made.verify()


class TestLevels:
    @pytest.mark.parametrize(
        ("level", "has", "has_not"),
        [
            ("outputs", {"d-xlq", "a-yl", "u"}, {"ffn-in", "a-h", "a-gate"}),
            ("replay", {"ffn-in", "route-ids", "d-hq", "a-h", "u-ylq"}, {"a-gate", "a-y"}),
            ("full", {"a-gate", "a-up", "a-y", "a-h"}, set()),
        ],
    )
    def test_tensors_of_each_level(self, tmp_path, level, has, has_not):
        with open_dump(dump(tmp_path / "x.h5", "--level", level, tokens=6)) as made:
            assert has <= set(made.tensors(0)) and not has_not & set(made.tensors(0))
            assert made.has("head", "logits") == (level == "full") and made.shape("head", "top8-ids") == (1, 8)
            assert made.missing() == []

    def test_a_reduced_dump_is_small(self, tmp_path):
        sizes = {level: dump(tmp_path / f"{level}.h5", "--level", level, tokens=64).stat().st_size for level in ("replay", "hash")}
        assert sizes["hash"] < sizes["replay"] / 20


class TestRefused:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--level", "all"), "expected one of outputs, replay, full, sketch, hash"),
            (("--set", "D=w12"), "did you mean w11"),
            (("--set", "X=w11"), "expected STAGE=VARIANT"),
            (("--set", "A=mmq,A1=mmq"), "expected stage A1 once"),
            (("--set", "A1=mmq"), "choose both by A"),
            (("--set", "D=w11", "--flags", ""), "expected one of them, found both"),
            (("--flags", "STRATA_LATENT_FUSE=1"), "did you mean STRATA_LATENT_FUSED"),
            (("--prompt", "poem"), "poem"),
        ],
    )
    def test_bad_words_write_nothing(self, tmp_path, capsys, words, message):
        code, out, err = said(capsys, "run", "--prompt", "prose", "--tokens", 4, "-o", tmp_path / "x.h5", *words)
        assert code == 2 and message in err and out == "" and list(tmp_path.iterdir()) == []

    def test_an_existing_file_stays(self, tmp_path, capsys):
        made = dump(tmp_path / "x.h5", tokens=4)
        before = made.read_bytes()
        code, _, err = said(capsys, "run", "--prompt", "prose", "--tokens", 4, "-o", made)
        assert code == 2 and "exists already" in err and made.read_bytes() == before
        assert said(capsys, "run", "--prompt", "code", "--tokens", 4, "-o", made, "--overwrite")[0] == 0
        assert made.read_bytes() != before

    def test_an_interrupted_run_leaves_nothing(self, tmp_path, capsys, monkeypatch):
        from edge0verify.study import dumping

        calls = []

        def stop(self, layer, name, first, value):
            calls.append(name)
            if len(calls) > 5:
                raise KeyboardInterrupt

        monkeypatch.setattr(dumping.DumpTap, "__call__", stop)
        assert said(capsys, "run", "--prompt", "prose", "--tokens", 4, "-o", tmp_path / "x.h5")[0] == 130
        assert list(tmp_path.iterdir()) == []


class TestShow:
    def test_manifest_tensors_and_statistics(self, other, capsys):
        code, out, _ = said(capsys, "show", other)
        assert code == 0 and "variants  A1 mmq, A2 mmq, D w11, U mmvq" in out and "layers/000/d-xlq/codes" in out
        assert "D/w11/Q8_0 7" in out and max(map(len, out.splitlines())) <= 150

    def test_json_has_the_true_figures(self, other, capsys):
        code, out, _ = said(capsys, "show", other, "--json")
        found = {a["path"]: a for a in json.loads(out)["arrays"]}
        with h5py.File(other) as f:
            x = f["layers/003/u"][...].astype(np.float64)
        row = found["layers/003/u"]
        assert code == 0 and row["shape"] == [24, 384] and row["nonfinite"] == 0
        figures = [row[name] for name in ("min", "max", "mean", "std")]
        np.testing.assert_allclose(figures, [x.min(), x.max(), x.mean(), x.std()], rtol=1e-9)

    def test_a_damaged_dump_is_one_line(self, plain, tmp_path, capsys):
        (tmp_path / "cut.h5").write_bytes(plain.read_bytes()[:5000])
        code, out, err = said(capsys, "show", tmp_path / "cut.h5")
        assert code == 2 and out == "" and len(err.strip().splitlines()) == 1 and "cut.h5" in err
