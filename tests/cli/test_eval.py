"""`eval` of two configurations, of endpoints, of merged parts; every answer is computed by an engine, here or behind HTTP."""

from __future__ import annotations

import json

import pytest

from edge0verify.cli.main import run
from edge0verify.model import load_model
from edge0verify.numerics.stats import mcnemar_exact
from tests.cli.doctored import verdict
from tests.study.copies import copy, swap_experts
from tests.study.served import Served

KEY = "sk-test-0123456789"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """The embedded model with pairs of experts exchanged in four layers: it still speaks, and answers less."""

    def edit(data):
        for layer in (1, 2, 3, 4):
            for expert in range(0, 16, 2):
                swap_experts(f"blk.{layer}.ffn_down_exps.weight", expert, expert + 1)(data)

    return copy(tmp_path_factory.mktemp("models") / "damaged.gguf", edit)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def evaluate(capsys, *words):
    """(exit code, evaluation as JSON, standard error)."""
    capsys.readouterr()
    code = run(["eval", *map(str, words), "--threads", "2", "--json", "-"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out.strip() else None, err


class TestEndpoints:
    def test_the_loss_of_a_damaged_model_shows_with_its_interval(self, damaged, capsys):
        with Served(load_model()) as right, Served(damaged) as wrong:
            code, found, _ = evaluate(capsys, "--endpoint", right.url, "--endpoint-b", wrong.url, "--questions", 12)
            assert right.answered == wrong.answered == 12
        told = found["paired"]
        assert code == 1 and found["status"] == "FAIL" and "b loses" in found["reasons"][0]
        assert found["a"]["right"] == 12 and told["only_a"] == 12 - found["b"]["right"] >= 6 and told["only_b"] == 0
        assert told["mcnemar_p"] == mcnemar_exact(told["only_a"], 0) < 0.05
        assert told["low"] < told["difference"] < told["high"] < 0 and told["hidden_loss"] > told["only_a"] / 12
        assert found["top8"]["max_move"] > 1 and all(len(a["top8"]) == 8 for a in found["b"]["answers"])

    def test_an_endpoint_answers_as_the_engine_behind_it_does(self, capsys, tmp_path):
        """Over HTTP and in this process: the same texts, the same first-token log-probs, read as dumps."""
        with Served(load_model()) as server:
            dumps = tmp_path / "e.h5", tmp_path / "l.h5"
            words = ["--questions", "2:5", "--dump", dumps[0], "--dump-b", dumps[1]]
            code, found, _ = evaluate(capsys, "--endpoint", server.url, "--set-b", "D=mmvq", *words)
        assert code == 0 and found["top8"]["max_move"] == 0 and found["paired"]["n"] == 3
        assert [a["answer"] for a in found["a"]["answers"]] == [b["answer"] for b in found["b"]["answers"]]
        assert any("still allows a loss of 63.2 %" in text for text in found["sentences"])
        code, judged = verdict(capsys, *dumps)
        assert judged["top8"]["positions"] == 3 and judged["top8"]["max_move"] == 0
        assert judged["totals"]["causes"] == {"equal": 24}
        # Another engine counts no launches, so all being equal still proves nothing of a variant.
        assert code == 3 and judged["engaged"] == {"a": None, "b": True}

    def test_dumps_of_an_endpoint_and_of_a_damaged_one_differ(self, damaged, capsys, tmp_path):
        with Served(load_model(), form="completions") as right, Served(damaged, form="completions") as wrong:
            for name, server in (("a.h5", right), ("b.h5", wrong)):
                assert evaluate(capsys, "--endpoint", server.url, "--questions", 2, "--dump", tmp_path / name)[0] == 0
        code, judged = verdict(capsys, tmp_path / "a.h5", tmp_path / "b.h5")
        assert code == 3 and judged["top8"]["max_move"] > 0.1 and "no bound says" in "\n".join(judged["reasons"])
        for limit, expected in (("matched = 0.0", 0), ("matched = 0.9", 1)):
            policy = tmp_path / "policy.toml"
            policy.write_text(f"allow_foreign = true\n[[rule]]\nstage = 'head'\n{limit}\n")
            assert verdict(capsys, tmp_path / "a.h5", tmp_path / "b.h5", "--policy", policy)[0] == expected
        # Tokens named by text cannot be joined with those named by id.
        assert evaluate(capsys, "--questions", 2, "--dump", tmp_path / "c.h5")[0] == 0
        code, judged = verdict(capsys, tmp_path / "a.h5", tmp_path / "c.h5")
        assert code == 3 and judged["top8"] is None and "a names tokens by text, b by id" in "\n".join(judged["reasons"])

    def test_dumps_of_other_questions_are_unlike(self, capsys, tmp_path):
        for name, which in (("a.h5", "0:1"), ("b.h5", "1:2")):
            assert evaluate(capsys, "--questions", which, "--dump", tmp_path / name)[0] == 0
        code, judged = verdict(capsys, tmp_path / "a.h5", tmp_path / "b.h5")
        assert code == 3 and "unlike runs: prompt" in judged["reasons"][0]

    def test_no_log_probs_no_dump(self, capsys, tmp_path):
        with Served(load_model(), form="none") as server:
            code, _, err = evaluate(capsys, "--endpoint", server.url, "--questions", 1, "--dump", tmp_path / "a.h5")
        assert code == 2 and "expected log-probs of the first token" in err and not (tmp_path / "a.h5").exists()

    def test_a_busy_server_is_asked_again(self, capsys, monkeypatch):
        monkeypatch.setattr("edge0verify.study.endpoint.LONGEST_PAUSE_S", 0.01)
        with Served(load_model(), fail=2) as server:
            code, found, _ = evaluate(capsys, "--endpoint", server.url, "--questions", 1, "--retries", 2)
        assert code == 0 and found["attempts"] == 3

    def test_an_unreachable_server_proves_nothing(self, capsys):
        code, found, err = evaluate(capsys, "--endpoint", "http://127.0.0.1:1/v1", "--questions", 2, "--retries", 0)
        assert code == 3 and found is None and err.startswith("INCONCLUSIVE: http://127.0.0.1:1/v1") and "0 of 2" in err

    def test_one_that_gives_up_half_way_too(self, capsys, monkeypatch):
        monkeypatch.setattr("edge0verify.study.endpoint.LONGEST_PAUSE_S", 0.01)
        with Served(load_model(), give_up=1) as server:
            code, found, err = evaluate(capsys, "--endpoint", server.url, "--questions", 3, "--retries", 1)
        assert code == 3 and found is None and "1 of 3 questions were answered" in err and "HTTP 503" in err

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--endpoint", "htp://x/v1"], "expected http://HOST/v1"),
            (["--endpoint", "127.0.0.1:8080"], "expected http://HOST/v1"),
            (["--endpoint", "http://user:secret@x/v1"], "without user, password"),
            (["--endpoint", "http://127.0.0.1:1/v1", "--set", "D=w11"], "expected one of them for a, found both"),
            (["--endpoint-b", "http://127.0.0.1:1/v1", "--set-b", "D=w11"], "expected one of them, found both"),
            (["--endpoint", "http://127.0.0.1:1/v1", "--key-variable", "E0_NO_SUCH_KEY"], "E0_NO_SUCH_KEY, found none"),
            (["--dump-b", "x.h5"], "expected a second configuration"),
            (["--questions", "5:5"], "at least one question"),
            (["--questions", "a"], "expected a number N, or A:B"),
            (["x.json"], "did you mean --merge"),
        ],
    )
    def test_what_is_refused(self, words, message, capsys):
        code, _, err = evaluate(capsys, *words)
        assert code == 2 and message in err and "secret" not in err

    def test_a_wrong_path_is_an_input_error(self, capsys):
        with Served(load_model()) as server:
            code, _, err = evaluate(capsys, "--endpoint", server.url.replace("v1", "v2"), "--questions", 1)
        assert code == 2 and "HTTP 404" in err

    def test_the_key_is_sent_and_never_shown(self, capsys, monkeypatch, tmp_path):
        words = ["--questions", 1, "--key-variable", "E0_TEST_KEY", "--dump", tmp_path / "k.h5"]
        with Served(load_model(), key=KEY) as server:
            monkeypatch.setenv("E0_TEST_KEY", KEY)
            code, found, err = evaluate(capsys, "--endpoint", server.url, *words)
            assert code == 0 and KEY not in json.dumps(found) + err and KEY.encode() not in (tmp_path / "k.h5").read_bytes()
            monkeypatch.setenv("E0_TEST_KEY", "sk-another")
            code, _, err = evaluate(capsys, "--endpoint", server.url, *words[:4])
            assert code == 2 and "HTTP 401" in err and "sk-another" not in err and "(key)" in err


