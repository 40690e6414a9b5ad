"""`probe memory`: every ordered pair of devices and kind of memory, each in a process of its own with a time limit."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edge0verify.probe.judge import findings, judge, settle
from edge0verify.probe.link import limit
from edge0verify.probe.patterns import SIZES
from edge0verify.probe.types import KINDS, OPERATIONS, Cell, Finding, Machine, Order, Row
from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError
from edge0verify.runtime.detect import DETECTORS, MOST_SIMULATED
from edge0verify.runtime.process import run_command
from edge0verify.runtime.protocol import Device

SCHEMA = "edge0verify.probe/1"
ROOT = Path(__file__).resolve().parents[2]
HANG = "no completion"
HANGS = 2
"""Operations of one cell that may run into the time limit before the rest is left alone."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to probe.  timeout_s: of one operation."""

    machine: Machine
    sizes: tuple[int, ...] = SIZES
    kinds: tuple[str, ...] = KINDS
    seed: int = 0
    timeout_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """The answer of a probe of memory."""

    status: str
    reasons: tuple[str, ...]
    devices: tuple[Device, ...]
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    request: Request | None = None

    @property
    def exit_code(self) -> int:
        return statuses.exit_code(self.status)

    def to_json(self) -> dict[str, Any]:
        """Stable JSON: rows in the order of pairs, kinds and operations."""
        return {
            "schema": SCHEMA,
            "kind": "memory",
            "status": self.status,
            "reasons": list(self.reasons),
            "machine": None if self.request is None else asdict(self.request.machine),
            "seed": None if self.request is None else self.request.seed,
            "devices": [asdict(device) for device in self.devices],
            "rows": [row.to_json() for row in self.rows],
            "findings": [asdict(finding) for finding in self.findings],
        }

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"


def read_devices(text: str | None) -> Machine | None:
    """'sim:2', 'cuda' or 'hip' as a machine; None where `text` is None.  InputError for anything else."""
    if text is None:
        return None
    runtime, colon, count = text.partition(":")
    known = runtime in DETECTORS and runtime != "cpu" and (not colon or (count.isascii() and count.isdigit()))
    if not known or (runtime == "sim" and not 1 <= int(count or 2) <= MOST_SIMULATED):
        raise InputError(f"--devices {text}: expected cuda, hip or sim:N with N devices")
    return Machine(runtime=runtime, devices=int(count) if count else 2 if runtime == "sim" else 0)


def cells(devices: int, kinds: Sequence[str] = KINDS) -> Iterator[Cell]:
    """Every ordered pair and kind of memory; device memory without peer access and with it."""
    for reader in range(devices):
        for owner in range(devices):
            if reader == owner:
                continue
            for kind in kinds:
                for peer in (False, True) if kind == "device" else (None,):
                    yield Cell(reader=reader, owner=owner, memory=kind, peer=peer)


def probe(request: Request, devices: Sequence[Device], progress: Callable[[str, int, int], None] | None = None) -> Report:
    """Probe all pairs.  INCONCLUSIVE with fewer than two devices: there is no pair."""
    if len(devices) < 2:
        there = f"{len(devices)} device{'s' if len(devices) != 1 else ''}"
        why = f"{request.machine.runtime}: a pair of devices is needed, found {there}"
        return Report(status=statuses.INCONCLUSIVE, reasons=(why,), devices=tuple(devices), rows=(), findings=(), request=request)
    todo = list(cells(len(devices), request.kinds))
    rows: list[Row] = []
    for done, cell in enumerate(todo):
        if progress is not None:
            progress("probing", done, len(todo))
        rows.extend(run_cell(request, cell))
    if progress is not None:
        progress("probing", len(todo), len(todo))
    return conclude(rows, devices, request)


def absent(why: str) -> Report:
    """The report where no device is here."""
    return Report(status=statuses.INCONCLUSIVE, reasons=(why,), devices=(), rows=(), findings=())


def conclude(rows: Sequence[Row], devices: Sequence[Device], request: Request | None = None) -> Report:
    """The report over rows."""
    settled = settle([with_limit(row, devices) for row in rows])
    status, reasons = judge(settled)
    found = tuple(findings(settled, devices))
    return Report(status=status, reasons=reasons, devices=tuple(devices), rows=tuple(settled), findings=found, request=request)


def with_limit(row: Row, devices: Sequence[Device]) -> Row:
    """The row beside what the slower of the two links can carry; that of a direct link with peer access."""
    if row.bandwidth is None:
        return row
    both = [devices[row.cell.reader], devices[row.cell.owner]]
    links = [d.link for d in both]
    if row.cell.memory == "device" and row.cell.peer is True:
        links = [d.peer_link or d.link for d in both]
    known = [value for value in map(limit, links) if value is not None]
    return replace(row, limit=min(known) if known else None)


def run_cell(request: Request, cell: Cell) -> list[Row]:
    """All operations of one cell; each process that dies or hangs costs one operation, and the next goes on behind it."""
    left, rows = list(OPERATIONS[cell.memory]), []
    while left:
        order = Order(machine=request.machine, cell=cell, operations=tuple(left), sizes=request.sizes, seed=request.seed)
        said, trouble = run_child(order, request.timeout_s)
        absent = next((line["absent"] for line in said if "absent" in line), None)
        if absent is not None:
            return [Row(cell=cell, operation=o, answer="INCONCLUSIVE", cause="hardware absent", why=absent) for o in left]
        new = [Row.from_json(line["row"]) for line in said if "row" in line]
        rows.extend(new)
        reached = new[-1].operation if new else None
        if trouble is not None:
            begun = next((line["begin"] for line in reversed(said) if "begin" in line), left[0])
            if begun != reached:
                rows.append(_ended(cell, begun, trouble))
                reached = begun
        elif reached is None or new[-1].error is None:
            break  # what it left out cannot be tried here
        left = left[left.index(reached) + 1 :]
        if sum(row.cause == HANG for row in rows) >= HANGS:
            why = f"not tried: {HANGS} operations before it did not end"
            rows.extend(Row(cell=cell, operation=o, answer="INCONCLUSIVE", cause="not tried", why=why) for o in left)
            break
    return rows


def _ended(cell: Cell, operation: str, trouble: str) -> Row:
    cause = HANG if "time limit" in trouble else "process died"
    return Row(cell=cell, operation=operation, answer="FAIL", cause=cause, why=f"the probe's process {trouble}")


def run_child(order: Order | Mapping[str, Any], timeout_s: float) -> tuple[list[dict], str | None]:
    """What the process of an order said, line by line, and what went wrong with it.  timeout_s: since it last said something."""
    with tempfile.TemporaryDirectory(prefix="edge0verify-probe-") as folder:
        here = Path(folder)
        (here / "order.json").write_text(json.dumps(order.to_json() if isinstance(order, Order) else order))
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        done = run_command(
            [sys.executable, "-m", "edge0verify.probe.child", str(here / "order.json")],
            env={**os.environ, "PYTHONPATH": path},
            cwd=here,
            timeout_s=timeout_s,
            folder=here,
            idle=True,
            scratch=True,
        )
        said = []
        for line in done.stdout.read_text(errors="replace").splitlines() if done.stdout.exists() else ():
            try:
                said.append(json.loads(line))
            except ValueError:
                continue  # a driver's own words, or a line cut short by death
        trouble = done.trouble()
        if trouble is not None and done.stderr.exists():
            last = done.stderr.read_text(errors="replace").strip().splitlines()
            trouble += f": {last[-1]}" if last else ""
        return said, trouble
