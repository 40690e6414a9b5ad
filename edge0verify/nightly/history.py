"""The history of nightlies: one SQLite file to which rows are only ever added (schema `edge0verify.nightly/1`).

Nothing is changed or removed: triggers refuse it. A row is on disk when `add_result` returns; a kill loses at most the cell that
was at work. Tables:

    runs      one per nightly: run, started, commit_sha, dirty, binary_sha256, kernels_sha256, config_sha256, config, machine
    planned   its cells in order: run, position, cell, spec
    results   one per cell that ended: see `Result`
    finished  one per nightly that came to its end: run, time, status, exit_code
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edge0verify.records.errors import InputError

SCHEMA = "edge0verify.nightly/1"
TABLES = """
create table meta (key text primary key, value text not null);
create table runs (run integer primary key, started text not null, commit_sha text, dirty integer, binary_sha256 text not null,
  kernels_sha256 text not null, config_sha256 text not null, config text not null, machine text not null);
create table planned (run integer not null references runs, position integer not null, cell text not null, spec text not null,
  primary key (run, cell));
create table results (id integer primary key, run integer not null references runs, cell text not null, time text not null,
  wall_s real, status text not null, exit_code integer not null, reasons text not null, remarks text not null,
  metrics text not null,
  golden text, base text, dump text, digest text, verdict blob, unique (run, cell));
create table finished (run integer primary key references runs, time text not null, status text not null,
  exit_code integer not null);
