"""What a drift study answers, whatever it varies."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from edge0verify.records import status as statuses
from edge0verify.records.verdict import plain

SCHEMA = "edge0verify.drift/1"
OVER = ("variants", "runs", "threads", "batch", "context")


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The answer to `drift --over ...`.

    findings: the figures, by `over`: variants {accepted, pairs, oracle, ...}, runs and threads {runs, first_unstable, ...}, batch
    {widths}, context {contexts}.  docs/drift.md lists them.
    """

    over: str
    status: str
    reasons: tuple[str, ...]
    stage: str
    variant: str | None
    reference: str
    model: dict[str, Any] | None
    prompts: list[dict[str, Any]]
    findings: dict[str, Any]
    environment: dict[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return statuses.exit_code(self.status)

    def to_json(self) -> dict[str, Any]:
        return plain({"schema": SCHEMA, **asdict(self)})

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"


def settle(*, suspect: list[str], failures: list[str], unproven: list[str]) -> tuple[str, tuple[str, ...]]:
    """Status and reasons by precedence: a suspect reference before any blame, then faults, then what was not proven."""
    reasons = (*suspect, *failures, *unproven)
    if suspect:
        return statuses.INCONCLUSIVE, reasons
    if failures:
        return statuses.FAIL, reasons
    return (statuses.INCONCLUSIVE if unproven else statuses.PASS), reasons
