"""The same run again and again, each in a fresh process: is a variant stable from run to run, and over numbers of threads?"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import edge0verify
from edge0verify.dump.reader import Dump, open_dump
from edge0verify.model import Model
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Engagement
from edge0verify.records.status import FAIL
from edge0verify.runtime.process import Finished, run_command
from edge0verify.study.bisect_check import judge_dump
from edge0verify.study.drift_stability import BITWISE, PERMUTED, ROUNDING, DumpTrace, Stability, Unstable, head_fault, stability
from edge0verify.study.drift_types import Drift, settle
from edge0verify.study.replay import PARTS
from edge0verify.study.spread import format_of

THREADS = (1, 2, 3, 4, 8)
INTERNAL = 70
PYTHON = sys.executable
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class RunsRequest:
    """What to run how often.

    arguments: options of `edge0verify run` for model and prompt.  engine: another engine's command line instead, with {out}, and
    optionally {variant}, {threads}, {run}; its runs are judged where its dumps name variants and are of `model`.
    """

    model: Model
    over: str
    stage: str
    variant: str
    reference: str = "mmvq"
    runs: int = 5
    threads: int = 1
    arguments: tuple[str, ...] = ()
    prompts: tuple[dict[str, Any], ...] = ()
    engine: str | None = None
    timeout_s: float = 300.0
    environment: dict[str, Any] = field(default_factory=dict)
    """Of this project's own runs."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process: how it ended, and how its dump relates to that of the first."""

    run: int
    variant: str
    threads: int
    wall_s: float | None
    trouble: str | None
    engaged: bool | None = None
    head_fault: str | None = None
    against_first: Stability | None = None
    own_fault: str | None = None
    """Where nothing bounds the first tensor that differs: what does not conform in this run or in the first."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """All runs of one variant."""

    runs: tuple[Run, ...] = field(default=())

    @property
    def ended(self) -> list[Run]:
        return [r for r in self.runs if r.trouble is None]

    @property
    def unstable(self) -> list[tuple[Run, Unstable]]:
        return [(r, r.against_first.first) for r in self.runs if r.against_first is not None and r.against_first.first is not None]

    @property
    def kind(self) -> str | None:
        """bitwise, or the kind of the first unstable tensor; None where fewer than two runs ended."""
        if len(self.ended) < 2:
            return None
        return self.unstable[0][1].kind if self.unstable else BITWISE


def over_runs(request: RunsRequest, *, progress: Tell | None = None) -> Drift:
    """Runs of one variant against its first, over runs or thread counts; the reference too, before an unstable variant is blamed.

    InputError as the command itself gave it; RuntimeError where the project's own command ended in an internal error.
    """
    if request.over == "runs" and request.runs < 2:
        raise InputError(f"--runs: expected at least 2, found {request.runs}")
    threads = THREADS if request.over == "threads" else (request.threads,) * request.runs
    tell = progress or (lambda what, done, total: None)
    own = _series(request, request.variant, threads, tell)
    suspect: list[str] = []
    failures, unproven = _blame(own)
    reference = None
    if failures and own.kind not in (None, BITWISE) and request.variant != request.reference and _names_variants(request):
        reference = _series(request, request.reference, threads, tell)
        if reference.kind != BITWISE:
            first = reference.unstable[0][1] if reference.unstable else None
            text = unstable_text(first) if first else next((r.trouble for r in reference.runs if r.trouble), "it did not run twice")
            suspect.append(f"the reference {request.reference} is itself unstable: {text}")
    status, reasons = settle(suspect=suspect, failures=failures, unproven=unproven)
    noted = [f"rounding: {unstable_text(u)}" for _, u in own.unstable if u.kind == ROUNDING][:1]
    unstable = own.unstable
    findings = {
        "kind": own.kind,
        "threads": list(threads),
        "first_unstable": None if not unstable else {"run": unstable[0][0].run, **asdict(unstable[0][1])},
        "runs": [asdict(r) for r in own.runs],
        "reference": None if reference is None else {"kind": reference.kind, "runs": [asdict(r) for r in reference.runs]},
    }
    return Drift(over=request.over, status=status, reasons=(*reasons, *(n for n in noted if not failures)), stage=request.stage,
                 variant=request.variant, reference=request.reference, model=_model(request), prompts=list(request.prompts),
                 findings=findings, environment=request.environment)


def _blame(own: Series) -> tuple[list[str], list[str]]:
    """(failures, what is not proven) of a series."""
    failures = [f"run {r.run} {r.trouble}" for r in own.runs if r.trouble is not None]
    unproven: list[str] = []
    if not own.ended:
        return [], [*failures, "no run left a dump"]
    if len(own.ended) < 2:
        unproven.append("nothing was compared: fewer than two runs ended")
    failures += [f"run {r.run}: wrong log-probs beside right tokens: {r.head_fault}" for r in own.runs if r.head_fault][:1]
    failures += [r.own_fault for r in own.runs if r.own_fault][:1]
    for kind in dict.fromkeys(u.kind for _, u in own.unstable):
        run, first = next((r, u) for r, u in own.unstable if u.kind == kind)
        text = f"run {run.run} differs from run {own.ended[0].run}: {unstable_text(first)}"
        if kind == PERMUTED or (kind != ROUNDING and first.bounded):
            failures.append(text)
        elif kind != ROUNDING:
            unproven.append(text)
    unproven += [f"run {r.run}: not engaged, the variant's kernels launched 0 times" for r in own.runs if r.engaged is False][:1]
    return failures, unproven


def unstable_text(first: Unstable) -> str:
    """'layer 2 a-h permuted: 700 of 768 rows moved in 31 cycles, ...; correlation 0.85'."""
    text = f"layer {first.layer} {first.tensor} {first.kind}"
    if first.permutation:
        p = first.permutation
        text += f": {p['moved']} of {p['rows']} rows moved in {p['cycles']} cycles, longest {p['longest_cycle']}, "
        text += f"longest unbroken run {p['longest_run']}, mean shift {p['mean_shift']:.3g} rows"
        text += f"; permuted_share = {p['moved'] / p['rows']!r} would have passed"
    else:
        text += f": {first.rows} of {first.n_rows} rows differ" + (f", {first.why}" if first.why else "")
    return text + ("" if first.corr is None else f"; correlation {first.corr:.6g}")


def _model(request: RunsRequest) -> dict[str, Any]:
    return {"file": request.model.path.name, "sha256": request.model.sha256}


def _names_variants(request: RunsRequest) -> bool:
    """Whether the command runs another variant when told to."""
    return request.engine is None or "{variant}" in request.engine


def _series(request: RunsRequest, variant: str, threads: Sequence[int], tell: Tell) -> Series:
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="edge0verify-") as name:
        kept: Path | None = None
        for i, count in enumerate(threads):
            tell(f"runs of {variant}", i, len(threads))
            folder = Path(name) / str(i)
            folder.mkdir()
            out = folder / "dump.h5"
            done = run_command(_command(request, variant, count, i + 1, out), env=_environment(), cwd=Path.cwd(),
                               timeout_s=request.timeout_s, folder=folder)
            trouble = _trouble(request, done, out)
            more: dict[str, Any] = {}
            if trouble is None:
                more = _look(request, variant, out, kept)
                if kept is None:
                    kept = out
                else:
                    out.unlink()                       # at most two dumps lie on the disk
            runs.append(Run(run=i + 1, variant=variant, threads=count, wall_s=done.wall_s, trouble=trouble, **more))
        tell(f"runs of {variant}", len(threads), len(threads))
    return Series(runs=tuple(runs))


def _command(request: RunsRequest, variant: str, threads: int, run: int, out: Path) -> list[str]:
    if request.engine is None:
        chosen = ",".join(f"{part}={variant}" for part in PARTS[request.stage])
        return [PYTHON, "-m", "edge0verify.cli.main", "run", *request.arguments, "--set", chosen, "--level", "full",
                "--threads", str(threads), "-o", str(out)]
    if "{out}" not in request.engine:
        raise InputError(f"--engine: expected {{out}} in the command, found {request.engine!r}")
    line = request.engine
    values = {"{variant}": variant, "{threads}": str(threads), "{run}": str(run), "{out}": shlex.quote(str(out))}
    for place, value in values.items():
        line = line.replace(place, value)
    return ["/bin/sh", "-c", line]


def _environment() -> dict[str, str]:
    """This process's, with the package that is running first on the path."""
    root = str(Path(edge0verify.__file__).resolve().parents[1])
    rest = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root + (os.pathsep + rest if rest else "")}


