"""Whole nightlies in processes of their own: what comes out of them, crashes and hangs included."""

import json
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from edge0verify.dump.reader import open_dump
from edge0verify.nightly import run as nightly
from edge0verify.nightly.history import History
from edge0verify.runtime.process import run_command
from tests.nightly.samples import PAIR, go, golden


class TestExits:
    def test_all_pass(self, config, tmp_path):
        night = go(config(golden("right"), PAIR))
        assert (night.status, night.exit_code) == ("PASS", 0)
        assert [r.status for r in night.results] == ["PASS", "PASS"]
        assert night.results[0].golden and night.results[1].metrics["compared"] > 1000
        assert sorted(p.name for p in night.folder.iterdir()) == ["cells.jsonl", "junit.xml", "report.html", "summary.txt"]
        assert "golden/right/cpu" in (night.folder / "report.html").read_text()
        lines = [json.loads(line) for line in (night.folder / "cells.jsonl").read_text().splitlines()]
        assert [line["cell"] for line in lines] == ["golden/right/cpu", "pair/embedded/list/D/mmvq:w11/cpu"]
        root = ElementTree.parse(night.folder / "junit.xml").getroot()
        assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "0", "0")
        [kept] = History(tmp_path / "nightly/history.db", create=False).results(cell="golden/right/cpu", verdicts=True)
        assert kept.verdict["schema"] == "edge0verify.verdict/1"

    def test_a_failure_is_kept_with_its_dump(self, config):
        night = go(config(golden("right", "wrong")))
        assert (night.status, night.exit_code) == ("FAIL", 1)
        failed = night.results[1]
        assert "stage A" in " ".join(failed.reasons)
        with open_dump(failed.dump) as dump:
            assert dump.level == "replay"
        assert [p.parent.name for p in night.folder.rglob("*.h5")] == ["golden-wrong-cpu"]
        assert "FAIL" in (night.folder / "summary.txt").read_text()
        root = ElementTree.parse(night.folder / "junit.xml").getroot()
        assert (root.get("failures"), root.find(".//failure").get("type")) == ("1", "FAIL")

    @pytest.mark.parametrize(
        ("parts", "said"),
        [
            ((golden("none-such"),), "skipped: no golden none-such"),
            ((PAIR + 'devices = ["hip:0"]\n',), "skipped: hip"),
            ((), None),
        ],
        ids=["no golden", "no device", "no cell"],
    )
    def test_what_is_skipped_or_empty_is_never_a_pass(self, config, parts, said):
        night = go(config(*parts))
        assert (night.status, night.exit_code) == ("INCONCLUSIVE", 3)
        root = ElementTree.parse(night.folder / "junit.xml").getroot()
        assert root.get("errors") == ("1" if said else "0")
        assert all(suite.get("skipped") == "0" for suite in root)
        assert said is None or said in night.results[0].reasons[0]

    def test_bad_input_of_a_cell(self, config):
        night = go(config(PAIR.replace('"list"', '"nonsense"')))
        assert (night.results[0].status, night.exit_code) == ("INPUT", 2)

    @pytest.mark.parametrize(
        ("script", "status", "said"),
        [
            ("kill -SEGV $$", "FAIL", "was ended by signal 11"),
            ("echo cannot go on >&2; kill -KILL $$", "FAIL", "was ended by signal 9: cannot go on"),
            ("sleep 60", "FAIL", "ran past its time limit"),
            ("exit 0", "INTERNAL", "ended without a result"),
            ("exit 3", "INTERNAL", "exited with 3"),
        ],
    )
    def test_a_crash_and_a_hang_areresults_of(self, config, monkeypatch, script, status, said):
        def broken(argv, **order):
            return run_command(["/bin/sh", "-c", script], **order)

        monkeypatch.setattr(nightly, "run_command", broken)
        night = go(config(golden("right"), top="timeout_s = 1"))
        assert night.results[0].status == status
        assert said in night.results[0].reasons[0]
        assert night.exit_code == {"FAIL": 1, "INTERNAL": 70}[status]

    def test_a_result_that_contradicts_the_exit_code_is_no_result(self, config, monkeypatch):
        def lying(argv, **order):
            Path(argv[-1]).write_text(json.dumps({"status": "PASS", "exit_code": 0, "reasons": []}))
            return run_command(["/bin/sh", "-c", "exit 1"], **order)

        monkeypatch.setattr(nightly, "run_command", lying)
        assert go(config(golden("right"))).results[0].status == "INTERNAL"


def test_twelve_cells_take_less_than_three_minutes(config, slow):
    """The short run has four of them, in proportion."""
    stages = ["D", "A", "U"] if slow else ["D"]
    prompts = ["prose", "code"] if slow else ["list"]
    pairs = f'[[pairs]]\nprompts = {json.dumps(prompts)}\nstages = {json.dumps(stages)}\nvariants = ["mmvq:w11", "mmvq:mmq"]\n'
    asked = config(golden("right"), pairs)
    assert len(asked.cells) == (13 if slow else 3)
    start = time.monotonic()
    night = go(asked)
    assert night.exit_code == 0
    assert time.monotonic() - start < (180 if slow else 60)
