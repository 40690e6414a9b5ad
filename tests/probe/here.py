"""Memory probes in this process: simulated devices are processes of their own, so a fault does not take the test with it."""

from __future__ import annotations

from dataclasses import replace

from edge0verify.probe.child import open_machine
from edge0verify.probe.memory import HANG, HANGS, Report, cells, conclude
from edge0verify.probe.operations import run_operations
from edge0verify.probe.types import KINDS, OPERATIONS, Cell, Machine, Row
from edge0verify.runtime.sim import SimRuntime
from edge0verify.runtime.sim_knobs import parse_knobs

SIZES = (4, 1000, 65536)


def probe_here(
    knobs: str,
    seed: int,
    *,
    sizes: tuple[int, ...] = SIZES,
    kinds: tuple[str, ...] = KINDS,
    devices: int = 2,
    peer: tuple = (False, True, None),
) -> Report:
    machine = Machine(runtime="sim", devices=devices, knobs=knobs, seed=seed, patience_s=0.02)
    rows: list[Row] = []
    for cell in cells(devices, kinds):
        if cell.peer in peer:
            rows.extend(run_cell_here(machine, cell, sizes, seed))
    return conclude(rows, SimRuntime(devices, knobs=parse_knobs(knobs), seed=seed).devices())


def run_cell_here(machine: Machine, cell: Cell, sizes: tuple[int, ...], seed: int) -> list[Row]:
    left, rows = list(OPERATIONS[cell.memory]), []
    while left and sum(row.cause == HANG for row in rows) < HANGS:
        runtime = open_machine(replace(machine))
        new = list(run_operations(runtime, cell, tuple(left), sizes, seed))
        runtime.close()
        rows.extend(new)
        if not new or new[-1].error is None:
            break
        left = left[left.index(new[-1].operation) + 1 :]
    return rows


def causes(report: Report) -> set[str]:
    return {finding.cause for finding in report.findings}
