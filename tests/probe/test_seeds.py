"""Simulated machines with one planted fault each, and healthy ones: every fault found over 50 seeds, no false alarm over 50.

`link=x1` is no fault: it must be seen, and must not change an answer.
"""

import pytest

from edge0verify.probe.capture import NOT_TRIED, OPERATIONS, RIGHT, SILENT, probe_capture, run_operation
from edge0verify.probe.operations import run_operations
from edge0verify.probe.types import KINDS, Cell, Machine
from edge0verify.probe.types import OPERATIONS as OPERATIONS_OF
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.runtime.sim import SimRuntime
from edge0verify.runtime.sim_knobs import FORBIDDEN, parse_knobs
from tests.probe.here import causes, probe_here

SEEDS = range(50)
PLANTED = {
    "peer=corrupt": "link changes bytes",
    "copy=wrong": "copies change bytes",
    "memset=early": "memset not ordered with the owner",
    "doorbell=lost": "no completion",
}


@pytest.mark.parametrize("knobs", PLANTED)
def test_every_planted_fault_is_found_and_named(knobs):
    for seed in SEEDS:
        report = probe_here(knobs, seed, sizes=(4, 65536), kinds=("device",), peer=(True,))
        assert report.status == FAIL, f"seed {seed}: {report.reasons}"
        assert causes(report) - {"no peer access"} == {PLANTED[knobs]}, f"seed {seed}: {causes(report)}"


@pytest.mark.parametrize("knobs", ["peer=corrupt", "copy=wrong"])
def test_pair_direction_and_size_are_the_planted_ones(knobs):
    for seed in range(12):
        sizes = tuple(1 << n for n in range(2, 17))
        plan = SimRuntime(2, knobs=parse_knobs(knobs), seed=seed).plan
        report = probe_here(knobs, seed, sizes=sizes, kinds=("device",), peer=(True,))
        bad = [row for row in report.rows if row.answer == FAIL]
        assert {(row.cell.reader, row.cell.owner) for row in bad} == {plan.pair}
        assert {row.smallest_bad for row in bad} == {plan.flip_from}


def test_no_peer_access_is_said_and_nothing_is_passed():
    for seed in SEEDS:
        report = probe_here("peer=off", seed, sizes=(4, 65536), kinds=("device",), peer=(True,))
        assert (report.status, causes(report)) == (INCONCLUSIVE, {"peer access not offered"})


def test_healthy_machines_raise_no_alarm():
    for seed in SEEDS:
        report = probe_here("", seed, sizes=(4, 65536), kinds=("device",) if seed % 5 else KINDS)
        assert report.status == PASS, f"seed {seed}: {report.reasons}"
        assert causes(report) == {"no peer access"}
        assert all(row.by_rule == (row.answer == FAIL) for row in report.rows)


def test_a_narrow_link_is_seen_and_changes_no_answer():
    wide, narrow = (probe_here(knobs, 3, sizes=(4, 262144), kinds=("device",)) for knobs in ("", "link=x1"))
    assert [(r.operation, r.answer) for r in wide.rows] == [(r.operation, r.answer) for r in narrow.rows]
    assert "narrow link" in causes(narrow) - causes(wide)
    for row in narrow.rows:
        if row.operation == "copy":
            assert row.bandwidth <= row.limit * 1.01
    assert {r.limit for r in wide.rows if r.limit} == {16 * next(r.limit for r in narrow.rows if r.limit)}


def capture(knobs: str, seed: int) -> dict:
    runtime = SimRuntime(1, knobs=parse_knobs(knobs), seed=seed)
    answers = [run_operation(runtime, 0, operation) for operation in OPERATIONS]
    runtime.close()
    return {a.operation: a for a in answers}


def test_capture_names_the_one_operation_that_breaks_silently():
    hit = set()
    for seed in SEEDS:
        plan = SimRuntime(1, knobs=parse_knobs("capture=lax"), seed=seed).plan
        answers = capture("capture=lax", seed)
        assert [name for name, a in answers.items() if a.status != PASS] == [plan.lax]
        assert answers[plan.lax].outcome == SILENT
        hit.add(plan.lax)
    assert hit == set(FORBIDDEN)


def test_capture_has_no_complaint_about_a_strict_driver():
    for seed in SEEDS:
        answers = capture("", seed)
        assert all(a.status == PASS for a in answers.values())
        assert all(answers[o.name].outcome == o.rule for o in OPERATIONS if o.rule == RIGHT)


def test_a_capture_that_cannot_be_set_up_is_no_fault_of_the_driver():
    """The CPU loads no kernels: nothing was accepted, and nothing broke."""
    report = probe_capture(Machine(runtime="cpu", devices=1), 0)
    assert report.status == "INCONCLUSIVE"
    assert {a.outcome for a in report.answers} == {NOT_TRIED}
    assert "load: not supported" in report.reasons[0]


def test_memory_that_is_not_there_is_no_fault_of_the_link():
    runtime = SimRuntime(2, memory=1 << 20)
    cell = Cell(reader=0, owner=1, memory="device", peer=True)
    rows = list(run_operations(runtime, cell, OPERATIONS_OF["device"], (4, 4 << 20), 0))
    runtime.close()
    assert {(r.answer, r.cause) for r in rows} == {("INCONCLUSIVE", "could not be set up")}
    assert [r.operation for r in rows] == list(OPERATIONS_OF["device"])
    assert "out of memory" in rows[0].why
