"""Commands are ended with everything they started, however they or the tool end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge0verify.runtime.process import run_command

ROOT = Path(__file__).parents[2]


def run(folder, script, *, timeout_s=20.0, env=None):
    env = env or {"PATH": os.environ["PATH"]}
    return run_command(["/bin/sh", "-c", script], env=env, cwd=folder, timeout_s=timeout_s, folder=folder)


def running(mark):
    """Pids whose command line holds `mark`, this process and its parents aside."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line and b"supervise" not in line:
                found.append(int(entry.name))
    return found


def gone(mark, *, within_s=8.0):
    until = time.monotonic() + within_s
    while running(mark) and time.monotonic() < until:
        time.sleep(0.05)
    return not running(mark)


class TestEnding:
    def test_status_output_and_time_come_back(self, tmp_path):
        done = run(tmp_path, "echo out; echo err >&2; sleep 0.2; exit 7")
        assert (done.rc, done.timed_out, done.leftover, done.error) == (7, False, (), None)
        assert (done.stdout.read_text(), done.stderr.read_text()) == ("out\n", "err\n")
        assert 0.2 <= done.wall_s < 2
        assert done.trouble() == "exited with 7"

    def test_a_signal_is_told_apart_from_an_exit(self, tmp_path):
        assert run(tmp_path, "kill -SEGV $$").trouble() == "was ended by signal 11"

    def test_a_program_that_does_not_exist_did_not_start(self, tmp_path):
        done = run_command([str(tmp_path / "none")], env={}, cwd=tmp_path, timeout_s=5, folder=tmp_path)
        assert done.rc is None
        assert "did not start (FileNotFoundError" in done.trouble()

    def test_only_the_named_environment_is_seen(self, tmp_path, monkeypatch):
        monkeypatch.setenv("E0_LEAKS", "1")
        done = run_command(["/usr/bin/env"], env={"E0_NAMED": "yes"}, cwd=tmp_path, timeout_s=5, folder=tmp_path)
        assert done.stdout.read_text() == "E0_NAMED=yes\n"


class TestTimeLimit:
    def test_may_count_from_the_last_output(self, tmp_path):
        """A slow command that goes on is not one that hangs."""
        script = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done; sleep {}"
        for rest, late in (("0", False), ("30", True)):
            argv = ["/bin/sh", "-c", script.format(rest)]
            env = {"PATH": os.environ["PATH"]}
            done = run_command(argv, env=env, cwd=tmp_path, timeout_s=1.2, folder=tmp_path, idle=True)
            assert done.timed_out is late
            assert 1.7 < done.wall_s < 8
        assert run(tmp_path, script.format("0"), timeout_s=1.2).timed_out


class TestNothingLeftBehind:
    def test_a_timeout_kills_children_that_ignore_the_request(self, tmp_path):
        mark = f"3{os.getpid()}1"
        done = run(tmp_path, f"trap '' TERM; sleep {mark} & while :; do sleep 0.1; done", timeout_s=0.3)
        assert done.timed_out
        assert gone(f"sleep\0{mark}")

    def test_a_background_process_is_killed_and_named(self, tmp_path):
        mark = f"3{os.getpid()}2"
        done = run(tmp_path, f"sleep {mark} & sleep 0.2")
        assert (done.rc, done.leftover) == (0, ("sleep",))
        assert gone(f"sleep\0{mark}")

    def test_a_daemon_in_a_session_of_its_own_does_not_escape(self, tmp_path):
        mark = f"3{os.getpid()}3"
        done = run(tmp_path, f"setsid sh -c 'setsid sleep {mark} & exit' & sleep 0.3")
        assert "sleep" in done.leftover
        assert gone(f"sleep\0{mark}")

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_ending_the_tool_ends_the_command_and_its_folder(self, tmp_path, number):
        mark, scratch = f"3{os.getpid()}{int(number)}4", tmp_path / "scratch"
        scratch.mkdir()
        tool = started(scratch, f"sleep {mark} & sleep {mark}", mark)
        tool.send_signal(number)
        _, said = tool.communicate(timeout=20)  # the supervisor shares its stderr, and is done when that is closed
        assert gone(f"sleep\0{mark}")
        assert not scratch.exists()
        assert b"BrokenPipe" not in said

    def test_a_folder_stays_where_the_tool_lives(self, tmp_path):
        done = run_command(["/bin/true"], env={}, cwd=tmp_path, timeout_s=5, folder=tmp_path, scratch=True)
        assert done.rc == 0
        assert tmp_path.exists()

    def test_killing_the_supervisor_ends_the_command(self, tmp_path):
        mark = f"3{os.getpid()}5"
        tool = started(tmp_path, f"exec sleep {mark}", mark)
        children = Path(f"/proc/{tool.pid}/task/{tool.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        assert tool.wait(20) == 0  # and the tool goes on
        assert gone(f"sleep\0{mark}")


def started(folder, script, mark):
    """A process that runs the script in a scratch folder, once the script is at its `sleep mark`."""
    code = (
        "import pathlib\nfrom edge0verify.runtime.process import run_command\n"
        f"here = pathlib.Path({str(folder)!r})\n"
        f"run_command(['/bin/sh', '-c', {script!r}], env={{'PATH': '/usr/bin:/bin'}}, "
        "cwd=here, timeout_s=60, folder=here, scratch=True)"
    )
    tool = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE)
    until = time.monotonic() + 15
    while not running(f"sleep\0{mark}") and time.monotonic() < until:
        time.sleep(0.02)
    assert running(f"sleep\0{mark}"), "the command never started"
    return tool
