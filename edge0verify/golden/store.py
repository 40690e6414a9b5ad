"""The store of goldens: per golden one folder with an append-only log and immutable objects named by their content.

    STORE/NAME/log.jsonl            a line per event, each with the hash of the line before it
    STORE/NAME/objects/SHA.h5.gz    dumps;  SHA.i32 token ids

An object is complete before a line names it, and a line is on disk before anyone is told of it. So a kill at any moment leaves
what was accepted, at worst beside a file that no line names or half a line, which the next writer removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from edge0verify.golden.types import SCHEMA, Accepted, Confirmed, Event, Golden, Pruned, Recorded
from edge0verify.records.errors import InputError

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
LOG, OBJECTS, PARTIAL = "log.jsonl", "objects", ".partial"
STALE_S = 3600.0
"""An object that no line names is a killed writer's once it is this old."""


class Store:
    """Goldens below one folder."""

    def __init__(self, folder: str | os.PathLike) -> None:
        self.folder = Path(folder)

    # ---- reading -----------------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Goldens of which something was recorded, in order. A store that does not exist is empty."""
        return sorted(log.parent.name for log in self.folder.glob(f"*/{LOG}") if log.stat().st_size)

    def open(self, name: str) -> Golden:
        """A golden by name; InputError where there is none, or where its log was changed."""
        log = self.folder / check_name(name) / LOG
        try:
            text = log.read_bytes()
        except FileNotFoundError:
            text = b""
        except OSError as wrong:
            raise InputError(f"{log}: expected a log that can be read, found: {wrong.strerror}") from None
        events = _events(text, log)
        if not events:
            near = _nearest(name, self.names())
            raise InputError(
                f"{self.folder}: golden {name}: expected in the store, found none" + (f"; did you mean {near}?" if near else "")
            )
        return Golden(name=name, folder=log.parent, events=events)

    def has(self, name: str) -> bool:
        log = self.folder / check_name(name) / LOG
        return log.is_file() and bool(log.stat().st_size) and bool(_events(log.read_bytes(), log))

    def tokens(self, golden: Golden, run: Recorded) -> np.ndarray:
        """int32 [n]: the committed input of a run. InputError where it was changed or is gone."""
        return np.frombuffer(_content(golden, run.inputs.tokens), "<i4").astype(np.int32)

    @contextlib.contextmanager
    def dump(self, golden: Golden, run: Recorded) -> Iterator[Path]:
        """The dump of a run as a file, for as long as the context lasts. InputError where it was changed or is gone."""
        data = _content(golden, run.dump)
        with tempfile.TemporaryDirectory(prefix="edge0verify-") as folder:
            path = Path(folder) / f"{golden.name}.h5"
            try:
                path.write_bytes(gzip.decompress(data))
            except (OSError, EOFError) as wrong:
                raise InputError(f"{object_path(golden, run.dump)}: expected a gzip file, found: {wrong}") from None
            yield path

    # ---- writing -----------------------------------------------------------------------------------------------------------

    def record(self, name: str, run: Recorded, *, dump: Path, tokens: np.ndarray | None = None) -> Recorded:
        """Add a run (its n, time, dump, bytes and token object are filled in). When this returns it is on disk."""
        with self._writing(name, create=True) as log:
            inputs = run.inputs
            if tokens is not None:
                ids = np.ascontiguousarray(tokens, "<i4")
                inputs = replace(inputs, tokens=_keep(log.objects, ids.tobytes(), "i32"), count=len(ids))
            data = gzip.compress(dump.read_bytes(), 9, mtime=0)
            kept = _keep(log.objects, data, "h5.gz")
            made = replace(run, n=log.next, time=_now(), dump=kept, bytes=len(data), inputs=inputs)
            log.append(made)
            return made

    def accept(self, name: str, run: Recorded, *, reason: str, anchor: bool = False, commit: str | None = None) -> Accepted:
        """Make a recorded run the golden; the first one is the anchor too. InputError without a reason, or for an unknown run."""
        reason = " ".join(reason.split())
        if not reason:
            raise InputError(f"golden {name}: expected a reason to accept it, found none")
        with self._writing(name) as log:
            golden = Golden(name=name, folder=log.folder, events=log.events)
            if run.n not in {r.n for r in golden.recorded}:
                raise InputError(f"golden {name}: expected run {run.n} in the log, found none")
            _content(golden, run.dump)
            made = Accepted(
                n=log.next, time=_now(), recorded=run.n, reason=reason, anchor=anchor or not golden.accepted, commit=commit
            )
            log.append(made)
            return made

    def confirm(self, name: str, *, source: str, reason: str, commit: str | None = None) -> Confirmed:
        """Write down that kernel sources of sha256 `source` give the golden's bits. InputError without a reason or a golden."""
        reason = " ".join(reason.split())
        if not reason:
            raise InputError(f"golden {name}: expected a reason to confirm it, found none")
        with self._writing(name) as log:
            golden = Golden(name=name, folder=log.folder, events=log.events)
            if golden.current is None:
                raise InputError(f"golden {name}: expected an accepted run to confirm, found none")
            made = Confirmed(
                n=log.next, time=_now(), recorded=golden.current.n, kernel_source_sha256=source, reason=reason, commit=commit
            )
            log.append(made)
            return made

    def prune(self, name: str, *, keep: int, dry_run: bool = False) -> list[str]:
        """Remove dumps that are neither current, nor the anchor, nor among the `keep` newest, and what killed writers left.

        Returns the objects. The log keeps what it said of them.
        """
        with self._writing(name) as log:
            golden = Golden(name=name, folder=log.folder, events=log.events)
            gone = {sha for e in golden.events if isinstance(e, Pruned) for sha in e.objects}
            runs = [run for run in (golden.current, golden.anchor, *golden.recorded[-keep:][:keep]) if run is not None]
            wanted = {sha for run in runs for sha in (run.dump, run.inputs.tokens)}
            named = {sha for run in golden.recorded for sha in (run.dump, run.inputs.tokens) if sha}
            old = sorted(named - wanted - gone)
            lost = sorted(p.name for p in log.objects.glob("*") if p.name not in named and _age(p) > STALE_S)
            if dry_run:
                return [*old, *lost]
            if old:
                log.append(Pruned(n=log.next, time=_now(), objects=tuple(old)))
            for sha in (*old, *gone, *lost):  # those of before too: a kill may have come between the line and the removal
                (log.objects / sha).unlink(missing_ok=True)
            return [*old, *lost]

    @contextlib.contextmanager
    def _writing(self, name: str, *, create: bool = False) -> Iterator[_Log]:
        folder = self.folder / check_name(name)
        if not create:
            self.open(name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / OBJECTS).mkdir(exist_ok=True)
            with open(folder / LOG, "a+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield _Log(folder, file)
        except OSError as wrong:
            raise InputError(f"{folder}: expected a store that can be written, found: {wrong.strerror or wrong}") from wrong


class _Log:
    """The log while it is locked."""

    def __init__(self, folder: Path, file) -> None:
        self.folder, self.objects, self._file = folder, folder / OBJECTS, file
        file.seek(0)
        text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):  # a killed writer's half line, of which nobody was told
            file.truncate(len(whole))
        self.events = _events(whole, folder / LOG)
        self._last = _hash(whole.splitlines()[-1]) if whole else None
        for path in self.objects.glob(f".*{PARTIAL}"):
            path.unlink(missing_ok=True)  # the lock is ours, so no writer is at work on it

    @property
    def next(self) -> int:
        return len(self.events) + 1

    def append(self, event: Event) -> None:
        line = json.dumps({"schema": SCHEMA, "prev": self._last, **event.to_json()}, sort_keys=True, allow_nan=False).encode()
        if os.write(self._file.fileno(), line + b"\n") != len(line) + 1:
            raise InputError(f"{self.folder / LOG}: expected room for a line of {len(line)} bytes, found the disk full")
        os.fsync(self._file.fileno())
        for folder in (self.objects, self.folder, self.folder.parent, self.folder.parent.parent):
            _sync(folder)
        self.events, self._last = (*self.events, event), _hash(line)


