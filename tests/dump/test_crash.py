"""kill -9 while dumps are written: every file under a whole name is intact, no other file is accepted.

EDGE0_KILLS sets the number of kills (default 12; the acceptance run uses 200).
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from edge0verify.dump.reader import open_dump
from edge0verify.records.errors import InputError

from . import samples
from .test_writer import alike

KILLS = int(os.environ.get("EDGE0_KILLS", "12"))


def kill_once(folder: Path, after: float) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.dump.crash_child", str(folder)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert child.stdout.readline() == b"ready\n"
    time.sleep(after)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()


def holds_a_whole_run(path: Path) -> bool:
    """False for a file that is refused; one that is read must hold every value of its run."""
    try:
        with open_dump(path) as dump:
            values = samples.tensors(np.random.default_rng(int(path.stem.split("-")[-1])), 250)
            assert all(alike(value, dump.read(*place)) for place, value in values.items())
            return True
    except InputError as wrong:
        assert "\n" not in str(wrong)
        return False


def test_no_kill_leaves_a_file_that_reads_as_complete(tmp_path):
    rng = random.Random(20)
    whole = partial = last_moment = 0
    for number in range(KILLS):
        folder = tmp_path / str(number)
        folder.mkdir()
        kill_once(folder, rng.uniform(0.0, 0.25))
        for path in list(folder.iterdir()):
            if path.suffix == ".partial":
                partial += 1
                with pytest.raises(InputError, match="unfinished"):
                    open_dump(path)
                if holds_a_whole_run(path.rename(folder / f"renamed-{path.name.split('.')[0]}.h5")):
                    last_moment += 1                      # killed after the last byte and before the file got its name
                continue
            whole += 1
            with open_dump(path) as dump:
                dump.verify()
            if whole % 10 == 1:
                assert holds_a_whole_run(path)
        for path in folder.iterdir():
            path.unlink()
    print(f"{KILLS} kills: {whole} complete files intact, {partial} partial files refused by name, {last_moment} of them complete")
    assert partial > KILLS // 3 and whole > 0 and last_moment < partial


def test_a_stale_partial_file_does_not_stop_the_next_run(tmp_path):
    kill_once(tmp_path, 0.02)
    (tmp_path / "0.h5.partial").touch()
    (tmp_path / "0.h5").unlink(missing_ok=True)
    samples.make(tmp_path / "0.h5")
    with open_dump(tmp_path / "0.h5") as dump:
        assert dump.verify()
    assert not (tmp_path / "0.h5.partial").exists()
