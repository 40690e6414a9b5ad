"""Dump against dump: pairs that prove nothing end with 3 and say why."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.doctored import change, dump, empty, fewer_rows, manifest, reasons, verdict


class TestNothingProven:
    def test_tensor_missing(self, plain, folder, capsys):
        code, found = verdict(capsys, plain, change(plain, folder / "missing.h5", lambda f: f.__delitem__("layers/001/a-yl")))
        assert code == 3 and "layer 1 a-yl: missing on side b" in reasons(found)

    def test_tensor_missing_on_both_sides(self, plain, other, folder, capsys):
        both = [change(s, folder / f"gone{i}.h5", lambda f: f.__delitem__("layers/001/u")) for i, s in enumerate((plain, other))]
        code, found = verdict(capsys, *both)
        assert code == 3 and "layer 1 u: missing on side a, missing on side b" in reasons(found)

    def test_layer_missing_on_both_sides(self, plain, other, folder, capsys):
        both = [change(s, folder / f"short{i}.h5", lambda f: f.__delitem__("layers/003")) for i, s in enumerate((plain, other))]
        code, found = verdict(capsys, *both)
        assert code == 3 and "layer 3: missing on side a, missing on side b" in reasons(found)

    def test_block_sums_missing(self, plain, other, folder, capsys):
        code, found = verdict(capsys, plain, change(other, folder / "nosum.h5", lambda f: f.__delitem__("layers/001/d-xlq/s")))
        assert code == 3 and "layer 1 d-xlq: block sums missing on side b" in reasons(found)

    def test_no_row_in_common(self, plain, other, folder, capsys):
        def halved(half):
            def edit(f):
                fewer_rows(f, 12, last=half)
                manifest(f, lambda m: m["signature"].update(rows=12))

            return edit

        both = [change(s, folder / f"apart{i}.h5", halved(i)) for i, s in enumerate((plain, other))]
        code, found = verdict(capsys, *both, "--stage", "D")
        assert code == 3 and "nothing was compared" in reasons(found) and "12 only in a, 12 only in b" in reasons(found)

    def test_the_rows_that_were_judged_are_counted(self, plain, other, capsys):
        _, found = verdict(capsys, plain, other, "--stage", "D", "--layer", "0", "--rows", "3:8")
        assert found["signature"]["rows"] == 5

    def test_missing_and_no_longer_promised(self, plain, other, folder, capsys):
        def edit(f):
            for layer in f["layers"].values():
                del layer["u"]
            manifest(f, lambda m: m["signature"]["tensors"].remove("u"))

        both = [change(s, folder / f"unsaid{i}.h5", edit) for i, s in enumerate((plain, other))]
        code, found = verdict(capsys, *both)
        assert code == 3 and "layer 0 u: missing on side a, missing on side b" in reasons(found)

    def test_tensor_renamed(self, plain, folder, capsys):
        made = change(plain, folder / "named.h5", lambda f: f.move("layers/001/d-xl", "layers/001/d-x1"))
        code, found = verdict(capsys, plain, made)
        assert code == 3 and "layer 1 d-xl: missing on side b" in reasons(found)
        assert "layer 1 d-x1: missing on side a" in reasons(found)

    @pytest.mark.parametrize("path", ["layers/001/d-xl", "layers/001/ffn-in"])
    def test_tensor_empty(self, plain, folder, capsys, path):
        code, found = verdict(capsys, plain, change(plain, folder / "empty.h5", lambda f: empty(f, path)))
        assert code == 3 and f"layer 1 {path.split('/')[2]}: empty on side b" in reasons(found)

    def test_another_prompt(self, plain, folder, capsys):
        code, found = verdict(capsys, plain, dump(folder / "code.h5", prompt="code"))
        assert code == 3 and "unlike runs: prompt" in reasons(found)

    def test_rows_of_another_prompt_under_the_same_name(self, plain, folder, capsys):
        code_dump = dump(folder / "code2.h5", "--set", "D=w11", prompt="code")
        name = {}
        change(plain, folder / "scratch.h5", lambda f: manifest(f, lambda m: name.update(m["prompt"])))
        made = change(code_dump, folder / "renamed.h5", lambda f: manifest(f, lambda m: m.__setitem__("prompt", name)))
        code, found = verdict(capsys, plain, made)
        assert code == 3 and "layer 0 ffn-in" in reasons(found) and "rows of another prompt" in reasons(found)

    def test_another_model(self, plain, folder, capsys):
        made = change(plain, folder / "model.h5", lambda f: manifest(f, lambda m: m.__setitem__("model_sha256", "0" * 64)))
        code, found = verdict(capsys, plain, made)
        assert code == 3 and "unlike runs: model" in reasons(found)

    def test_another_level(self, plain, folder, capsys):
        code, found = verdict(capsys, plain, dump(folder / "outputs.h5", "--level", "outputs"))
        assert code == 3 and "unlike runs: level: a has replay, b has outputs" in reasons(found)

    def test_other_layers(self, plain, folder, capsys):
        code, found = verdict(capsys, plain, dump(folder / "plain-layers.h5", "--no-drafter"))
        assert code == 3 and "unlike runs: layers" in reasons(found)

    def test_a_file_with_itself(self, plain, folder, capsys):
        code, found = verdict(capsys, plain, plain)
        assert code == 3 and "compared with nothing but itself" in reasons(found)
        shutil.copyfile(plain, folder / "copy.h5")
        code, found = verdict(capsys, plain, folder / "copy.h5")
        assert code == 3 and "compared with nothing but itself" in reasons(found)

    def test_one_file_under_two_names(self, plain, folder, capsys):
        code, found = verdict(capsys, plain, plain, "--stage", "D", "--a", "mmvq", "--b", "w11")
        assert code == 3 and "one dump is given under two variant names" in reasons(found)

        def claim(m):
            m["variants"]["D"] = "w11"
            m["launches"]["D/w11/Q8_0"] = m["launches"].pop("D/mmvq/Q8_0")
            m["time"] = "2030-01-01T00:00:00+00:00"

        made = change(plain, folder / "claims.h5", lambda f: manifest(f, claim))
        code, found = verdict(capsys, plain, made)
        assert code == 3 and "every byte of a and b is equal" in reasons(found)

    def test_a_variant_that_did_not_run(self, plain, folder, capsys):
        projection = "edge0verify/data/edge0-mini-projection-q4_0.gguf"
        made = [dump(folder / f"q4{i}.h5", "--projection", projection, *more) for i, more in enumerate(((), ("--set", "D=w11")))]
        code, found = verdict(capsys, *made, "--projection", projection)
        assert code == 3 and "not engaged" in reasons(found) and found["engaged"] == {"a": True, "b": False}

    def test_without_the_model(self, folder, capsys):
        projection = "edge0verify/data/edge0-mini-projection-q4_0.gguf"
        sets = ((), ("--set", "A=mmq"), ())
        made = [dump(folder / f"nomodel{i}.h5", "--projection", projection, *more) for i, more in enumerate(sets)]
        code, found = verdict(capsys, made[0], made[1])
        assert code == 3 and "nothing bounds the differences: the dumps are of the model" in reasons(found)
        assert verdict(capsys, made[0], made[2])[0] == 0                    # all equal needs no bound
        assert verdict(capsys, made[0], made[1], "--projection", projection)[0] == 0

    def test_reduced_dumps(self, folder, capsys):
        for level in ("sketch", "hash"):
            sets = ((), (), ("--set", "U=mmq"))
            made = [dump(folder / f"{level}{i}.h5", "--level", level, *more) for i, more in enumerate(sets)]
            assert verdict(capsys, made[0], made[1])[0] == 0
            code, found = verdict(capsys, made[0], made[2])
            assert code == 3 and "layer 0 u" in reasons(found)

    def test_reduced_dumps_that_both_lack_a_tensor(self, folder, capsys):
        made = [dump(folder / f"less{i}.h5", "--level", "sketch") for i in range(2)]
        both = [change(path, folder / f"lacks{i}.h5", lambda f: f.__delitem__("layers/001/u")) for i, path in enumerate(made)]
        code, found = verdict(capsys, *both)
        assert code == 3 and "layer 1 u: missing on side a and b" in reasons(found)
