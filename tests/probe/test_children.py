"""A probe's process may be killed, hang or crash: its operation fails, the rest goes on, and nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge0verify.cli.main import run
from edge0verify.probe import memory
from edge0verify.probe.judge import findings, judge, settle
from edge0verify.probe.memory import Request, read_devices, run_cell
from edge0verify.probe.types import OPERATIONS, Cell, Machine, Row
from edge0verify.records.errors import InputError

ROOT = Path(__file__).parents[2]
CELL = Cell(reader=1, owner=0, memory="mapped host")


def request(knobs="", timeout_s=30.0):
    return Request(machine=Machine(runtime="sim", devices=2, knobs=knobs), sizes=(4, 4096), timeout_s=timeout_s)


def row(**changes):
    known = {"cell": Cell(reader=0, owner=1, memory="device", peer=True), "operation": "copy", "answer": "PASS"}
    return Row(**{**known, **changes})


class TestProcesses:
    def test_every_operation_is_answered(self):
        rows = run_cell(request(), CELL)
        assert [r.operation for r in rows] == list(OPERATIONS["mapped host"])
        assert {r.answer for r in rows} == {"PASS"}

    def test_a_fault_costs_one_operation_each(self):
        rows = run_cell(request(), Cell(reader=1, owner=0, memory="device", peer=False))
        assert [r.operation for r in rows] == list(OPERATIONS["device"])
        assert [r.error["code"] for r in rows if r.error] == [1, 700, 700, 700]

    def test_a_hang_runs_into_the_time_limit_and_ends(self):
        began = time.monotonic()
        rows = run_cell(request("doorbell=lost", timeout_s=1.5), Cell(reader=1, owner=0, memory="device", peer=True))
        assert sum(r.cause == "no completion" for r in rows) >= 1
        assert [r.operation for r in rows] == list(OPERATIONS["device"])
        assert time.monotonic() - began < 40
        assert not left_behind()

    @pytest.mark.parametrize("death", ["os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 11)", "os._exit(3)", "sys.exit('no')"])
    def test_a_dying_process_costs_one_operation(self, death, tmp_path, monkeypatch):
        dying = tmp_path / "sitecustomize.py"
        dying.write_text(
            "import os, sys\n"
            "if 'edge0verify.probe.child' in ' '.join(sys.orig_argv):\n"
            "    from edge0verify.probe import operations\n"
            "    real = operations._atomics\n"
            f"    def fall(b):\n        {death}\n"
            "    operations._atomics = fall\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        rows = run_cell(request(), CELL)
        assert [(r.operation, r.answer) for r in rows] == [
            (o, "FAIL" if o == "atomics" else "PASS") for o in OPERATIONS["mapped host"]
        ]
        assert next(r for r in rows if r.answer == "FAIL").cause == "process died"

    def test_killing_the_tool_leaves_nothing(self):
        command = [
            sys.executable,
            "-m",
            "edge0verify.cli.main",
            "probe",
            "memory",
            "--devices",
            "sim:2",
            "--knobs",
            "doorbell=lost",
        ]
        tool = subprocess.Popen([*command, "--max-size", "4K"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while not left_behind() and time.monotonic() < until:
            time.sleep(0.05)
        assert left_behind(), "no device ever started"
        tool.send_signal(signal.SIGKILL)
        tool.wait(10)
        until = time.monotonic() + 15
        while left_behind() and time.monotonic() < until:
            time.sleep(0.05)
        assert not left_behind()


def left_behind():
    """Processes of simulated devices and of probes that are running (those of other tests' own runs are in this session too)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
                mine = (
                    f"PYTEST_CURRENT_TEST={os.environ.get('PYTEST_CURRENT_TEST', '')}".encode() in (entry / "environ").read_bytes()
                )
            except OSError:
                continue
            if mine and (b"_simdev" in line or b"edge0verify.probe.child" in line):
                found.append(int(entry.name))
    return found


class TestCommand:
    def test_json_is_stable_and_text_says_the_answer(self, capsys):
        words = ["probe", "memory", "--devices", "sim:2", "--max-size", "1K", "--memory", "mapped host"]
        assert run([*words, "--json", "-"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["schema"] == "edge0verify.probe/1"
        assert {r["answer"] for r in data["rows"]} == {"PASS"}
        assert set(data["rows"][0]) == {
            "reader", "owner", "memory", "peer", "operation", "answer", "cause", "why", "by_rule", "sizes", "smallest_bad", "error",
            "bandwidth", "limit", "latency",
        }  # fmt: skip
        assert run(words) == 0
        assert capsys.readouterr().out.rstrip().splitlines()[-1].startswith("PASS: ")

    def test_absent_hardware_is_inconclusive_with_the_reason(self, capsys):
        assert run(["probe", "memory", "--devices", "hip", "--json", "-"]) == 3
        assert json.loads(capsys.readouterr().out)["reasons"][0]
        assert run(["probe", "memory", "--devices", "sim:1"]) == 3
        assert "a pair of devices is needed" in capsys.readouterr().out
        assert run(["probe", "capture", "--devices", "hip", "--json", "-"]) == 3
        assert json.loads(capsys.readouterr().out)["schema"] == "edge0verify.capture-probe/1"
        assert run(["probe", "audit", "--split", "0-2@hip:0,3-5@hip:1"]) == 3

    @pytest.mark.parametrize(
        "words",
        [
            ["--devices", "sim:0"], ["--devices", "cpu"], ["--devices", "tpu"], ["--devices", "sim:2", "--knobs", "peer=maybe"],
            ["--devices", "cuda", "--knobs", "peer=off"],
            ["--devices", "sim:2", "--max-size", "lots"], ["--devices", "sim:2", "--memory", "tape"],
        ],
    )  # fmt: skip
    def test_input_errors(self, words):
        assert run(["probe", "memory", *words]) == 2

    def test_counts_of_devices(self):
        assert read_devices("sim:3") == Machine(runtime="sim", devices=3)
        assert read_devices(None) is None
        with pytest.raises(InputError):
            read_devices("sim:x")


class TestJudging:
    def test_bandwidth_and_latency_decide_nothing(self):
        for slow in (None, 1.0, 1e15):
            assert judge([row(bandwidth=slow, limit=1e9, latency=slow)])[0] == "PASS"

    def test_nothing_probed_proves_nothing(self):
        assert judge([])[0] == "INCONCLUSIVE"

    def test_a_refusal_without_peer_access_is_the_rule_and_wrong_bytes_are_not(self):
        cell = Cell(reader=0, owner=1, memory="device", peer=False)
        refused = settle([row(cell=cell, operation="kernel read", answer="FAIL", cause="refused", error={"code": 700})])
        silent = settle([row(cell=cell, operation="kernel read", answer="FAIL", cause="bytes changed on the way")])
        assert (refused[0].answer, refused[0].by_rule, judge(refused)[0]) == ("FAIL", True, "PASS")
        assert (silent[0].cause, silent[0].by_rule, judge(silent)[0]) == ("wrong bytes without an error", False, "FAIL")

    def test_a_failing_control_puts_the_rest_in_doubt(self):
        bad = {"answer": "FAIL", "cause": "bytes changed on the way"}
        rows = settle([row(operation="host-staged", **bad), row(operation="copy", **bad)])
        assert [r.answer for r in rows] == ["FAIL", "INCONCLUSIVE"]
        assert findings(rows, (), {})[0].cause == "device changes bytes"

    def test_a_switch_set_to_nothing_is_said(self):
        notes = findings([row()], (), {"NCCL_P2P_DISABLE": "0", "HSA_ENABLE_SDMA": "", "NCCL_P2P_LEVEL": "5", "HOME": "0"})
        assert {n.text.split("=")[0] for n in notes} == {"NCCL_P2P_DISABLE", "HSA_ENABLE_SDMA"}
        assert not any(n.decides for n in notes)

    def test_the_module_knows_its_own_tree(self):
        assert (memory.ROOT / "edge0verify").is_dir()