class TestTwoConfigurations:
    def test_a_damaged_copy(self, damaged, capsys):
        code, found, _ = evaluate(capsys, "--model-b", damaged.path, "--questions", 14)
        assert code == 1 and found["paired"]["only_a"] >= 6
        assert found["a"]["configuration"]["sha256"] != found["b"]["configuration"]["sha256"]

    def test_no_discordant_pair_is_said_for_what_it_is(self, capsys):
        code, found, _ = evaluate(capsys, "--set-a", "D=mmvq", "--set-b", "D=w11,A=mmq")
        told = found["paired"]
        assert code == 0 and (told["both"], told["only_a"], told["only_b"]) == (40, 0, 0) and told["mcnemar_p"] == 1
        assert any("40 of 40 not lost still allows a loss of 7.2 % at 95 %" in text for text in found["sentences"])
        assert told["low"] < 0 < told["high"] and "no pair differs" in told["method"]

    def test_the_loss_that_could_hide_is_held_to_a_limit(self, capsys):
        words = ["--set-b", "D=w11", "--questions", 6]
        code, found, _ = evaluate(capsys, *words, "--max-loss", "0.3")
        assert code == 3 and "6 questions still allow a loss of 39.3 %" in found["reasons"][0]
        assert evaluate(capsys, *words, "--max-loss", "0.4")[0] == 0

    def test_one_configuration_twice_proves_nothing(self, capsys):
        code, found, _ = evaluate(capsys, "--set-a", "D=w11", "--set-b", "D=w11", "--questions", 1)
        assert code == 3 and "compared with nothing but itself" in found["reasons"][0]

    def test_a_variant_without_a_kernel_is_not_engaged(self, capsys):
        code, found, _ = evaluate(capsys, "--projection", "q4_0", "--set-b", "D=w11", "--questions", 1)
        assert code == 3 and "b: not engaged, w11 was asked for D" in found["reasons"][0]

    def test_route_flags_say_how_often_they_acted(self, capsys):
        code, found, _ = evaluate(capsys, "--flags-a", "", "--flags-b", "STRATA_ROUTE_TAIL_SKIP=0.2", "--questions", 2)
        assert code == 0 and found["a"]["routed"] is None and 0 < found["b"]["routed"]["acted"] <= found["b"]["routed"]["rows"]
        code, found, _ = evaluate(capsys, "--flags-a", "", "--flags-b", "STRATA_ROUTE_PRIOR=0.2", "--questions", 1)
        assert code == 3 and "no expert is resident" in found["reasons"][0]

    def test_as_text(self, capsys):
        assert run(["eval", "--set-b", "D=w11", "--questions", "2"]) == 0
        out = capsys.readouterr().out
        assert out.count(" right  right ") == 2 and "exact McNemar p = 1" in out and "verdict: PASS" in out
        assert max(map(len, out.splitlines())) <= 132


