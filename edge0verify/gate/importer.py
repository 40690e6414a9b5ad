"""Reads the gate records of another engine (atlas, schema 1) into our own, and checks what must hold within each.

The source's PASS is kept as what it said; whether it may stand follows from the state that the run itself recorded
(`hardware_state.postcheck.validity`), never from the name of the leg.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edge0verify.gate.record import INFO, VALIDITIES, GateRecord
from edge0verify.numerics.stats import upper_limit
from edge0verify.records.errors import InputError
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS

FORMAT = "atlas/1"
NAME = re.compile(r"(?P<leg>.+)__(?P<date>\d{4}-\d{2}-\d{2})-(?P<sha>[0-9a-f]{7,40})\.json")
TOLERANCE = 1e-6
"""Slack for differences of temperatures, which the source computed in binary from decimal readings."""

COUNTS = (
    ("invariant", "rounds", "replays byte-identical"),
    ("geometry_matched", "geometry_cells", "geometry cells matched"),
    ("integrity_passed", "integrity_measured", "integrity checks passed"),
    ("probes_passed", "probes_total", "probes passed"),
)
"""Metrics that are k of n: (k, n, what k counts)."""


def read_atlas(path: Path) -> GateRecord:
    """One record from its file. InputError names the file, the field, what was expected and what was found."""
    try:
        content = path.read_bytes()
        data = json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except OSError as error:
        raise InputError(f"{path}: expected a gate record, found: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: expected JSON, found: {error}") from error
    where = str(path)
    if not isinstance(data, dict) or data.get("schema") != 1:
        raise InputError(
            f"{where}: schema: expected 1, found {data.get('schema')!r}"
            if isinstance(data, dict)
            else f"{where}: expected an object"
        )
    _check_types(data, where)
    _check_name(data, path)
    state = data.get("hardware_state") or {}
    if state.get("before") and state.get("after"):
        _check_state(state, data["recorded_at"], where)
    return _convert(data, state, path, hashlib.sha256(content).hexdigest())


def _convert(data: Mapping, state: Mapping, path: Path, digest: str) -> GateRecord:
    where, metrics = str(path), data["metrics"]
    sensitivity = state.get("sensitivity", "correctness" if not state else None)
    if sensitivity not in ("correctness", "speed"):
        raise InputError(f"{where}: hardware_state.sensitivity: expected correctness or speed, found {sensitivity!r}")
    check = state.get("postcheck") or {}
    validity = check.get("validity", "unmeasured")
    if validity not in VALIDITIES:
        raise InputError(f"{where}: hardware_state.postcheck.validity: expected one of {', '.join(VALIDITIES)}, found {validity!r}")
    status, reasons = data["verdict"], [data.get("verdict_reason") or ""]
    if status not in (PASS, FAIL, INCONCLUSIVE, INFO):
        raise InputError(f"{where}: verdict: expected PASS, FAIL, INCONCLUSIVE or INFO, found {status!r}")
    if data.get("frame_status") != "Completed" and status == PASS:
        status = INCONCLUSIVE
        reasons.insert(0, f"says PASS, but the run did not complete: frame_status is {data.get('frame_status')!r}")
    hardware, after = data.get("hardware") or {}, state.get("after") or {}
    return GateRecord(
        leg=data["benchmark_id"],
        kind="info" if status == INFO else sensitivity,
        status=status,
        reasons=tuple(reason for reason in reasons if reason),
        recorded_at=data["recorded_at"],
        commit=data["git_sha"],
        dirty=None,
        validity=validity,
        concerns=tuple(check.get("concerns") or ()),
        state={name: state.get(name) for name in ("before", "after", "delta", "precheck")} if state else None,
        machine={**hardware, **(after.get("machine") or {}), "perf_class": state.get("perf_class")},
        kernels=data.get("closure") or {},
        configuration={
            name: data[name]
            for name in ("benchmark_name", "target_model", "params", "command", "served_by", "serve_overrides", "atlas_version")
            if name in data
        },
        metrics=metrics,
        statistics=_counts(metrics),
        remarks=tuple(_remarks(data, status)),
        source={"format": FORMAT, "file": path.name, "sha256": digest},
    )


def _counts(metrics: Mapping[str, float]) -> dict[str, Any]:
    """What the metrics that are counts still allow, exactly."""
    found = {}
    for part, whole, words in COUNTS:
        pair = _pair(metrics, part, whole)
        if pair is not None:
            k, n = pair
            found[part] = {"k": k, "n": n, "what": words, "failures_allowed_at_95": upper_limit(n - k, n)}
    return found


def _remarks(data: Mapping, status: str) -> list[str]:
    said = []
    for part, whole, words in COUNTS:
        pair = _pair(data["metrics"], part, whole)
        if pair is not None and pair[0] < pair[1]:
            said.append(f"{status} with {pair[0]} of {pair[1]} {words}, {pair[1] - pair[0]} not")
    if str((data.get("params") or {}).get("update_baseline", "")).lower() == "true":
        said.append("ran with update_baseline: the bar it cleared may be the one it replaced")
    return said


def _pair(metrics: Mapping[str, float], part: str, whole: str) -> tuple[int, int] | None:
    values = [metrics.get(name) for name in (part, whole)]
    if None in values or any(value != int(value) for value in values) or not 0 <= values[0] <= values[1] or values[1] == 0:
        return None
    return int(values[0]), int(values[1])


def _check_types(data: Mapping, where: str) -> None:
    for name, kind in (("benchmark_id", str), ("git_sha", str), ("recorded_at", int), ("metrics", dict), ("verdict", str)):
        if not isinstance(data.get(name), kind) or isinstance(data.get(name), bool):
            raise InputError(f"{where}: {name}: expected {kind.__name__}, found {data.get(name)!r}")


def _check_name(data: Mapping, path: Path) -> None:
    """The file's name says leg, UTC date and commit; they must be those inside."""
    named = NAME.fullmatch(path.name)
    if named is None:
        raise InputError(f"{path}: name: expected LEG__YYYY-MM-DD-SHA.json, found {path.name}")
    date = datetime.fromtimestamp(data["recorded_at"], UTC).strftime("%Y-%m-%d")
    for field, inside, outside in (
        ("benchmark_id", data["benchmark_id"], named["leg"]),
        ("UTC date of recorded_at", date, named["date"]),
        ("git_sha", data["git_sha"], named["sha"]),
    ):
        if inside != outside:
            raise InputError(f"{path}: {field}: expected {outside} as in the file's name, found {inside}")


