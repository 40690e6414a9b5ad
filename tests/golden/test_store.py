"""Nothing that was accepted is ever lost or changed without being noticed, whatever is killed when."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge0verify.golden.store import LOG, OBJECTS, Store
from edge0verify.golden.types import Accepted, Pruned, Recorded
from edge0verify.records.errors import InputError
from tests.golden.samples import recorded, small

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from pathlib import Path
from edge0verify.golden.store import Store
from tests.golden.samples import recorded, small
store, seed = Store(Path(sys.argv[1])), int(sys.argv[2])
for n in range(10**9):
    dump = small(Path(sys.argv[1]).parent / f"w{seed}.h5", seed + n)
    run = store.record("g", recorded(dump), dump=dump, tokens=None)
    print("recorded", run.n, run.dump, flush=True)
    done = store.accept("g", run, reason=f"step {n}", anchor=n % 5 == 0)
    print("accepted", done.n, done.recorded, flush=True)
"""


def put(store: Store, path: Path, seed=0, name="g", accept=True) -> Recorded:
    dump = small(path / "d.h5", seed)
    run = store.record(name, recorded(dump), dump=dump)
    if accept:
        store.accept(name, run, reason=f"seed {seed}")
    return run


class TestAcceptance:
    def test_the_first_accepted_run_is_the_anchor_and_stays_it(self, tmp_path):
        store = Store(tmp_path / "s")
        runs = [put(store, tmp_path, seed) for seed in range(4)]
        golden = store.open("g")
        assert (golden.current.n, golden.anchor.n, golden.since_anchor) == (runs[3].n, runs[0].n, 3)
        assert [a.reason for a in golden.accepted] == [f"seed {i}" for i in range(4)]

    def test_reanchoring_is_a_step_of_its_own(self, tmp_path):
        store = Store(tmp_path / "s")
        put(store, tmp_path, 0)
        run = put(store, tmp_path, 1, accept=False)
        store.accept("g", run, reason="a new start", anchor=True)
        assert (store.open("g").anchor.n, store.open("g").since_anchor) == (run.n, 0)

    @pytest.mark.parametrize("reason", ["", "   ", "\n\t"])
    def test_no_reason_no_golden(self, tmp_path, reason):
        store = Store(tmp_path / "s")
        run = put(store, tmp_path, accept=False)
        with pytest.raises(InputError, match="expected a reason"):
            store.accept("g", run, reason=reason)
        assert store.open("g").current is None
        assert store.open("g").candidate.n == run.n

    def test_the_same_bytes_are_kept_once(self, tmp_path):
        store = Store(tmp_path / "s")
        a, b = put(store, tmp_path, 7), put(store, tmp_path, 7)
        assert a.dump == b.dump
        assert len(list((tmp_path / "s/g" / OBJECTS).iterdir())) == 1

    @pytest.mark.parametrize("name", ["", "A", "../x", "a/b", ".hidden", "x" * 101])
    def test_a_name_that_is_no_name_is_refused(self, tmp_path, name):
        with pytest.raises(InputError, match="expected small letters"):
            Store(tmp_path).open(name)


class TestDamage:
    """Each changed or missing byte of what counts is named, never passed over."""

    @pytest.fixture
    def store(self, tmp_path):
        store = Store(tmp_path / "s")
        for seed in range(3):
            put(store, tmp_path, seed)
        return store

    @pytest.mark.parametrize(
        "damage",
        [
            lambda lines: [*lines[:1], *lines[2:]],
            lambda lines: [lines[1], lines[0], *lines[2:]],
            lambda lines: [lines[0], lines[1].replace(b"seed 0", b"seed 9"), *lines[2:]],
            lambda lines: [b"{}", *lines],
            lambda lines: [b"nonsense", *lines],
            lambda lines: lines[1:],
        ],
        ids=["removed", "swapped", "changed", "put in", "no JSON", "beheaded"],
    )
    def test_of_the_log(self, store, damage):
        log = store.folder / "g" / LOG
        log.write_bytes(b"\n".join(damage(log.read_bytes().splitlines())) + b"\n")
        with pytest.raises(InputError, match=r"log\.jsonl: line \d"):
            store.open("g")

    def test_of_an_object(self, store):
        golden = store.open("g")
        path = golden.folder / OBJECTS / golden.current.dump
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(InputError, match="damaged"), store.dump(golden, golden.current):
            pass
        path.unlink()
        with pytest.raises(InputError, match="expected an object"), store.dump(golden, golden.current):
            pass

    def test_half_a_line_is_no_event_and_is_gone_after_the_next(self, store, tmp_path):
        log = store.folder / "g" / LOG
        whole = log.read_bytes()
        log.write_bytes(whole + b'{"schema": "edge0verify.golden/1", "kind": "acc')
        assert len(store.open("g").accepted) == 3
        put(store, tmp_path, 9)
        assert len(store.open("g").accepted) == 4
        assert log.read_bytes().startswith(whole)

    def test_what_a_killed_writer_left_is_swept_and_nothing_else(self, store, tmp_path):
        objects = store.folder / "g" / OBJECTS
        known = {p.name for p in objects.iterdir()}
        (objects / ".x.h5.gz.123.partial").write_bytes(b"half")
        lost = objects / f"{'0' * 32}.h5.gz"
        lost.write_bytes(b"whole, and no line names it")
        os.utime(lost, (1, 1))
        assert lost.name in store.prune("g", keep=9)
        assert {p.name for p in objects.iterdir()} == known


