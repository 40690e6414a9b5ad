"""A history of nightlies (schema `edge0verify.nightly/1`, one SQLite file), read for the report and drawn over nights.

The file is read by its schema and never written.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from edge0verify.records.errors import InputError
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.report import html_lines, tables
from edge0verify.report.html_lines import STATUS_COLOURS, number
from edge0verify.report.html_svg import COLOURS, legend, wide
from edge0verify.report.html_text import Html, badge, details, figure, section, short, table, tag

SCHEMA = "edge0verify.nightly/1"
MOST = 120
"""Nights that are drawn, the last ones."""
METRICS = {
    "differing": "Share of elements that differ",
    "max_rel_l2": "Largest relative L2 of a - b",
    "top8_move": "Log-prob movement of the top 8",
    "anchor_differing": "Share of elements that differ from the anchor",
    "anchor_top8_move": "Log-prob movement from the anchor",
}
"""What is drawn over nights, where a cell has it; `differing` and `anchor_differing` are made of the stored percentages."""
_PHONE = 16
_GREY = "#8a8f96"


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """How one cell of one night ended."""

    cell: str
    status: str
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    metrics: Mapping[str, float]
    base: Mapping[str, Any] | None
    dump: str | None
    wall_s: float | None
    verdict: Mapping[str, Any] | None = None
    """Of the last night's cells that do not pass."""

    @property
    def not_this_change(self) -> bool:
        return bool(self.base and self.base.get("not_this_change"))


@dataclass(frozen=True, kw_only=True)
class NightRun:
    """One nightly. status is None where it did not come to its end."""

    run: int
    started: str
    commit: str | None
    dirty: bool | None
    status: str | None
    kernels_sha256: str
    machine: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    planned: tuple[str, ...] = ()
    results: Mapping[str, CellResult] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(cell for cell in self.planned if cell not in self.results)

    @property
    def commit_text(self) -> str:
        text = "unknown" if not self.commit else str(self.commit)[:10]
        return text + (" + changes" if self.dirty else "")


@dataclass(frozen=True, kw_only=True)
class Nights:
    """All nightlies of one history, oldest first."""

    path: Path
    runs: tuple[NightRun, ...]


def read_nights(path: Path) -> Nights:
    """Read a history. InputError naming the file where it is none or is damaged."""
    if not path.is_file():
        raise InputError(f"{path}: expected a history of nightlies, found no such file")
    try:
        with open(path, "rb") as file:
            if file.read(16) != b"SQLite format 3\x00":
                raise InputError(f"{path}: expected a history of nightlies, found no SQLite file")
        try:
            return _read(path, "ro")
        except sqlite3.OperationalError:
            # An interrupted writer left a journal, and only a connection that may write can roll it back.
            return _read(path, "rw")
    except OSError as wrong:
        raise InputError(f"{path}: expected a history of nightlies, found: {wrong.strerror}") from None
    except sqlite3.Error as wrong:
        raise InputError(f"{path}: expected a history of nightlies, found: {wrong}") from None
    except (ValueError, TypeError, AttributeError, zlib.error, RecursionError) as wrong:
        raise InputError(f"{path}: expected the fields of {SCHEMA}, found: {wrong}") from None


def _read(path: Path, mode: str) -> Nights:
    db = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode={mode}", uri=True, timeout=30)
    try:
        tables_there = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
        found = db.execute("select value from meta where key = 'schema'").fetchone() if "meta" in tables_there else None
        if found != (SCHEMA,):
            raise InputError(f"{path}: schema: expected {SCHEMA}, found {short(found[0], 60) if found else 'none'}")
        heads = db.execute(
            "select r.run, started, commit_sha, dirty, kernels_sha256, config, machine, f.status from runs r "
            "left join finished f on f.run = r.run order by r.run"
        ).fetchall()
        planned: dict[int, list[str]] = {}
        for run, cell in db.execute("select run, cell from planned order by run, position"):
            planned.setdefault(run, []).append(str(cell))
        results: dict[int, dict[str, CellResult]] = {}
        last = heads[-1][0] if heads else None
        for row in db.execute(
            "select run, cell, status, reasons, remarks, metrics, base, dump, wall_s, "
            "case when run = ? and status <> 'PASS' then verdict end from results order by id",
            (last,),
        ):
            results.setdefault(row[0], {})[str(row[1])] = _result(*row[1:])
    finally:
        db.close()
    runs = [
        NightRun(
            run=run,
            started=str(started),
            commit=None if commit is None else str(commit),
            dirty=None if dirty is None else bool(dirty),
            status=None if status is None else str(status),
            kernels_sha256=str(kernels),
            config=dict(json.loads(config)),
            machine=dict(json.loads(machine)),
            planned=tuple(planned.get(run, ())),
            results=results.get(run, {}),
        )
        for run, started, commit, dirty, kernels, config, machine, status in heads
    ]
    return Nights(path=path, runs=tuple(runs))


def _result(cell, status, reasons, remarks, metrics, base, dump, wall_s, verdict) -> CellResult:
    return CellResult(
        cell=str(cell),
        status=str(status),
        reasons=tuple(map(str, json.loads(reasons))),
        remarks=tuple(map(str, json.loads(remarks))),
        metrics={name: number(value) for name, value in dict(json.loads(metrics)).items()},
        base=None if base is None else dict(json.loads(base)),
        dump=None if dump is None else str(dump),
        wall_s=None if wall_s is None else float(wall_s),
        verdict=None if verdict is None else dict(json.loads(zlib.decompress(verdict))),
    )