def _check_state(state: Mapping, recorded_at: int, where: str) -> None:
    """delta = after - before, one machine, and times in order."""
    before, after, delta = state["before"], state["after"], state.get("delta") or {}
    try:
        first, last = before.get("throttle_counters") or {}, after.get("throttle_counters") or {}
        moved = {
            "elapsed_s": _moved(before["captured_at"], after["captured_at"]),
            "gpu_temp_delta_c": _moved(before.get("gpu_temp_c"), after.get("gpu_temp_c")),
            "hottest_chassis_delta_c": _moved(_hottest(before), _hottest(after)),
            **{name: _moved(first.get(name), last.get(name)) for name in {*first, *last}},
        }
        machines = before["machine"], after["machine"]
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f"{where}: hardware_state: expected readings as in schema 1, found {error}") from error
    for name, said in delta.items():
        expected = moved.get(name)
        same = said is None if expected is None else isinstance(said, (int, float)) and abs(said - expected) <= TOLERANCE
        if not same:
            raise InputError(f"{where}: hardware_state.delta.{name}: expected after - before = {expected}, found {said!r}")
    if machines[0] != machines[1]:
        raise InputError(f"{where}: hardware_state: expected one machine before and after, found {machines[0]} and {machines[1]}")
    if not before["captured_at"] <= after["captured_at"] <= recorded_at:
        times = f"{before['captured_at']}, {after['captured_at']}, {recorded_at}"
        raise InputError(f"{where}: expected before, after and recorded_at in order of time, found {times}")


def _moved(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _hottest(snapshot: Mapping) -> float | None:
    return max((zone["temp_c"] for zone in snapshot.get("chassis_temps_c") or ()), default=None)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(pairs)
    if len(known) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} occurs twice in one object")
    return known
