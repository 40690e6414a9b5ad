"""A nightly that is killed goes on where it stopped, and two never run in one folder."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from edge0verify.nightly import run as nightly
from edge0verify.nightly.history import History
from edge0verify.records.errors import InputError
from tests.nightly.samples import PAIR, folder, go, golden, results_of

ROOT = Path(__file__).parents[2]


class TestKilledAndResumed:
    COMMAND = """
import sys
from pathlib import Path
from edge0verify.nightly.config import load
from edge0verify.nightly.run import run
sys.exit(run(load(Path(sys.argv[1])), commit='c' * 40, dirty=False).exit_code)
"""

    def start(self, config):
        return subprocess.Popen([sys.executable, "-c", self.COMMAND, str(config.path)], cwd=ROOT, stdout=subprocess.DEVNULL)

    def test_what_was_done_is_not_done_again(self, config, tmp_path):
        asked = config(golden("right"), PAIR, PAIR.replace('"D"', '"U"'))
        process = self.start(asked)
        path = tmp_path / "nightly/history.db"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (path.is_file() and results_of(path)):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = results_of(path)
        assert 1 <= len(before) < 3
        night = go(asked)
        assert (night.run.run, night.resumed, night.exit_code) == (1, len(before), 0)
        assert results_of(path)[: len(before)] == before
        assert [r.cell for r in night.results] == [c.name for c in asked.cells]
        assert len(ElementTree.parse(night.folder / "junit.xml").getroot().findall(".//testcase")) == 3

    def test_another_commit_or_plan_begins_anew(self, config, tmp_path):
        asked = config(golden("right"))
        with History(folder(tmp_path) / "history.db") as history:
            this = nightly.Run(run=0, started="t", commit="c" * 40, dirty=False, binary_sha256="x", kernels_sha256="k",
                               config_sha256=asked.sha256)  # fmt: skip
            history.begin(this, [(c.name, c.spec) for c in asked.cells])
        assert (go(asked).run.run, go(asked).run.run) == (2, 3)

    def test_kills_at_random_moments(self, config, tmp_path, slow):
        """The history opens after each, no result that was there is gone, and in the end the nightly comes to its end."""
        asked = config(golden("right"), PAIR)
        path, chance = folder(tmp_path) / "history.db", random.Random(5)
        known: list = []
        for _ in range(200 if slow else 4):
            process = self.start(asked)
            time.sleep(0.3 + chance.random() * 2.5)
            process.send_signal(signal.SIGKILL)
            process.wait()
            if path.is_file():
                now = results_of(path)
                assert now[: len(known)] == known
                known = now
        assert go(asked).exit_code == 0

    def test_a_second_nightly_is_locked_out(self, config):
        asked = config(golden("right"))
        with (
            nightly._locked(folder(asked.path.parent) / "lock"),
            pytest.raises(InputError, match=f"no other nightly .*process {os.getpid()}"),
        ):
            go(asked)
        assert go(asked).exit_code == 0
