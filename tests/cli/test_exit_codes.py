"""Exit codes of what is no verdict: nothing that goes wrong ends with 1, which says FAIL, and each is said in one line."""

import os
import signal
import subprocess
import sys
import time

import pytest

from edge0verify.cli import main
from edge0verify.cli.main import run

COMMAND = [sys.executable, "-m", "edge0verify.cli.main"]
SHORT = ["compare", "--stage", "D", "--a", "mmq", "--b", "w11", "--prompt", "code", "--layer", "0", "--threads", "1"]


def one_line(text: str) -> str:
    assert text.count("\n") == 1 and text.startswith("edge0verify: "), text
    return text


class TestOutput:
    @pytest.mark.parametrize("words", [["list", "variants"], ["--help"], ["compare", "--help"], [*SHORT, "--json", "-"]])
    def test_a_closed_pipe_is_no_verdict(self, words):
        piped = '"$@" | (exec <&-; true); exit ${PIPESTATUS[0]}'
        made = subprocess.run(["bash", "-c", piped, "bash", *COMMAND, *words], capture_output=True, text=True)
        assert made.returncode == 70 and not made.stderr

    def test_a_full_disk_behind_standard_output(self):
        with open("/dev/full", "w") as full:
            made = subprocess.run([*COMMAND, "list", "variants"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert made.returncode == 2 and "No space left" in one_line(made.stderr)

    def test_nobody_reads_the_error(self):
        with open("/dev/full", "w") as full:
            assert subprocess.run([*COMMAND, "show", "none.h5"], stderr=full).returncode == 2

    def test_numbers_that_are_no_numbers_give_no_warnings(self, monkeypatch, capsys):
        def strange():
            import numpy as np

            return int(np.isnan(np.float32(np.inf) - np.float32(np.inf)))

        monkeypatch.setattr(main.cli, "invoke", lambda ctx: strange() and 3)
        assert run(["list", "variants"]) == 3 and not capsys.readouterr().err


class TestNotOne:
    @pytest.mark.parametrize("words", [[], ["list"], ["golden"]])
    def test_a_command_that_is_missing(self, words, capsys):
        assert run(words) == 2
        assert "expected a command, one of" in one_line(capsys.readouterr().err)

    @pytest.mark.parametrize("error", [ValueError("two\nlines"), MemoryError(), KeyError("x"), OSError(5, "Input/output error")])
    def test_an_exception(self, error, monkeypatch, capsys):
        def invoke(ctx):
            raise error

        monkeypatch.setattr(main.cli, "invoke", invoke)
        assert run(["list", "variants"]) == 70
        assert type(error).__name__ in one_line(capsys.readouterr().err)

    def test_interrupted(self, tmp_path):
        work = subprocess.Popen([*COMMAND, "run", "--prompt", "long", "-o", "new/x.h5", "--threads", "1"], cwd=tmp_path,
                                stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("new/*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        # Python drops an interrupt that arrives inside a finaliser or a library's callback: press again, as a person would.
        while work.poll() is None and time.monotonic() < deadline:
            work.send_signal(signal.SIGINT)
            time.sleep(0.3)
        _, said = work.communicate(timeout=60)
        assert work.returncode == 130 and "interrupted" in one_line(said)
        assert not list(tmp_path.iterdir())


class TestTargets:
    """Where --json is to be written."""

    @pytest.mark.parametrize("target", ["", "folder", "folder/", "none/x.json", "file/x.json"])
    def test_refused_before_the_work(self, target, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "folder").mkdir()
        (tmp_path / "file").write_text("")
        assert run([*SHORT, "--json", target]) == 2
        found = capsys.readouterr()
        assert "expected a file that can be written" in one_line(found.err) and not found.out

    def test_a_device_is_written_into_and_stays(self, capsys):
        assert run([*SHORT, "--json", "/dev/null"]) == 0
        assert not os.path.isfile("/dev/null")

    def test_a_link_is_followed(self, tmp_path, capsys):
        (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
        assert run([*SHORT, "--json", str(tmp_path / "link.json")]) == 0
        assert (tmp_path / "link.json").is_symlink() and (tmp_path / "real.json").read_text().startswith("{")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "real.json"]

    def test_a_folder_made_for_nothing_goes_again(self, tmp_path, capsys):
        assert run(["run", "--prompt", "code", "--level", "bogus", "-o", str(tmp_path / "a" / "b" / "x.h5")]) == 2
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [["run", "-o", "x.h5"], SHORT[:7]])
def test_two_prompts(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.txt").write_text("hello")
    assert run([*command, "--prompt", "code", "-f", "p.txt"]) == 2
    assert "found both" in one_line(capsys.readouterr().err)