class TestMerge:
    def parts(self, capsys, tmp_path, *words):
        paths = []
        for name, which in (("1.json", "0:2"), ("2.json", "2:5")):
            paths.append(str(tmp_path / name))
            assert run(["eval", *words, "--questions", which, "--json", paths[-1]]) == 0
        capsys.readouterr()
        return paths

    def test_counts_are_those_of_all_items(self, capsys, tmp_path):
        paths = self.parts(capsys, tmp_path, "--set-b", "D=w11")
        code, found, _ = evaluate(capsys, "--merge", *paths)
        _, whole, _ = evaluate(capsys, "--set-b", "D=w11", "--questions", 5)
        assert code == 0 and found["paired"] == whole["paired"] and found["paired"]["n"] == 5 and found["merged"] == paths
        assert found["a"]["answers"] == whole["a"]["answers"] and found["top8"] == whole["top8"]

    def test_of_one_configuration(self, capsys, tmp_path):
        paths = self.parts(capsys, tmp_path)
        assert run(["eval", "--merge", *paths]) == 0
        assert "5 of 5 still allows 45.1 % failures at 95 %" in capsys.readouterr().out

    def test_what_does_not_merge(self, capsys, tmp_path):
        one, _ = self.parts(capsys, tmp_path)
        assert run(["eval", "--set", "D=w11", "--questions", "6:7", "--json", str(tmp_path / "3.json")]) == 0
        assert run(["eval", "--set-b", "D=w11", "--questions", "6:7", "--json", str(tmp_path / "4.json")]) == 0
        changed = json.loads((tmp_path / "2.json").read_text())
        for name, edit in (("5", {"right": 7}), ("6", {"schema": "x"}), ("7", {"right": 2.5})):
            (tmp_path / f"{name}.json").write_text(json.dumps({**changed, **edit}))
        (tmp_path / "8.json").write_text("{")
        for words, message in (
            ([one, one], "that no other file holds"),
            ([one, tmp_path / "3.json"], "expected the configuration of"),
            ([one, tmp_path / "4.json"], "expected 1 sides"),
            ([one, tmp_path / "5.json"], "right: expected the 3 of its answers, found 7"),
            ([one, tmp_path / "6.json"], "expected schema edge0verify.eval/1"),
            ([one, tmp_path / "7.json"], "right: expected integer"),
            ([one, tmp_path / "8.json"], "as JSON"),
            ([one, tmp_path / "9.json"], "No such file"),
            ([], "expected files of evaluations"),
        ):
            code, _, err = evaluate(capsys, "--merge", *words)
            assert code == 2 and message in err, (words, err)


class TestQuestionsOfYourOwn:
    def test_a_file(self, capsys, tmp_path):
        rows = [{"prompt": "Q: What is 1 + 1?\nA:", "answer": "2"}, {"prompt": "Q: What is 1 + 1? \nA:", "answer": "no"}]
        (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
        code, found, _ = evaluate(capsys, "-f", tmp_path / "q.jsonl", "--at-least", 2)
        assert code == 1 and found["asked"] == 2 and not found["answers"][1]["right"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [("", "at least one"), ("{", "line 1: expected JSON"), ('{"prompt": "x"}', "prompt and answer as texts"),
         ('{"prompt": "x", "answer": "y"}\n{"prompt": "x", "answer": "y"}', "each question once")],
    )
    def test_what_is_refused(self, text, message, capsys, tmp_path):
        (tmp_path / "q.jsonl").write_text(text)
        code, _, err = evaluate(capsys, "-f", tmp_path / "q.jsonl")
        assert code == 2 and message in err
