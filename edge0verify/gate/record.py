"""The gate record: a verdict stamped with commit, machine and configuration. Schema `edge0verify.gate/1`."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from edge0verify.records.errors import InputError
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS, worst_status

SCHEMA = "edge0verify.gate/1"
INFO = "INFO"
KINDS = ("correctness", "speed", "info")
STATUSES = (PASS, FAIL, INCONCLUSIVE, INFO)
VALIDITIES = ("valid", "invalid", "not-applicable", "unmeasured")
LEG = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class GateRecord:
    """What was found, for one leg of the gate, on one commit and machine. A field that could not be read is None."""

    leg: str
    kind: str
    """'correctness', 'speed' (needs a machine that did not throttle), or 'info' (never opens a gate)."""
    status: str
    reasons: tuple[str, ...]
    recorded_at: float
    """Seconds since 1970, UTC."""
    commit: str | None
    dirty: tuple[str, ...] | None
    """Paths that differed from the commit; None where the source does not say."""
    validity: str
    """May the measurement stand? One of VALIDITIES; decided from the run's own state, never from the leg's name."""
    concerns: tuple[str, ...] = ()
    state: Mapping[str, Any] | None = None
    """{before, after, delta}: snapshots of the machine round the run."""
    machine: Mapping[str, Any] | None = None
    binaries: Mapping[str, str] = field(default_factory=dict)
    """{path: sha256}."""
    kernels: Mapping[str, Any] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    verdicts: tuple[Mapping[str, Any], ...] = ()
    """The documents the status rests on, whole (`edge0verify.verdict/1` and its like)."""
    engagement: tuple[Mapping[str, Any], ...] = ()
    isa: Mapping[str, Any] | None = None
    statistics: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    """What a reader should know and what does not decide, such as '1 of 12 replays byte-identical'."""
    source: Mapping[str, Any] | None = None
    """Where an imported record came from: {format, file, sha256}."""

    def __post_init__(self) -> None:
        if not LEG.fullmatch(self.leg):
            raise InputError(f"leg: expected small letters, digits, '.', '_', '-' (100 at most), found {self.leg!r}")
        for name, value, known in (
            ("kind", self.kind, KINDS),
            ("status", self.status, STATUSES),
            ("validity", self.validity, VALIDITIES),
        ):
            if value not in known:
                raise InputError(f"{self.leg}: {name}: expected one of {', '.join(known)}, found {value!r}")
        if not _is_number(self.recorded_at) or not 0 < self.recorded_at < 1e11:
            raise InputError(f"{self.leg}: recorded_at: expected seconds since 1970, found {self.recorded_at!r}")
        if self.commit is not None and not re.fullmatch(r"[0-9a-f]{7,64}", self.commit):
            raise InputError(f"{self.leg}: commit: expected 7 to 64 hex digits, found {self.commit!r}")
        wrong = [name for name, value in self.metrics.items() if not _is_number(value)]
        if wrong:
            raise InputError(f"{self.leg}: metric {wrong[0]}: expected a finite number, found {self.metrics[wrong[0]]!r}")

    @property
    def date(self) -> str:
        """The UTC date of the record."""
        return datetime.fromtimestamp(self.recorded_at, UTC).strftime("%Y-%m-%d")

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict, `schema` first."""
        return {"schema": SCHEMA, **asdict(self)}

    def canonical(self) -> bytes:
        """The bytes that are hashed and stored: sorted keys, one line."""
        try:
            text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"{self.leg}: the record has a value that JSON cannot hold: {error}") from error
        return text.encode() + b"\n"

    def sha256(self) -> str:
        return hashlib.sha256(self.canonical()).hexdigest()


def from_json(data: Any, *, where: str) -> GateRecord:
    """A record back from its JSON form; an unknown or missing field is an InputError that names `where`."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise InputError(f"{where}: schema: expected {SCHEMA}, found {found!r}")
    fields = GateRecord.__dataclass_fields__
    missing, unknown = sorted(set(fields) - set(data)), sorted(set(data) - set(fields) - {"schema"})
    if missing or unknown:
        raise InputError(
            f"{where}: expected the fields of {SCHEMA}, found "
            + (f"no {missing[0]!r}" if missing else f"an unknown {unknown[0]!r}")
        )
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items() if name != "schema"}
    try:
        return GateRecord(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def weigh(
    documents: Sequence[Mapping[str, Any]], *, where: Sequence[str]
) -> tuple[str, tuple[str, ...], tuple[dict[str, Any], ...]]:
    """(status, reasons, engagement) of the documents a record rests on.

    Each needs `schema` and `status`. A PASS that contradicts its own engagement, or a verdict whose layers do not pass,
    is refused: a gate must not keep what cannot be true.
    """
    if not documents:
        raise InputError("nothing to record: expected at least one verdict, found none")
    reasons, engagement = [], []
    for document, name in zip(documents, where):
        _check_document(document, name)
        stage = document.get("stage")
        engaged = document.get("engaged")
        engagement.append({"document": name, "schema": document["schema"], "stage": stage, "engaged": engaged})
        if document["status"] != PASS:
            said = document.get("reasons") or ["no reason given"]
            reasons.append(f"{name}: {document['status']}: {said[0]}")
    return worst_status(document["status"] for document in documents), tuple(reasons), tuple(engagement)


def _check_document(document: Any, name: str) -> None:
    if not isinstance(document, Mapping) or not str(document.get("schema", "")).startswith("edge0verify."):
        found = document.get("schema") if isinstance(document, Mapping) else type(document).__name__
        raise InputError(f"{name}: schema: expected a verdict such as edge0verify.verdict/1, found {found!r}")
    status = document.get("status")
    if status not in (PASS, FAIL, INCONCLUSIVE):
        raise InputError(f"{name}: status: expected PASS, FAIL or INCONCLUSIVE, found {status!r}")
    if status != PASS:
        return
    engaged = document.get("engaged") or {}
    idle = [side for side, value in engaged.items() if value is False]
    if idle:
        raise InputError(f"{name}: says PASS although {idle[0]} was not engaged: expected INCONCLUSIVE")
    layers = document.get("layers")
    if document["schema"].startswith("edge0verify.verdict/") and not layers:
        raise InputError(f"{name}: says PASS with nothing compared: expected layers, found none")
    failing = [layer for layer in layers or () if layer.get("status") == FAIL]
    if failing:
        raise InputError(f"{name}: says PASS although layer {failing[0].get('layer')} {failing[0].get('tensor')} says FAIL")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