def check_name(name: str) -> str:
    """The name itself; InputError where it is none."""
    if not NAME.fullmatch(name):
        raise InputError(f"golden {name!r}: expected small letters, digits, '.', '_', '-' (100 at most)")
    return name


def object_path(golden: Golden, sha: str) -> Path:
    return golden.folder / OBJECTS / sha


def _events(text: bytes, log: Path) -> tuple[Event, ...]:
    """Events of whole lines. InputError where a line was changed, removed or put in."""
    events: list[Event] = []
    last: str | None = None
    for n, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), 1):
        where = f"{log}: line {n}"
        try:
            data = json.loads(line)
        except ValueError as wrong:
            raise InputError(f"{where}: expected JSON, found: {wrong}") from None
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise InputError(
                f"{where}: schema: expected {SCHEMA}, found {data.get('schema') if isinstance(data, dict) else data!r}"
            )
        if data.pop("prev", "") != last or data.get("n") != n:
            raise InputError(f"{where}: expected the line that follows the one before it, found another: the log was changed")
        last = _hash(line)
        del data["schema"]
        events.append(_event(data, where))
    return tuple(events)


def _event(data: dict, where: str) -> Event:
    try:
        kind = data["kind"]
        if kind == "recorded":
            return Recorded.from_json(data, where)
        known = {key: value for key, value in data.items() if key != "kind"}
        if kind == "accepted":
            return Accepted(**known)
        if kind == "confirmed":
            return Confirmed(**known)
        if kind == "pruned":
            return Pruned(**{**known, "objects": tuple(known["objects"])})
    except (KeyError, TypeError, AttributeError) as wrong:
        raise InputError(f"{where}: expected the fields of {SCHEMA}, found {wrong}") from None
    raise InputError(f"{where}: kind: expected recorded, accepted, confirmed or pruned, found {kind!r}")


def _content(golden: Golden, name: str | None) -> bytes:
    """The bytes of an object, held against its name."""
    if name is None:
        raise InputError(
            f"golden {golden.name}: expected committed inputs, found a dump alone: hold another dump against it with --dump"
        )
    path = object_path(golden, name)
    try:
        data = path.read_bytes()
    except OSError as wrong:
        gone = any(name in e.objects for e in golden.events if isinstance(e, Pruned))
        raise InputError(
            f"{path}: expected an object of the golden, found: {'it was pruned' if gone else wrong.strerror}"
        ) from None
    found = _hash(data)
    if found != name.partition(".")[0]:
        raise InputError(f"{path}: damaged: expected sha256 {name[:16]}, found {found[:16]}")
    return data


def _keep(objects: Path, data: bytes, suffix: str) -> str:
    """Put an object in place, whole or not at all; its name."""
    name = f"{_hash(data)}.{suffix}"
    target = objects / name
    if target.is_file() and _hash(target.read_bytes()) == _hash(data):
        os.utime(target)
        return name
    partial = objects / f".{name}.{os.getpid()}{PARTIAL}"
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, target)
    return name


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _nearest(word: str, known: list[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(word, known, n=1)), None)


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the files themselves are synced
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
