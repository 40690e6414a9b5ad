"""From rows to an answer.  Decides from answers alone: no bandwidth and no latency ever changes one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edge0verify.probe.link import narrow
from edge0verify.probe.types import CONTROL, NO_HOST_ATOMICS, Finding, Row
from edge0verify.records import status as statuses
from edge0verify.runtime.protocol import Device

NEEDS_PEER = ("kernel read", "kernel write", "atomics", "memset")
"""Operations on device memory that are refused without peer access: that is the rule."""
DATA = "bytes changed on the way"
LOST_ADDS = "additions lost"
RULES = {
    "no peer access": "are refused while peer access is off: the rule, and what a program sees that forgot it",
    NO_HOST_ATOMICS: "lose additions on host memory, and the driver declares that devices have no native atomics there: "
    "count in device memory, or on one device alone",
}
"""Cause of a FAIL that the driver's own rules demand -> what is to be known about it."""


def settle(rows: Sequence[Row]) -> list[Row]:
    """Says of each row what its neighbours tell about it: refused by rule, or in doubt because the control arm fails too."""
    changed = {(r.cell.reader, r.cell.owner) for r in rows if r.cause == DATA}
    control = {(r.cell.reader, r.cell.owner, r.cell.peer): r.answer for r in rows if r.operation == CONTROL}
    out = []
    for row in rows:
        key = (row.cell.reader, row.cell.owner, row.cell.peer)
        if row.cell.memory == "device" and row.cell.peer is False and row.operation in NEEDS_PEER:
            row = _without_peer(row)
        elif row.cause == DATA and row.operation != CONTROL and row.cell.memory == "device" and control.get(key) == statuses.FAIL:
            row = replace(
                row, answer=statuses.INCONCLUSIVE, cause="control arm fails too", why=f"{row.why}; host-staged is wrong as well"
            )
        elif row.cause == LOST_ADDS and (row.cell.reader, row.cell.owner) in changed:
            row = replace(row, cause=DATA)  # a sum over a way that changes bytes
        out.append(row)
    return out


def _without_peer(row: Row) -> Row:
    if row.answer == statuses.FAIL and row.cause == "refused":
        return replace(row, cause="no peer access", by_rule=True)
    if row.answer == statuses.FAIL and row.cause == DATA:
        return replace(row, cause="wrong bytes without an error", why=f"peer access is off and nothing was refused: {row.why}")
    return row


def findings(rows: Sequence[Row], devices: Sequence[Device], environment: Mapping[str, str] | None = None) -> list[Finding]:
    """What there is to act on: each cause once, with the rows that show it."""
    found = []
    for cause in dict.fromkeys(r.cause for r in rows if r.cause and not r.by_rule):
        at = tuple(i for i, r in enumerate(rows) if r.cause == cause and not r.by_rule)
        decides = any(rows[i].answer == statuses.FAIL for i in at)
        found.append(
            Finding(
                cause=_named(cause, [rows[i] for i in at], rows),
                text=_sentence(cause, [rows[i] for i in at]),
                decides=decides,
                rows=at,
            )
        )
    for cause, text in RULES.items():
        ruled = tuple(i for i, r in enumerate(rows) if r.by_rule and r.cause == cause)
        if ruled:
            found.append(Finding(cause=cause, text=f"{len(ruled)} operations {text}", decides=False, rows=ruled))
    for device in devices:
        if narrow(device.link):
            found.append(Finding(cause="narrow link", text=f"{device}: {device.link}: slow, no fault", decides=False))
    found.extend(switches(os.environ if environment is None else environment))
    return found


def _named(cause: str, bad: Sequence[Row], rows: Sequence[Row]) -> str:
    """Tells a link from a copy engine: kernels across a good link are right while its copies are wrong."""
    if cause != DATA:
        return cause
    pairs = {(r.cell.reader, r.cell.owner) for r in bad}
    kernels = [
        r for r in rows if (r.cell.reader, r.cell.owner) in pairs and r.cell.peer and r.operation in ("kernel read", "kernel write")
    ]
    copies = [r for r in bad if r.operation in ("copy", "peer copy")]
    if copies and kernels and all(r.answer == statuses.PASS for r in kernels):
        return "copies change bytes"
    return "link changes bytes" if all(r.operation != CONTROL for r in bad) else "device changes bytes"


def _sentence(cause: str, bad: Sequence[Row]) -> str:
    where = sorted({(r.cell.reader, r.cell.owner) for r in bad})
    pairs = ", ".join(f"{reader} from {owner}" for reader, owner in where[:4])
    operations = ", ".join(dict.fromkeys(r.operation for r in bad))
    sizes = [r.smallest_bad for r in bad if r.smallest_bad]
    smallest = f", from {min(sizes)} bytes on" if sizes else ""
    return f"{operations} ({pairs}{smallest}): {bad[0].why}"


def switches(environment: Mapping[str, str]) -> list[Finding]:
    """Variables about peer copies that are set to nothing or 0: a program that only asks for their presence takes them for on."""
    words = ("P2P", "PEER", "SDMA", "IPC")
    return [
        Finding(
            cause="switch set to off",
            text=f"{name}={value}: a program that tests only whether the variable exists is switched on by it; unset it to be sure",
            decides=False,
        )
        for name, value in sorted(environment.items())
        if any(word in name.upper() for word in words) and value.strip().lower() in ("", "0", "off", "false", "no")
    ]


def judge(rows: Sequence[Row]) -> tuple[str, tuple[str, ...]]:
    """(status, reasons).  A refusal that the rules demand decides nothing; a row that proves nothing keeps PASS away."""
    if not rows:
        return statuses.INCONCLUSIVE, ("nothing was probed",)
    bad = [r for r in rows if r.answer == statuses.FAIL and not r.by_rule]
    if bad:
        causes = list(dict.fromkeys(r.cause for r in bad))
        return statuses.FAIL, tuple(f"{cause}: {sum(r.cause == cause for r in bad)} of {len(rows)} operations" for cause in causes)
    open_rows = [r for r in rows if r.answer == statuses.INCONCLUSIVE]
    if open_rows:
        return statuses.INCONCLUSIVE, tuple(dict.fromkeys(r.why for r in open_rows))
    return statuses.PASS, ()
