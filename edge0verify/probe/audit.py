"""`probe audit`: every pointer that a stage is given, against the device that runs it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from edge0verify.engine.split import Split, Use, Violation, check_uses
from edge0verify.engine.split_engine import SplitEngine, open_runtime
from edge0verify.model import Model
from edge0verify.records import status as statuses

SCHEMA = "edge0verify.audit/1"


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """Which pointers were looked at, and which of them the device that gets them may not read."""

    split: str
    status: str
    reasons: tuple[str, ...]
    uses: tuple[Use, ...] = ()
    violations: tuple[Violation, ...] = ()

    @property
    def exit_code(self) -> int:
        return statuses.exit_code(self.status)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "status": self.status,
            "reasons": list(self.reasons),
            "split": self.split,
            "pointers": len(self.uses),
            "violations": [{**asdict(v.use), "owner": v.owner, "kind": v.kind} for v in self.violations],
        }

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1) + "\n"


def audit_split(model: Model, split: Split, *, mistake: str | None = None, seed: int = 0) -> AuditReport:
    """Put a model's weights on the devices of a split and ask the driver about each pointer.  Raises `Absent` without them."""
    runtime = open_runtime(split, seed=seed)
    try:
        engine = SplitEngine(model, split, runtime, mistake=mistake)
        uses = engine.uses()
        violations = tuple(check_uses(runtime, uses))
    finally:
        close = getattr(runtime, "close", None)
        if close is not None:
            close()
    status = statuses.FAIL if violations else statuses.PASS if uses else statuses.INCONCLUSIVE
    reasons = tuple(str(violation) for violation in violations)
    return AuditReport(split=str(split), status=status, reasons=reasons, uses=uses, violations=violations)


def absent(split: Split, why: str) -> AuditReport:
    """The report where the devices are not here."""
    return AuditReport(split=str(split), status=statuses.INCONCLUSIVE, reasons=(why,))


def audit_text(report: AuditReport) -> str:
    """For a terminal: the pointers by reader, each violation on a line."""
    readers: dict[int, int] = {}
    for use in report.uses:
        readers[use.reader] = readers.get(use.reader, 0) + 1
    lines = [f"split {report.split}"] + [f"device {reader} is given {count} pointers" for reader, count in readers.items()]
    lines += [f"  {violation}" for violation in report.violations]
    if report.status == statuses.INCONCLUSIVE:
        last = "; ".join(report.reasons) or "nothing was given"
    else:
        last = f"{len(report.violations)} of {len(report.uses)} pointers are out of the reader's reach"
    return "\n".join([*lines, f"{report.status}: {last}"])