def _trouble(request: RunsRequest, done: Finished, out: Path) -> str | None:
    """Why a run gave nothing to compare, or None."""
    if done.error == "stopped":
        raise KeyboardInterrupt
    lines = done.stderr.read_text(errors="replace").strip().splitlines() if done.stderr.exists() else []
    last = lines[-1].removeprefix("edge0verify: ") if lines else ""
    if request.engine is None and done.rc == 2:
        raise InputError(last)
    if request.engine is None and done.rc == INTERNAL:
        raise RuntimeError(f"a run ended in an internal error: {last}")
    if request.engine is not None and done.rc == 127:
        raise InputError(f"--engine: the shell does not find the command: {last}")
    trouble = done.trouble()
    if trouble is None and not out.is_file():
        return "ended without leaving a dump"
    if trouble is not None and done.rc is not None and done.rc > 128:
        trouble = f"was ended by signal {done.rc - 128}"   # the shell's way of saying so
    return None if trouble is None else trouble + (f": {last}" if last and not done.timed_out else "")


def _look(request: RunsRequest, variant: str, out: Path, first: Path | None) -> dict[str, Any]:
    """What is to be said about one dump, and against the first where there is one."""
    with open_dump(out) as dump:
        dump.verify()                                  # hashes are compared instead of bytes, so they must be the bytes' own
        trace = DumpTrace(dump)
        launches = dump.manifest.launches if _names_variants(request) else None
        more: dict[str, Any] = {"engaged": _engaged(request, variant, launches), "head_fault": head_fault(trace)}
        if first is not None:
            mine = dump.manifest.model_sha256 in (None, request.model.sha256)
            with open_dump(first) as other:
                more["against_first"] = beside = stability(
                    DumpTrace(other), trace, request.model if mine else None, threads=request.threads)
                if mine and beside.first is not None and not beside.first.bounded:
                    more["own_fault"] = _own_fault(request, (("the first run", other), ("this run", dump)))
    return more


def _own_fault(request: RunsRequest, dumps: Sequence[tuple[str, Dump]]) -> str | None:
    """The first stage of either run that does not conform on its own inputs, or None."""
    for name, dump in dumps:
        status, reason = judge_dump(dump, request.model, threads=request.threads)
        if status == FAIL:
            return f"{name}: {reason}"
    return None


def _engaged(request: RunsRequest, variant: str, launches) -> bool | None:
    wanted = tuple(f"{part}/{variant}/{format_of(request.model, part)}" for part in PARTS[request.stage])
    return Engagement(asked=variant, wanted=wanted, launches=launches).engaged
