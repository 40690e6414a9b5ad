"""The search over an outside engine: which runs it asks for, how it reads them, how it goes on after an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge0verify.dump.reader import open_dump
from edge0verify.model import encode, load_model, prompt
from edge0verify.records.errors import InputError
from edge0verify.report.bisect_text import search_text
from edge0verify.study.bisect_check import (
    BAD,
    GOOD,
    SKIPPED,
    Search,
    conclude,
    judge_dump,
    layer_candidates,
    next_candidate,
    search,
)
from edge0verify.study.dumping import RunRequest
from edge0verify.study.dumping import run as write_dump
from edge0verify.variants import _mutants
from edge0verify.variants.kernels import Kernels
from tests.cli.doctored import change

ROOT = Path(__file__).resolve().parents[2]
SIX = tuple("abcdef")


def hunt(n, first_bad, skipped=()):
    """(answers in the order asked, their number) of a search whose truth is known."""
    answers = {}
    while (i := next_candidate(answers, n)) is not None:
        assert i not in answers
        answers[i] = SKIPPED if i in skipped else BAD if i >= first_bad else GOOD
    return answers


class TestPlan:
    @pytest.mark.parametrize("n", range(1, 18))
    def test_every_first_bad_one_is_found_in_few_runs(self, n):
        for first in range(n):
            answers = hunt(n, first)
            status, _, bad, good = conclude(answers, [str(i) for i in range(n)])
            assert (status, bad, good) == ("FAIL", str(first), str(first - 1) if first else None)
            assert len(answers) <= 1 + (n - 1).bit_length() + 1

    @pytest.mark.parametrize("n", range(1, 10))
    def test_none_bad_is_known_after_the_last(self, n):
        assert hunt(n, n) == {n - 1: GOOD}
        assert conclude({n - 1: GOOD}, SIX * 2)[0] == ("PASS" if n == 12 else "INCONCLUSIVE")
        assert conclude({5: GOOD}, SIX)[0] == "PASS"

    @pytest.mark.parametrize("first", range(6))
    @pytest.mark.parametrize("skip", range(6))
    def test_a_candidate_that_cannot_be_tried_is_walked_around(self, first, skip):
        answers = hunt(6, first, {skip})
        status, reasons, bad, _ = conclude(answers, SIX)
        if status == "FAIL":
            assert bad == SIX[first]
        else:
            assert status == "INCONCLUSIVE" and (skip in (first, first - 1) or skip == 5), reasons

    def test_a_good_one_after_a_bad_one_is_no_answer(self):
        status, reasons, bad, _ = conclude({0: GOOD, 1: BAD, 2: GOOD, 5: BAD}, SIX)
        assert (status, bad) == ("INCONCLUSIVE", None) and "'c' after it is good" in reasons[0]

    def test_layers_are_the_default_candidates(self):
        assert layer_candidates("run {layers} {out}", 3) == ("0-0", "0-1", "0-2")
        with pytest.raises(InputError, match="--candidate"):
            layer_candidates("run {flags} {out}", 3)


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def dumps(model, tmp_path_factory):
    """A good dump, and one of a kernel that drops a block."""
    folder = tmp_path_factory.mktemp("dumps")
    tokens = encode(prompt("prose"))[:12]
    for name, fault in (("good", None), ("bad", "drop-block")):
        _mutants.set_fault(fault)
        request = RunRequest(model=model, tokens=tokens, out=folder / f"{name}.h5", level="full", threads=1, drafter=False)
        write_dump(request, kernels=Kernels(_mutants, threads=1))
    _mutants.set_fault(None)
    return folder


def engine(folder, body=""):
    """A command line that copies the dump which the candidate's letter deserves, and writes down that it ran."""
    script = folder.parent / f"engine_{abs(hash(body)) % 10**8}.sh"
    leave = f'case $1 in [a-c]) cp {folder}/good.h5 "$2";; *) cp {folder}/bad.h5 "$2";; esac'
    script.write_text(f'echo "$1" >> {folder}/ran\n{body}\n{leave}\n')
    return f"sh {script} {{candidate}} {{out}}"


def ran(folder):
    log = folder / "ran"
    lines = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def asked(model, command, **more):
    return Search(command=command, candidates=more.pop("candidates", SIX), model=model, **more)


