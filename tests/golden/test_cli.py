"""The command: its exits, its words, its files."""

import json
from xml.etree import ElementTree

import pytest

from edge0verify.cli.main import run
from edge0verify.golden.store import Store
from edge0verify.records.verdict import Verdict


@pytest.fixture
def golden(store, capsys):
    """Run `edge0verify golden ...` in the store's copy: (exit code, standard output, standard error)."""

    def made(command, *words):
        code = run(["golden", command, *words, "--store", str(store.folder)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return made


class TestCheck:
    def test_all_pass(self, golden, tmp_path):
        code, out, _ = golden("check", "--json", str(tmp_path / "v.json"), "--junit", str(tmp_path / "j.xml"), "--threads", "2")
        assert code == 0
        assert "2 of 2 goldens pass" in out
        data = json.loads((tmp_path / "v.json").read_text())
        assert (data["schema"], data["status"]) == ("edge0verify.golden-check/1", "PASS")
        for found in data["goldens"]:
            assert Verdict.from_json(found["verdict"]).status == "PASS"
        assert len(ElementTree.parse(tmp_path / "j.xml").getroot()) == 2

    def test_json_alone_on_standard_output(self, golden):
        code, out, _ = golden("check", "sketch", "--json", "-")
        assert (code, json.loads(out)["goldens"][0]["name"]) == (0, "sketch")

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (("nonsense",), 2, "golden nonsense: expected in the store, found none"),
            (("whole", "--dump", "none.h5"), 2, "none.h5: expected a dump, found no such file"),
            (("--dump", "x.h5"), 2, "--dump: expected one golden with it, found 0"),
            (("whole", "--projection", "q4_0"), 3, "unlike runs: model: the golden is of edge0-mini-q3_k.gguf"),
            (("whole", "--device", "hip:0"), 3, "hip"),
            (("whole", "--device", "moon:0"), 2, "--device moon:0: expected one of"),
        ],
    )
    def test_exits(self, golden, words, code, said):
        found, out, err = golden("check", *words)
        assert found == code
        assert said in " ".join((out + err).split())

    def test_an_empty_store_proves_nothing(self, tmp_path, capsys):
        assert run(["golden", "check", "--store", str(tmp_path / "none")]) == 3
        assert "nothing was checked" in capsys.readouterr().out