def nights_section(nights: Nights) -> Html:
    """Cells over nights, what is measured over nights, and the nights with their commits."""
    name = "Over the nights"
    if not nights.runs:
        return section(name, tag("p", "The history holds no nightly yet."))
    runs = nights.runs[-MOST:]
    numbers = [r.run for r in runs]
    commits = _commits(runs)
    cells = list(dict.fromkeys(c for r in reversed(runs) for c in (*r.planned, *r.results)))
    found = {(c, r.run): result.status for r in runs for c, result in r.results.items()}
    parts: list[Html] = []
    if len(nights.runs) > len(runs):
        parts.append(tag("p", f"The last {len(runs)} of {len(nights.runs)} nights."))
    keys = legend([(status, colour, False) for status, colour in STATUS_COLOURS.items() if status in found.values()])
    about = "Status of each cell in each night; the table of cells holds the last ones"
    caption = "Cells over nights; x: FAIL, ?: INCONCLUSIVE, i: input error, !: internal error, a dot: no result. Above: the commit."
    for at in range(0, len(cells), 40):
        drawing = html_lines.nights(f"nights{at}", about, numbers, cells[at : at + 40], found, commits)
        parts.append(figure(wide(drawing), caption, wide=True, late=True, legend=keys))
    made = [
        m for i, (metric, what) in enumerate(METRICS.items()) if (m := _trend(f"trend{i}", metric, what, runs, numbers, commits))
    ]
    parts.append(tag("div", *made, class_="figures" if len(runs) <= _PHONE else "row"))
    headers = ("night", "started", "commit", "status", PASS, FAIL, INCONCLUSIVE, "other", "no result")
    lines = [_night_line(r) for r in reversed(runs)]
    parts.append(
        details(f"Nights with their commits ({len(lines)})", table(headers, lines, label="Nights", left=4), open_=len(lines) <= 14)
    )
    return section(name, *parts)


def _commits(runs: Sequence[NightRun]) -> list[tuple[int, str]]:
    """(place of its first night, short name) of each commit, a dirty one with a plus."""
    kinds = [(r.commit, r.dirty) for r in runs]
    first = [i for i, kind in enumerate(kinds) if not i or kind != kinds[i - 1]]
    return [(i, (str(runs[i].commit)[:7] if runs[i].commit else "unknown") + ("+" if runs[i].dirty else "")) for i in first]


def _night_line(run: NightRun) -> tuple:
    statuses = [r.status for r in run.results.values()]
    counts = [statuses.count(s) for s in (PASS, FAIL, INCONCLUSIVE)]
    status = badge(run.status) if run.status else "not ended"
    return (
        "",
        (
            run.run,
            run.started[:16].replace("T", " "),
            tag("code", run.commit_text),
            status,
            *counts,
            len(statuses) - sum(counts),
            len(run.missing),
        ),
    )


def _value(metrics: Mapping[str, float], metric: str) -> float:
    """A cell's value of a metric; NaN where it has none."""
    if metric.endswith("differing"):
        share = metrics.get(metric.replace("differing", "equal_pct"), np.nan)
        # Percentages near 100 carry their own rounding, and what is below it is nothing.
        return max(0.0, (100.0 - share) / 100.0) if np.isfinite(share) else share
    return metrics.get(metric, np.nan)


def _trend(
    name: str, metric: str, what: str, runs: Sequence[NightRun], numbers: Sequence[int], commits: Sequence[tuple[int, str]]
) -> Html | None:
    """One metric over nights: the cells whose value moved have colours, the others are grey."""
    values: dict[str, dict[int, float]] = {}
    for r in runs:
        for cell, result in r.results.items():
            value = _value(result.metrics, metric)
            if not np.isnan(value):
                values.setdefault(cell, {})[r.run] = value
    if not values:
        return None
    order = sorted(values, key=lambda cell: _moved(values[cell]))
    moved = [c for c in reversed(order) if _moved(values[c]) > 1]
    colour = dict(zip(moved, COLOURS))
    series = [(values[c], colour.get(c, _GREY), 1.6 if c in colour else 0.8) for c in order]
    drawing = html_lines.trend(name, f"{what} over nights", numbers, series, commits)
    rest = len(order) - len(colour)
    keys = legend(
        [(c, colour[c], False) for c in colour]
        + ([(f"{rest} others" if colour else f"all {rest} cells", _GREY, False)] if rest else [])
    )
    scrolls = len(runs) > _PHONE
    text = f"{what}, of {len(values)} cells; {len(moved) or 'none'} moved."
    return figure(wide(drawing) if scrolls else drawing, text, wide=scrolls, late=True, legend=keys)


def _moved(values: Mapping[int, float]) -> float:
    """Largest value over smallest, 1 where it never moved, infinite from nothing to something."""
    least, most = min(values.values()), max(values.values())
    if least == most:
        return 1.0
    return most / least if least > 0 and np.isfinite(most) else np.inf


def column(metrics: Mapping[str, float], metric: str) -> str:
    value = metrics.get(metric, np.nan)
    if np.isnan(value):
        return "-"
    return tables.percentage(value) if metric.endswith("pct") and 0 <= value <= 100 else tables.figure(value)
