"""Collects what a new record carries: evidence from files, commit and dirty paths from git, hashes, machine, ISA."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge0verify.gate import machine
from edge0verify.gate.git import Git, GitError
from edge0verify.gate.record import INFO, GateRecord, weigh
from edge0verify.numerics.stats import upper_limit
from edge0verify.records.errors import InputError
from edge0verify.records.status import EXIT_INCONCLUSIVE, FAIL, INCONCLUSIVE, worst_status
from edge0verify.runtime.process import Finished, run_command


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asks to be recorded."""

    leg: str
    kind: str
    verdicts: tuple[Path, ...]
    metrics: Mapping[str, float]
    counts: Mapping[str, tuple[int, int]]
    """{name: (right, n)}."""
    configuration: Mapping[str, str]
    binaries: tuple[Path, ...]
    command: tuple[str, ...] = ()
    """Run between the two snapshots of the machine; it writes the verdicts."""
    timeout_s: float = 3600.0
    repository: Path
    store: Path


def record(request: Request, *, show: Callable[[bytes], None] = lambda text: None) -> GateRecord:
    """Run the command, if there is one, and make the record. Nothing is stored here; `show` gets the command's output."""
    git = Git(request.repository)
    commit, dirty, git_trouble = _tree(git, request)
    binaries = {str(path): file_sha256(path) for path in request.binaries}
    before, began = machine.snapshot(), time.time()
    finished = _run(request, show)
    after = machine.snapshot()
    documents = [_document(path, written_after=began if finished else None) for path in request.verdicts]
    status, reasons, engagement = weigh(documents, where=[str(path) for path in request.verdicts])
    if finished is not None and finished.trouble():
        # The tool's own exit codes keep their meaning; a crash or any other code is a failure of the run.
        said = {EXIT_INCONCLUSIVE: INCONCLUSIVE}.get(finished.rc, FAIL)
        status, reasons = worst_status([status, said]), (*reasons, f"the command {finished.trouble()}")
    changed = [path for path, digest in binaries.items() if file_sha256(Path(path)) != digest]
    if changed:
        raise InputError(f"{changed[0]}: expected the same file before and after the run, found another content")
    # Without a command between them, two snapshots say nothing about the run: it was over before.
    state = {"before": before if finished else None, "after": after}
    judged = machine.judge_state(state["before"], after, kind=request.kind)
    return GateRecord(
        leg=request.leg,
        kind=request.kind,
        status=INFO if request.kind == "info" else status,
        reasons=reasons,
        recorded_at=time.time(),
        commit=commit,
        dirty=dirty,
        validity=judged["validity"],
        concerns=tuple(judged["concerns"]),
        state={**state, "delta": judged["delta"]},
        machine={**after["machine"], "devices": [device["name"] for device in after["devices"]], "driver": _drivers(after)},
        binaries=binaries,
        kernels=_kernels(documents, request.verdicts),
        configuration={**request.configuration, **({"command": list(request.command)} if request.command else {})},
        metrics=dict(request.metrics),
        verdicts=tuple(documents),
        engagement=engagement,
        isa={
            "cpu_flags": machine.isa_flags(),
            "used": sorted({isa for d in documents if (isa := _environment(d).get("isa"))}) or None,
        },
        statistics=_statistics(request, documents),
        remarks=tuple(git_trouble),
    )


def file_sha256(path: Path) -> str:
    """The hash of a file that has to be there."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: expected a file to hash, found: {error.strerror}") from error


def store_prefix(git: Git, store: Path) -> tuple[str, ...]:
    """The store's folder as paths of the tree start with it: what lies there never makes a tree dirty or a record void."""
    try:
        inside = store.resolve().relative_to(git.top().resolve())
    except (GitError, ValueError):
        return ()
    return (f"{inside.as_posix()}/",) if inside.parts else ()


def _tree(git: Git, request: Request) -> tuple[str | None, tuple[str, ...] | None, list[str]]:
    try:
        commit, paths = git.resolve("HEAD"), git.dirty()
    except GitError as error:
        return None, None, [f"no commit: {error}"]
    # The evidence itself is often written into the tree; it is kept in the record, so it is no dirt.
    own = store_prefix(git, request.store)
    evidence = {path.resolve() for path in request.verdicts}
    top = git.top()
    return commit, tuple(path for path in paths if not path.startswith(own) and (top / path).resolve() not in evidence), []


def _run(request: Request, show: Callable[[bytes], None]) -> Finished | None:
    if not request.command:
        return None
    with tempfile.TemporaryDirectory(prefix="edge0verify-gate-") as folder:
        done = run_command(request.command, env=dict(os.environ), cwd=Path.cwd(), timeout_s=request.timeout_s, folder=Path(folder))
        for path in (done.stdout, done.stderr):
            if path.exists():
                show(path.read_bytes())
    if done.error is not None:
        raise InputError(f"{request.command[0]}: expected a command that starts, found: {done.error}")
    return done


def _document(path: Path, *, written_after: float | None) -> dict[str, Any]:
    """One evidence file. With a command run for it, a file that is older than the run is refused: it is of another run."""
    try:
        # File times are taken from a clock that ticks every few milliseconds.
        if written_after is not None and path.stat().st_mtime < written_after - 0.05:
            raise InputError(f"{path}: expected a verdict that this run wrote, found one that is older than the run")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: expected a verdict, found: {error.strerror}") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: expected a verdict in JSON, found: {error}") from error


def _environment(document: Mapping) -> Mapping:
    return document.get("environment") or {}


def _kernels(documents: Sequence[Mapping], paths: Sequence[Path]) -> dict[str, Any]:
    """The kernels' hashes that the evidence names; two verdicts of different kernels make no record."""
    found: dict[str, Any] = {}
    for document, path in zip(documents, paths):
        for name in ("kernels_sha256", "binary_sha256"):
            value = _environment(document).get(name)
            if value is not None and found.setdefault(name, value) != value:
                raise InputError(f"{path}: environment.{name}: expected {found[name]} as in the other verdicts, found {value}")
    return found


def _statistics(request: Request, documents: Sequence[Mapping]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (right, n) in request.counts.items():
        found[name] = {"k": right, "n": n, "failures_allowed_at_95": upper_limit(n - right, n)}
    for path, document in zip(request.verdicts, documents):
        if document.get("statistics"):
            found[str(path)] = document["statistics"]
    return found


def _drivers(snapshot: Mapping) -> list[str] | None:
    return sorted({str(device["driver"]) for device in snapshot["devices"] if device.get("driver")}) or None
