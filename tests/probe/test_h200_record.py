"""What two H200 answered, kept in golden/: the rows that were measured there, and what the probe says of them now."""

import json
from pathlib import Path

import pytest

from edge0verify.probe.memory import conclude
from edge0verify.probe.types import OPERATIONS, Row
from edge0verify.runtime.protocol import Device

RECORD = json.loads((Path(__file__).resolve().parents[2] / "golden" / "probe-h200-x2.json").read_text())
DEVICES = [Device(**device) for device in RECORD["memory"]["devices"]]
ROWS = [Row.from_json(row) for row in RECORD["memory"]["rows"]]
PAIRS = ((0, 1), (1, 0))


def answer(reader, owner, memory, peer, operation):
    found = [r for r in ROWS if (r.cell.reader, r.cell.owner, r.cell.memory, r.cell.peer) == (reader, owner, memory, peer)]
    return next(r for r in found if r.operation == operation)


def test_every_operation_of_every_pair_was_tried():
    for reader in (0, 1):
        for memory, operations in OPERATIONS.items():
            for peer in (False, True) if memory == "device" else (None,):
                tried = {r.operation for r in ROWS if (r.cell.reader, r.cell.memory, r.cell.peer) == (reader, memory, peer)}
                left_out = set(operations) - tried
                assert not left_out or (memory == "pageable" and left_out == {"kernel read"})   # no access to it from a kernel


@pytest.mark.parametrize(("reader", "owner"), PAIRS)
def test_a_kernel_needs_peer_access(reader, owner):
    refused = answer(reader, owner, "device", False, "kernel read")
    assert (refused.answer, refused.cause, refused.by_rule) == ("FAIL", "no peer access", True)
    assert refused.error["code"] == 700 and "IllegalAddress" in refused.error["name"]
    assert answer(reader, owner, "device", True, "kernel read").answer == "PASS"
    for operation in ("kernel read", "kernel write", "copy", "event wait"):
        assert answer(reader, owner, "mapped host", None, operation).answer == "PASS"


@pytest.mark.parametrize(("reader", "owner"), PAIRS)
def test_a_memset_from_the_other_device_is_not_ordered(reader, owner):
    assert answer(reader, owner, "device", False, "memset").error["code"] == 1
    stale = answer(reader, owner, "device", True, "memset")
    assert (stale.answer, stale.cause) == ("FAIL", "memset not ordered with the owner")
    assert answer(reader, owner, "device", True, "memset by owner").answer == "PASS"


def test_the_rows_are_still_judged_so():
    report = conclude(ROWS, DEVICES)
    assert (report.status, list(report.reasons)) == (RECORD["memory"]["status"], RECORD["memory"]["reasons"])
    deciding = [f.cause for f in report.findings if f.decides]
    assert deciding == ["memset not ordered with the owner"]
    assert {f.cause for f in report.findings} >= {"no peer access", "no atomics on host memory"}


def test_without_the_memset_rows_nothing_fails():
    assert conclude([r for r in ROWS if r.cause != "memset not ordered with the owner"], DEVICES).status == "PASS"


def test_capture_refuses_waits_and_takes_synchronous_copies_silently():
    found = {o["operation"]: o["outcome"] for o in RECORD["capture"]["operations"]}
    assert found["dump kernel into mapped memory"] == "replays right"
    assert found["synchronise the stream"] == "refused"
    assert found["copy without a stream"] == "breaks silently"