class TestRuns:
    def test_the_first_bad_candidate_is_named_with_what_is_wrong(self, model, dumps):
        found = search(asked(model, engine(dumps)))
        assert (found.status, found.exit_code, found.first_bad, found.last_good) == ("FAIL", 1, "d", "c")
        assert len(ran(dumps)) == len(found.tried) <= 4
        assert "do not conform" in found.reasons[1] and "'d' is the first bad candidate" in found.reasons[0]
        assert "verdict: FAIL" in search_text(found) and json.loads(found.dumps())["first_bad"] == "d"

    def test_a_good_engine_passes_after_one_run(self, model, dumps):
        found = search(asked(model, engine(dumps), candidates=tuple("abc")))
        assert (found.status, len(found.tried), ran(dumps)) == ("PASS", 1, ["c"])

    def test_ids_of_no_expert_are_a_fault_of_the_route(self, model, dumps, tmp_path):
        def edit(f):
            f["layers/002/route-ids"][4, 2] = f["layers/002/pairs"][4 * 4 + 2, 3] = 99

        change(dumps / "good.h5", tmp_path / "ids.h5", edit)
        with open_dump(tmp_path / "ids.h5") as dump:
            status, reason = judge_dump(dump, model)
        assert status == "FAIL" and "layer 2 stage route route-ids: 2 of" in reason and "would have passed" in reason

    def test_dumps_may_be_compared_with_a_good_one(self, model, dumps):
        found = search(asked(model, engine(dumps), good=dumps / "good.h5"))
        assert (found.status, found.first_bad) == ("FAIL", "d")
        assert len(ran(dumps)) <= 4

    def test_a_crash_is_bad_and_what_cannot_be_tried_is_skipped(self, model, dumps):
        body = "case $1 in c) exit 125;; e) kill -SEGV $$;; f) exit 3;; esac"
        found = search(asked(model, engine(dumps, body)))
        by = {t.candidate: (t.answer, t.reason) for t in found.tried}
        assert by["f"][0] == SKIPPED and "exited with 3" in by["f"][1]
        assert by["e"] == (BAD, "the engine was ended by signal 11")
        assert found.status == "INCONCLUSIVE" and "'c', 'd'" in found.reasons[0]
        ran(dumps)

    def test_a_run_without_a_dump_and_one_past_its_limit_are_skipped(self, model, dumps):
        found = search(asked(model, "true {candidate} {out}", candidates=("a",)))
        assert (found.status, found.tried[0].reason) == ("INCONCLUSIVE", "the engine left no dump at {out}")
        slow = search(asked(model, "sleep 30; true {candidate} {out}", candidates=("a",), timeout_s=0.3))
        assert slow.tried[0].answer == SKIPPED and "time limit" in slow.tried[0].reason

    @pytest.mark.parametrize(
        "command, said",
        [("run {layers}", "{out}"), ("run {out}", "{layers}"), ("no-such-engine {candidate} {out}", "does not find")],
    )
    def test_a_command_that_cannot_be_driven_is_an_input_error(self, model, command, said):
        with pytest.raises(InputError, match=said):
            search(asked(model, command))


class TestState:
    def test_answers_are_kept_and_not_asked_for_again(self, model, dumps, tmp_path):
        state = tmp_path / "state.json"
        first = search(asked(model, engine(dumps), state=state))
        ran(dumps)
        again = search(asked(model, engine(dumps), state=state))
        assert ran(dumps) == [] and again.resumed == len(first.tried) and again.first_bad == "d"
        kept = json.loads(state.read_text())
        kept["tried"] = kept["tried"][:1]
        state.write_text(json.dumps(kept))
        third = search(asked(model, engine(dumps), state=state))
        assert (third.resumed, third.first_bad, len(ran(dumps))) == (1, "d", len(first.tried) - 1)

    def test_a_file_of_another_search_is_refused(self, model, dumps, tmp_path):
        state = tmp_path / "state.json"
        search(asked(model, engine(dumps), candidates=("a",), state=state))
        with pytest.raises(InputError, match="another command"):
            search(asked(model, engine(dumps), candidates=("a", "b"), state=state))
        state.write_text("{")
        with pytest.raises(InputError, match="expected the state of a search"):
            search(asked(model, engine(dumps), candidates=("a",), state=state))
        ran(dumps)

    def test_an_interrupt_ends_the_engine_and_the_search_goes_on_later(self, model, dumps, tmp_path):
        mark = f"4{os.getpid()}7"
        body = f'if [ "$1" = d ] && [ ! -e {tmp_path}/again ]; then sleep {mark}; fi'
        command, state = engine(dumps, body), tmp_path / "state.json"
        words = [sys.executable, "-m", "edge0verify.cli.main", "bisect", "--check", command, "--state", str(state)]
        words += [w for c in SIX for w in ("--candidate", c)]
        tool = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not _running(mark) and time.monotonic() < until:
            time.sleep(0.05)
        assert _running(mark), "the engine never came to the candidate that waits"
        tool.send_signal(signal.SIGINT)
        assert tool.wait(20) == 130
        until = time.monotonic() + 8
        while _running(mark) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _running(mark)
        assert [t["candidate"] for t in json.loads(state.read_text())["tried"]]
        assert not list(state.parent.glob("*.partial"))
        (tmp_path / "again").touch()
        ran(dumps)
        found = search(asked(model, command, state=state))
        assert found.first_bad == "d" and found.resumed >= 1 and "f" not in ran(dumps)


def _running(mark):
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if line.startswith(f"sleep\0{mark}".encode()):
                return True
    return False
