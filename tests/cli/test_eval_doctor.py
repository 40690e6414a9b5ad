"""`eval` prints every answer and `doctor` every finding."""

from __future__ import annotations

import json
import sys

from edge0verify.cli.main import run
from edge0verify.study import doctor


class TestEval:
    def test_every_question_is_printed(self, capsys):
        assert run(["eval", "--questions", "3", "--drafter"]) == 0
        out = capsys.readouterr().out
        assert out.count(" right ") >= 3 and "3 of 3 right" in out and "drafted tokens accepted" in out

    def test_the_drafter_changes_no_answer(self, capsys):
        said = []
        for more in ([], ["--drafter"]):
            assert run(["eval", "--questions", "3", "--json", *more]) == 0
            said.append([a["answer"] for a in json.loads(capsys.readouterr().out)["answers"]])
        assert said[0] == said[1]

    def test_a_wrong_answer_is_seen(self, capsys, monkeypatch):
        from dataclasses import replace

        from edge0verify import model

        asked = model.questions()
        monkeypatch.setattr(model, "questions", lambda: [replace(asked[0], answer="no"), *asked[1:]])
        assert run(["eval", "--questions", "2", "--at-least", "2"]) == 1
        assert "WRONG" in capsys.readouterr().out
        assert run(["eval", "--questions", "2", "--at-least", "1"]) == 0

    def test_too_many(self, capsys):
        assert run(["eval", "--questions", "41"]) == 2
        assert "expected at most 40" in capsys.readouterr().err


class TestDoctor:
    def test_each_absence_says_what_it_means(self, capsys):
        assert run(["doctor", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        groups = {f["group"] for f in found}
        assert {"built", "devices", "compilers", "emulators", "tools", "packages"} <= groups
        assert {"cpu", "cuda", "hip", "gfx11emu"} <= {f["name"] for f in found if f["group"] == "devices"}
        kernels = next(f for f in found if f["name"] == "kernels of the stages")
        assert kernels["found"] and "baseline" in kernels["detail"] and "uses" in kernels["detail"]
        assert all(f["means"] and f["detail"] for f in found if not f["found"])

    def test_as_a_table(self, capsys):
        assert run(["doctor"]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 170

    def test_a_driver_that_hangs_is_a_reason(self, tmp_path, monkeypatch):
        from tests.runtime.test_survey import fake_cuda

        fake_cuda(tmp_path, "import time\ndef cudaGetDeviceCount():\n    time.sleep(600)\n", monkeypatch)
        found = {f.name: f for f in doctor.findings(timeout_s=1.0) if f.group == "devices"}
        assert not found["cuda"].found and "did not answer within 1 s" in found["cuda"].detail

    def test_what_is_needed_and_missing_ends_with_1(self, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "edge0verify.study._oracle", None)
        assert run(["doctor"]) == 1
        assert "NO" in capsys.readouterr().out
