"""The history only grows, and a kill loses at most the cell that was at work."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge0verify.nightly.history import FROZEN, SCHEMA, History, Result, Run
from edge0verify.records.errors import InputError

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from pathlib import Path
from edge0verify.nightly.history import History
from tests.nightly.test_history import a_run, a_result
with History(Path(sys.argv[1])) as history:
    for n in range(10**9):
        run = history.begin(a_run(), [(f"cell {i}", {"i": i}) for i in range(3)])
        print("run", run, flush=True)
        for i in range(3):
            history.add_result(run, a_result(f"cell {i}", verdict={"fill": "x" * 3000}))
            print("result", run, f"cell {i}", flush=True)
        history.finish(run, "PASS", 0)
        print("finished", run, flush=True)
"""


def a_run(**changes) -> Run:
    values = dict(run=0, started="2026-11-30T01:00:00+00:00", commit="a" * 40, dirty=False, binary_sha256="b", kernels_sha256="k",
                  config_sha256="c", config={"text": "x = 1"}, machine={"host": "h"})  # fmt: skip
    return Run(**{**values, **changes})


def a_result(cell="golden/g/cpu", **changes) -> Result:
    values = dict(cell=cell, status="PASS", exit_code=0, metrics={"equal_pct": 99.5}, golden="g1", digest="d", wall_s=1.5)
    return Result(**{**values, **changes})


class TestWhatIsKept:
    def test_comes_back_the_same(self, tmp_path):
        kept = a_result(
            status="FAIL", exit_code=1, reasons=("ä 'quoted'",), remarks=("n",), verdict={"layers": [1, None]}, base={"text": "t"}
        )
        with History(tmp_path / "h.db") as history:
            number = history.begin(a_run(dirty=True), [("golden/g/cpu", {"kind": "golden", "layers": None})])
            history.add_result(number, kept)
        with History(tmp_path / "h.db", create=False) as history:
            [run], [found] = history.runs(), history.results(number, verdicts=True)
            assert (run.run, run.dirty, run.status, run.machine) == (1, True, None, {"host": "h"})
            assert history.planned(1) == [("golden/g/cpu", {"kind": "golden", "layers": None})]
            for name in ("cell", "status", "reasons", "remarks", "metrics", "golden", "base", "digest", "wall_s", "verdict"):
                assert getattr(found, name) == getattr(kept, name)
            history.finish(1, "FAIL", 1)
            assert history.runs()[0].exit_code == 1

    def test_one_result_per_cell_and_nightly(self, tmp_path):
        with History(tmp_path / "h.db") as history:
            number = history.begin(a_run(), [])
            history.add_result(number, a_result())
            with pytest.raises(sqlite3.IntegrityError):
                history.add_result(number, a_result())

    @pytest.mark.parametrize("table", FROZEN)
    @pytest.mark.parametrize("statement", ["delete from {}", "update {} set rowid = rowid + 9"])
    def test_nothing_is_changed_or_removed(self, tmp_path, table, statement):
        with History(tmp_path / "h.db") as history:
            history.add_result(history.begin(a_run(), [("golden/g/cpu", {})]), a_result())
            history.finish(1, "PASS", 0)
        with sqlite3.connect(tmp_path / "h.db") as db, pytest.raises(sqlite3.IntegrityError, match="the history is append-only"):
            db.execute(statement.format(table))

    def test_another_file_is_refused(self, tmp_path):
        with pytest.raises(InputError, match="no such file"):
            History(tmp_path / "none.db", create=False)
        (tmp_path / "text.db").write_text("no database, though long enough to look like one " * 20)
        with pytest.raises(InputError, match="expected a history"):
            History(tmp_path / "text.db")
        with sqlite3.connect(tmp_path / "other.db") as db:
            db.execute("create table meta (key, value)")
            db.execute("insert into meta values ('schema', 'other/1')")
        with pytest.raises(InputError, match=f"expected {SCHEMA}, found other/1"):
            History(tmp_path / "other.db")


def test_a_kill_at_any_moment_loses_nothing_that_was_told(tmp_path, slow):
    chance, path = random.Random(66), tmp_path / "h.db"
    told: list[tuple[str, ...]] = []
    for _ in range(200 if slow else 12):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        first = process.stdout.readline()
        time.sleep(chance.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        told += [tuple(line.split(maxsplit=2)) for line in (first + rest).splitlines(keepends=True) if line.endswith("\n")]
        with History(path, create=False) as history:
            runs = {run.run: run for run in history.runs()}
            results = {(str(r.run), r.cell) for r in history.results()}
            assert {int(n) for kind, n, *_ in told if kind == "run"} <= runs.keys()
            assert {(n, cell.strip()) for kind, n, *cells in told if kind == "result" for cell in cells} <= results
            assert all(runs[int(n)].status == "PASS" for kind, n, *_ in told if kind == "finished")
            for number, run in runs.items():  # a finished nightly has all of its cells
                assert run.status is None or len(history.results(number)) == len(history.planned(number)) == 3
    assert len(told) > 24
