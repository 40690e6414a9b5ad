"""Records are only ever added, and a kill at any moment loses nothing that was accepted."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge0verify.gate.store import PARTIAL, Store
from edge0verify.records.errors import InputError
from tests.gate.samples import record

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("EDGE0VERIFY_KILLS", "15"))
"""EDGE0VERIFY_KILLS=200 is the long run."""

WRITER = """
import sys
from pathlib import Path
from edge0verify.gate.store import Store
from tests.gate.samples import record
store = Store(Path(sys.argv[1]))
for n in range(int(sys.argv[2]), 10**9):
    path, new = store.append(record(recorded_at=1000.0 + n, metrics={"n": n}, configuration={"fill": "x" * 200_000}))
    print(path, flush=True)
"""


class TestAppend:
    def test_what_was_added_comes_back_the_same(self, tmp_path):
        kept = record(metrics={"tok_s": 20.5, "n": 3}, dirty=("ä b",), statistics={"a": [1, {"b": None}]}, remarks=("r",))
        path, new = Store(tmp_path).append(kept)
        assert new
        [found] = Store(tmp_path).records()
        assert found.record.canonical() == kept.canonical()
        assert found.path == path

    def test_a_rerun_of_one_leg_and_commit_on_one_day_stands_beside_the_first(self, tmp_path):
        store = Store(tmp_path)
        first, _ = store.append(record(status="FAIL"))
        second, new = store.append(record(status="PASS"))
        assert new
        assert first != second
        assert sorted(stored.record.status for stored in store.records()) == ["FAIL", "PASS"]

    def test_the_same_record_twice_is_kept_once(self, tmp_path):
        store = Store(tmp_path)
        store.append(record())
        assert store.append(record())[1] is False
        assert len(store.records()) == 1

    def test_records_come_in_order_of_time(self, tmp_path):
        store = Store(tmp_path)
        for moment in (30.0, 10.0, 20.5, 20.25):
            store.append(record(recorded_at=moment))
        assert [stored.record.recorded_at for stored in store.records()] == [10.0, 20.25, 20.5, 30.0]

    def test_a_store_that_does_not_exist_is_empty(self, tmp_path):
        assert Store(tmp_path / "none").records() == ()

    def test_a_store_that_cannot_be_written_is_an_input_error(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="expected a store that can be written"):
            Store(tmp_path / "file").append(record())

    def test_two_writers_at_once_lose_nothing(self, tmp_path):
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(start)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
            for start in (0, 500_000)
        ]
        said = [[writer.stdout.readline().strip() for _ in range(10)] for writer in writers]
        for writer in writers:
            writer.kill()
            writer.communicate()
        names = {str(stored.path) for stored in Store(tmp_path).records()}
        assert set(said[0]) | set(said[1]) <= names


class TestDamage:
    @pytest.mark.parametrize(
        "damage", [lambda b: b[:-9], lambda b: b.replace(b"PASS", b"FAIL"), lambda b: b"", lambda b: b + b"\n"]
    )
    def test_a_changed_record_is_refused_by_name(self, tmp_path, damage):
        path, _ = Store(tmp_path).append(record())
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(InputError, match=f"{path.name}: content: expected sha256"):
            Store(tmp_path).records()

    def test_a_record_moved_to_another_leg_is_refused(self, tmp_path):
        path, _ = Store(tmp_path).append(record())
        (tmp_path / "other").mkdir()
        path.rename(tmp_path / "other" / path.name)
        with pytest.raises(InputError, match="for this content"):
            Store(tmp_path).records()

    def test_a_file_of_somebody_else_is_refused(self, tmp_path):
        (tmp_path / "decode").mkdir()
        (tmp_path / "decode" / "notes.json").write_text("{}")
        with pytest.raises(InputError, match="expected a name such as"):
            Store(tmp_path).records()

    def test_an_unfinished_file_is_no_record_and_is_swept_once_old(self, tmp_path):
        store = Store(tmp_path)
        store.append(record(recorded_at=1.0))
        young, old = (tmp_path / "decode" / f"{name}{PARTIAL}" for name in ("young", "old"))
        young.write_text("{")
        old.write_text("{")
        os.utime(old, (1, 1))
        store.append(record(recorded_at=2.0))
        assert len(store.records()) == 2
        assert (young.exists(), old.exists()) == (True, False)


class TestKill:
    def test_a_kill_at_any_moment_loses_no_accepted_record(self, tmp_path):
        chance, start = random.Random(20261130), 0
        accepted: set[str] = set()
        for _ in range(KILLS):
            writer = subprocess.Popen(
                [sys.executable, "-c", WRITER, str(tmp_path), str(start)], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            accepted.add(writer.stdout.readline().strip())
            time.sleep(chance.random() * 0.03)
            writer.send_signal(signal.SIGKILL)
            accepted.update(line for line in writer.communicate()[0].split("\n")[:-1])
            start += 1000
        found = Store(tmp_path).records()
        assert accepted - {""} <= {str(stored.path) for stored in found}
        assert len(accepted) >= KILLS
        unfinished = len(list(tmp_path.glob(f"*/*{PARTIAL}")))
        print(f"{KILLS} kills, {len(accepted)} accepted, {len(found)} found, {unfinished} unfinished files passed over")
