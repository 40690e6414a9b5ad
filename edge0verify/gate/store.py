"""The store of gate records: a folder to which files are only ever added.

STORE/LEG/20261009T180037.250Z-0ad9897308-<first 12 of the content's sha256>.json, written whole, then linked into place:
a name never changes its content, a rerun gets a name of its own, and a kill at any moment leaves a complete record or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from edge0verify.gate.record import GateRecord, from_json
from edge0verify.records.errors import InputError

PARTIAL = ".partial"
STALE_PARTIAL_S = 3600.0
NAME = re.compile(r"\d{8}T\d{6}\.\d{3}Z-([0-9a-f]{7,10}|unknown)-[0-9a-f]{12}\.json")


@dataclass(frozen=True)
class Stored:
    """A record and the file that holds it."""

    record: GateRecord
    path: Path


@dataclass(frozen=True)
class Store:
    """Append-only records below one folder."""

    folder: Path

    def append(self, record: GateRecord) -> tuple[Path, bool]:
        """Add a record; returns (its file, whether it is new). When this returns the record is on disk.

        The same record again is not new; any other record, also of the same leg and commit, stands beside the first.
        """
        content = record.canonical()
        target = self.folder / record.leg / file_name(record)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                return target, False
            _sweep(target.parent)
            self._publish(content, target)
        except OSError as error:
            raise InputError(f"{target}: expected a store that can be written, found: {error.strerror or error}") from error
        return target, True

    def _publish(self, content: bytes, target: Path) -> None:
        partial = target.with_name(f"{target.name}.{os.getpid()}{PARTIAL}")
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            # A link fails where the name exists, a rename would replace it: nothing kept is ever overwritten.
            with contextlib.suppress(FileExistsError):
                os.link(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        for folder in (target.parent, self.folder, self.folder.parent):
            _sync_folder(folder)

    def records(self, leg: str | None = None) -> tuple[Stored, ...]:
        """All records, or those of one leg, in order of time. A damaged file is an InputError that names it.

        A store that does not exist is empty. Unfinished files of a killed writer are no records and are passed over.
        """
        found = []
        for path in sorted(self.folder.glob("*/*.json" if leg is None else f"{leg}/*.json")):
            found.append(Stored(read_file(path), path))
        return tuple(sorted(found, key=lambda stored: (stored.record.recorded_at, stored.path.name)))


def file_name(record: GateRecord) -> str:
    """The name that a record's time, commit and content give."""
    moment = datetime.fromtimestamp(record.recorded_at, UTC)
    stamp = moment.strftime("%Y%m%dT%H%M%S.") + f"{moment.microsecond // 1000:03d}Z"
    return f"{stamp}-{(record.commit or 'unknown')[:10]}-{record.sha256()[:12]}.json"


def read_file(path: Path) -> GateRecord:
    """One stored record; its name and folder must be those its content gives."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: expected a record that can be read, found: {error.strerror}") from error
    if not NAME.fullmatch(path.name):
        raise InputError(f"{path}: expected a name such as 20261009T180037.250Z-0ad9897308-0123456789ab.json in a store of records")
    found = hashlib.sha256(content).hexdigest()[:12]
    if found != path.stem[-12:]:
        raise InputError(
            f"{path}: content: expected sha256 {path.stem[-12:]}..., found {found}...: the record was changed or cut off"
        )
    try:
        data = json.loads(content)
    except ValueError as error:
        raise InputError(f"{path}: expected JSON, found: {error}") from error
    record = from_json(data, where=str(path))
    if record.leg != path.parent.name or file_name(record) != path.name:
        raise InputError(f"{path}: expected {record.leg}/{file_name(record)} for this content")
    return record


def _sweep(folder: Path) -> None:
    """Remove what killed writers left, once it is old enough not to be a writer at work."""
    for path in folder.glob(f"*{PARTIAL}"):
        try:
            if time.time() - path.stat().st_mtime > STALE_PARTIAL_S:
                path.unlink()
        except OSError:
            continue


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        # Some file systems cannot sync a folder; the file itself is synced.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