create index results_by_cell on results (cell, run);
"""
FROZEN = ("meta", "runs", "planned", "results", "finished")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One nightly."""

    run: int
    started: str
    commit: str | None
    dirty: bool | None
    binary_sha256: str
    kernels_sha256: str
    config_sha256: str
    config: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    status: str | None = None
    """None until it came to its end."""
    exit_code: int | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one cell ended. status: PASS, FAIL, INCONCLUSIVE, INPUT (exit 2) or INTERNAL (70)."""

    cell: str
    status: str
    exit_code: int
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    golden: str | None = None
    """Object of the golden that it was held against."""
    base: Mapping[str, Any] | None = None
    """What the base commit says to a failing cell: {commit, status, source, not_this_change, text}."""
    dump: str | None = None
    digest: str | None = None
    """sha256 over the entries of the verdict: the same commit must give the same."""
    verdict: Mapping[str, Any] | None = None
    wall_s: float | None = None
    time: str = ""
    run: int = 0

    @property
    def not_this_change(self) -> bool:
        return bool(self.base and self.base.get("not_this_change"))

    def to_json(self) -> dict[str, Any]:
        """Without the verdict, as in the JSON lines."""
        names = (
            "run",
            "cell",
            "time",
            "wall_s",
            "status",
            "exit_code",
            "reasons",
            "remarks",
            "metrics",
            "golden",
            "base",
            "dump",
            "digest",
        )
        data = {name: getattr(self, name) for name in names}
        return {
            **data,
            "reasons": list(self.reasons),
            "remarks": list(self.remarks),
            "metrics": dict(self.metrics),
            "not_this_change": self.not_this_change,
        }


class History:
    """An open history; a context manager."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        """InputError where the file is not a history, or is not there and `create` is not set."""
        self.path = path
        if not create and not path.is_file():
            raise InputError(f"{path}: expected a history of nightlies, found no such file")
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=30)
            self._db.execute("pragma foreign_keys = on")
            self._db.execute("pragma synchronous = full")
            self._db.execute("begin immediate" if create else "begin")
            names = {name for (name,) in self._db.execute("select name from sqlite_master where type = 'table'")}
            if not names and create:
                self._create()
            found = (
                self._db.execute("select value from meta where key = 'schema'").fetchone() if "meta" in names or create else None
            )
            self._db.execute("commit")
        except sqlite3.Error as wrong:
            raise InputError(f"{path}: expected a history of nightlies, found: {wrong}") from None
        if found != (SCHEMA,):
            self._db.close()
            raise InputError(f"{path}: schema: expected {SCHEMA}, found {found[0] if found else 'none'}")

    def _create(self) -> None:
        for statement in TABLES.split(";"):
            if statement.strip():
                self._db.execute(statement)
        self._db.execute("insert into meta values ('schema', ?)", (SCHEMA,))
        for table in FROZEN:
            for event in ("update", "delete"):
                self._db.execute(
                    f"create trigger {table}_{event} before {event} on {table} "
                    "begin select raise(abort, 'the history is append-only'); end"
                )

    # ---- adding ------------------------------------------------------------------------------------------------------------

    def begin(self, run: Run, cells: Sequence[tuple[str, Mapping[str, Any]]]) -> int:
        """Add a nightly and its plan; its number."""
        db = self._db
        db.execute("begin immediate")
        try:
            columns = (
                run.started,
                run.commit,
                None if run.dirty is None else int(run.dirty),
                run.binary_sha256,
                run.kernels_sha256,
                run.config_sha256,
                _text(run.config),
                _text(run.machine),
            )
            number = db.execute(
                "insert into runs (started, commit_sha, dirty, binary_sha256, kernels_sha256, config_sha256, config, machine) "
                "values (?, ?, ?, ?, ?, ?, ?, ?)",
                columns,
            ).lastrowid
            db.executemany(
                "insert into planned values (?, ?, ?, ?)", [(number, i, name, _text(s)) for i, (name, s) in enumerate(cells)]
            )
            db.execute("commit")
        except BaseException:
            db.execute("rollback")
            raise
        return number

    def add_result(self, run: int, result: Result) -> None:
        """Add how a cell of nightly `run` ended."""
        verdict = None if result.verdict is None else zlib.compress(_text(result.verdict).encode(), 6)
        self._db.execute(
            "insert into results (run, cell, time, wall_s, status, exit_code, reasons, remarks, metrics, golden, base, dump, "
            "digest, verdict) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                run,
                result.cell,
                result.time or now(),
                result.wall_s,
                result.status,
                result.exit_code,
                _text(list(result.reasons)),
                _text(list(result.remarks)),
                _text(result.metrics),
                result.golden,
                None if result.base is None else _text(result.base),
                result.dump,
                result.digest,
                verdict,
            ),
        )

    def finish(self, run: int, status: str, exit_code: int) -> None:
        self._db.execute("insert into finished values (?, ?, ?, ?)", (run, now(), status, exit_code))

    # ---- asking ------------------------------------------------------------------------------------------------------------

    def runs(self) -> list[Run]:
        """All nightlies, oldest first."""
        rows = self._db.execute(
            "select r.run, started, commit_sha, dirty, binary_sha256, kernels_sha256, config_sha256, config, machine, f.status, "
            "f.exit_code from runs r left join finished f on f.run = r.run order by r.run"
        )
        return [
            Run(
                run=n,
                started=t,
                commit=c,
                dirty=None if d is None else bool(d),
                binary_sha256=b,
                kernels_sha256=k,
                config_sha256=s,
                config=json.loads(conf),
                machine=json.loads(m),
                status=status,
                exit_code=code,
            )
            for n, t, c, d, b, k, s, conf, m, status, code in rows
        ]

    def planned(self, run: int) -> list[tuple[str, dict[str, Any]]]:
        """(cell, spec) of a nightly, in order."""
        rows = self._db.execute("select cell, spec from planned where run = ? order by position", (run,))
        return [(cell, json.loads(spec)) for cell, spec in rows]

    def results(self, run: int | None = None, cell: str | None = None, *, verdicts: bool = False) -> list[Result]:
        """Results of a nightly, of a cell, or all, in the order they came; verdicts only where they are asked for."""
        wanted = [("run", run), ("cell", cell)]
        where = " and ".join(f"{name} = ?" for name, value in wanted if value is not None) or "1"
        rows = self._db.execute(
            "select run, cell, time, wall_s, status, exit_code, reasons, remarks, metrics, golden, base, dump, digest, "
            f"{'verdict' if verdicts else 'null'} from results where {where} order by id",
            [value for _, value in wanted if value is not None],
        )
        return [
            Result(
                run=r,
                cell=c,
                time=t,
                wall_s=w,
                status=s,
                exit_code=x,
                reasons=tuple(json.loads(why)),
                remarks=tuple(json.loads(n)),
                metrics=json.loads(m),
                golden=g,
                base=b and json.loads(b),
                dump=d,
                digest=h,
                verdict=None if v is None else json.loads(zlib.decompress(v)),
            )
            for r, c, t, w, s, x, why, n, m, g, b, d, h, v in rows
        ]

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *exc) -> None:
        self.close()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False, default=dict)