class TestPrune:
    def test_golden_anchor_and_the_newest_stay(self, tmp_path):
        store = Store(tmp_path / "s")
        runs = [put(store, tmp_path, seed) for seed in range(6)]
        assert store.prune("g", keep=1, dry_run=True) == sorted(run.dump for run in runs[1:5])
        assert store.prune("g", keep=1) == sorted(run.dump for run in runs[1:5])
        golden = store.open("g")
        assert isinstance(golden.events[-1], Pruned)
        for run in (golden.current, golden.anchor):
            with store.dump(golden, run) as path:
                assert path.is_file()
        with pytest.raises(InputError, match="it was pruned"), store.dump(golden, golden.run(runs[2].n)):
            pass
        assert store.prune("g", keep=1) == []

    def test_the_log_keeps_every_reason(self, tmp_path):
        store = Store(tmp_path / "s")
        for seed in range(4):
            put(store, tmp_path, seed)
        store.prune("g", keep=0)
        assert [a.reason for a in store.open("g").accepted] == [f"seed {i}" for i in range(4)]


class TestKill:
    def test_a_kill_at_any_moment_loses_nothing_accepted(self, tmp_path, slow):
        """Each told line must be there afterwards, its dump whole; 200 kills in the long run."""
        chance, folder = random.Random(6), tmp_path / "s"
        told: list[tuple[str, ...]] = []
        for kill in range(200 if slow else 10):
            process = subprocess.Popen(
                [sys.executable, "-c", WRITER, str(folder), str(kill * 1000)], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            first = process.stdout.readline()
            time.sleep(chance.random() * 0.2)
            process.send_signal(signal.SIGKILL)
            rest, _ = process.communicate()
            lines = [line for line in (first + rest).splitlines(keepends=True) if line.endswith("\n")]
            told += [tuple(line.split()) for line in lines]
            _holds(Store(folder), told)
        assert sum(line[0] == "accepted" for line in told) >= (200 if slow else 10) / 3

    def test_two_writers_at_once_lose_nothing(self, tmp_path):
        folder = tmp_path / "s"
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(at)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
            for at in (0, 10**6)
        ]
        said = [[tuple(writer.stdout.readline().split()) for _ in range(8)] for writer in writers]
        for writer in writers:
            writer.kill()
            writer.communicate()
        _holds(Store(folder), [*said[0], *said[1]])


def _holds(store: Store, told: list[tuple[str, ...]]) -> None:
    golden = store.open("g")
    by_n = {event.n: event for event in golden.events}
    assert sorted(by_n) == list(range(1, len(by_n) + 1))
    for kind, n, what in told:
        event = by_n[int(n)]
        if kind == "recorded":
            assert isinstance(event, Recorded) and event.dump == what
        else:
            assert isinstance(event, Accepted) and event.recorded == int(what)
    for run in (golden.current, golden.anchor, golden.recorded[-1]):
        if run is not None:
            with store.dump(golden, run) as path:
                assert path.stat().st_size > 1000


def test_a_line_tells_what_it_is(tmp_path):
    store = Store(tmp_path / "s")
    put(store, tmp_path)
    first, second = (json.loads(line) for line in (tmp_path / "s/g" / LOG).read_text().splitlines())
    assert first["schema"] == "edge0verify.golden/1" and first["prev"] is None and first["kind"] == "recorded"
    assert second["kind"] == "accepted" and len(second["prev"]) == 32