class TestRecordAndAccept:
    def test_new_run_again_and_reanchor(self, golden, store):
        code, out, _ = golden(
            "record", "new", "--prompt", "code", "--tokens", "4", "--flags", "STRATA_LATENT_MMQ=1", "--policy", "conform"
        )
        assert code == 0
        assert "run 1, level replay" in out and "policy conform" in out
        run_1 = store.open("new").candidate
        assert (run_1.inputs.variants["A1"], run_1.inputs.flags["STRATA_LATENT_MMQ"]) == ("mmq", "1")
        assert golden("accept", "new", "--reason", "first")[0] == 0
        assert golden("accept", "new", "--reason", "again")[0] == 2  # nothing new to accept
        assert golden("record", "new")[0] == 0
        code, out, _ = golden("accept", "new", "--reason", "  the   second ", "--reanchor")
        assert (code, out) == (0, "new: run 3 is the golden and the anchor: the second\n")
        assert golden("check", "new")[0] == 0

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("accept", "whole"), "Missing option '--reason'"),
            (("accept", "whole", "--reason", " "), "record one first"),
            (("record", "whole", "--prompt", "code"), "expected its own inputs, found --prompt"),
            (("record", "Upper"), "expected small letters"),
            (("record", "new", "--set", "D=w12"), "did you mean w11"),
            (("record", "new", "--policy", "none.toml"), "none.toml"),
            (("record", "new", "--drift-l2", "much"), "--drift-l2 much: expected a number or none"),
            (("record", "new", "--drift-top8", "-1"), "drift limit top8: expected a number of at least 0"),
            (("show", "nonsense"), "found none"),
        ],
    )
    def test_refused_in_one_line(self, golden, store, words, said):
        before = store.names()
        code, _, err = golden(*words)
        assert code == 2
        assert said in err and err.count("\n") == 1
        assert store.names() == before

    def test_a_run_that_breaks_its_contract(self, golden, store, monkeypatch, mutants):
        from edge0verify.golden import making

        faulty = mutants("flip-hmask-bit")
        real = making.run
        monkeypatch.setattr(making, "run", lambda request, kernels=None: real(request, kernels=faulty))
        code, out, _ = golden("record", "bad", "--tokens", "4")
        assert code == 1
        assert "NOT CONFORMING" in out and "structured" in out
        code, _, err = golden("accept", "bad", "--reason", "looks right")
        assert code == 2 and "breaks its contract" in err and "--anyway" in err
        assert golden("check", "bad")[0] == 3
        assert golden("accept", "bad", "--reason", "a fault on purpose", "--anyway")[0] == 0

    def test_a_dump_is_recorded_and_only_dumps_are_held_against_it(self, golden, store, tmp_path):
        made = tmp_path / "x.h5"
        assert run(["run", "--prompt", "list", "--tokens", "4", "-o", str(made)]) == 0
        assert golden("record", "foreign", "--dump", str(made))[0] == 0
        assert golden("accept", "foreign", "--reason", "from elsewhere")[0] == 0
        code, _, err = golden("check", "foreign")
        assert code == 2 and "hold another dump against it with --dump" in err
        again = tmp_path / "y.h5"
        assert run(["run", "--prompt", "list", "--tokens", "4", "-o", str(again)]) == 0
        assert golden("check", "foreign", "--dump", str(again))[0] == 0
        assert run(["run", "--prompt", "list", "--tokens", "4", "--set", "D=w11", "-o", str(tmp_path / "z.h5")]) == 0
        code, out, _ = golden("check", "foreign", "--dump", str(tmp_path / "z.h5"))
        assert code == 3 and "unlike runs: variants" in out

    def test_the_prompt_of_a_dump_is_checked_when_it_is_named(self, golden, tmp_path):
        made = tmp_path / "x.h5"
        assert run(["run", "--prompt", "list", "--tokens", "4", "-o", str(made)]) == 0
        code, _, err = golden("record", "other", "--dump", str(made), "--prompt", "code", "--tokens", "4")
        assert code == 2 and "expected the prompt of the dump" in err
        assert golden("record", "same", "--dump", str(made), "--prompt", "list", "--tokens", "4")[0] == 0
        assert golden("accept", "same", "--reason", "its inputs are known")[0] == 0
        assert golden("check", "same")[0] == 0


def test_confirming_takes_staleness_away_and_nothing_else(golden, store, monkeypatch):
    from edge0verify.variants import kernels

    assert golden("check", "--confirm", "nothing changed")[0] == 0
    before = {name: len(store.open(name).events) for name in store.names()}
    monkeypatch.setattr(kernels, "kernel_source_sha256", lambda: "3" * 64)
    assert "2 stale, recorded from other kernel sources" in golden("check")[1]
    assert "stale" in golden("list")[1]
    assert golden("check", "--confirm", "comments alone changed")[0] == 0
    assert "stale" not in golden("check")[1] + golden("list")[1]
    assert {name: len(store.open(name).events) for name in store.names()} == {name: n + 1 for name, n in before.items()}
    assert "comments alone changed" in golden("show", "whole")[1]


def test_list_show_prune(golden, store, tmp_path):
    code, out, _ = golden("list")
    assert code == 0 and "whole" in out and "sketch" in out
    assert json.loads(golden("list", "--json")[1])[0]["events"][0]["kind"] == "recorded"
    code, out, _ = golden("show", "whole", "--dump", str(tmp_path / "sub/w.h5"))
    assert code == 0 and "first run" in out
    assert run(["show", str(tmp_path / "sub/w.h5"), "--quick"]) == 0
    assert golden("prune", "--keep", "0")[1].endswith("0 objects removed\n")
    assert isinstance(store, Store)
