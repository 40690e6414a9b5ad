"""One nightly: every cell in a process of its own, each result on disk before the next begins, resumed where it was interrupted."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import edge0verify
from edge0verify.gate.git import Git, GitError
from edge0verify.gate.machine import identity
from edge0verify.nightly import base as bases
from edge0verify.nightly.child import INTERNAL
from edge0verify.nightly.config import Cell, Config
from edge0verify.nightly.history import History, Result, Run, now
from edge0verify.nightly.keep import prune
from edge0verify.nightly.outputs import write_outputs
from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.report.tables import figure
from edge0verify.runtime.process import Finished, run_command
from edge0verify.variants.kernels import Kernels, kernel_source_sha256

HISTORY, LOCK = "history.db", "lock"
FOLLOWED = {
    "compared": "elements",
    "equal_pct": "equal %",
    "max_rel_l2": "largest rel-L2",
    "top8_move": "top 8",
    "anchor_equal_pct": "equal % with the anchor",
    "anchor_top8_move": "top 8 from the anchor",
}
"""Figures that are followed from night to night."""
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Night:
    """A nightly that came to its end. resumed: results that an interrupted one had left."""

    run: Run
    folder: Path
    results: tuple[Result, ...]
    resumed: int = 0
    pruned: tuple[Path, ...] = ()
    missing: tuple[str, ...] = ()
    written: tuple[Path, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        return worst([r.exit_code for r in self.results], self.missing)

    @property
    def status(self) -> str:
        return {0: PASS, 1: FAIL, 3: INCONCLUSIVE}.get(self.exit_code, INTERNAL if self.exit_code == 70 else "INPUT")


def worst(codes: list[int], missing: tuple[str, ...] = ()) -> int:
    """The exit code over all cells; one without a result proves nothing."""
    return statuses.worst_exit([*codes, *([statuses.EXIT_INCONCLUSIVE] if missing else [])])


def run(config: Config, *, commit: str | None, dirty: bool | None, fresh: bool = False, progress: Tell | None = None) -> Night:
    """Run what is left of the nightly. fresh: begin a new one though the last was interrupted.

    InputError where another nightly holds the lock, or the folder cannot be written.
    """
    tell = progress or (lambda what, done, total: None)
    try:
        config.out.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise InputError(f"{config.out}: expected a folder that can be written, found: {wrong.strerror}") from None
    with _locked(config.out / LOCK), History(config.out / HISTORY) as history:
        this = Run(
            run=0,
            started=now(),
            commit=commit,
            dirty=dirty,
            binary_sha256=Kernels(threads=1).binary_sha256(),
            kernels_sha256=kernel_source_sha256(),
            config_sha256=config.sha256,
            machine=identity(),
            config={"path": str(config.path), "text": config.text},
        )
        left = None if fresh else _unfinished(history, this)
        number = left.run if left else history.begin(this, [(c.name, c.spec) for c in config.cells])
        this = replace(this, run=number, started=left.started if left else this.started)
        folder = config.out / f"run-{number:05d}"
        folder.mkdir(exist_ok=True)
        done = {r.cell for r in history.results(number)}
        todo = [cell for cell in config.cells if cell.name not in done]
        for at, cell in enumerate(todo):
            tell("cells", len(done) + at, len(config.cells))
            history.add_result(number, _cell(config, cell, this, folder, history))
        tell("cells", len(config.cells), len(config.cells))
        night = _end(config, history, this, folder, resumed=len(done))
        return replace(night, pruned=tuple(prune(config.out, config.keep, current=folder)))


def _unfinished(history: History, this: Run) -> Run | None:
    """The last nightly, where it was interrupted and was of the same plan, commit and kernels."""
    last = (history.runs() or [None])[-1]
    same = ("commit", "dirty", "binary_sha256", "kernels_sha256", "config_sha256")
    if last is None or last.status is not None or any(getattr(last, name) != getattr(this, name) for name in same):
        return None
    return last


def _end(config: Config, history: History, this: Run, folder: Path, *, resumed: int) -> Night:
    results = history.results(this.run, verdicts=True)
    planned = [cell for cell, _ in history.planned(this.run)]
    missing = tuple(cell for cell in planned if cell not in {r.cell for r in results})
    night = Night(run=this, folder=folder, results=tuple(results), resumed=resumed, missing=missing)
    history.finish(this.run, night.status, night.exit_code)
    return replace(night, written=tuple(write_outputs(night, history.path)))


# ---- one cell -----------------------------------------------------------------------------------------------------------------


def _cell(config: Config, cell: Cell, this: Run, folder: Path, history: History) -> Result:
    place = _place(folder, cell.name)
    spec = {**cell.spec, "threads": config.threads, "commit": this.commit, "dirty": this.dirty, "keep": str(place)}
    told, out = place / "cell.json", place / "result.json"
    told.write_text(json.dumps(spec, indent=1))
    argv = [sys.executable, "-m", "edge0verify.nightly.child", str(told), str(out)]
    ended = run_command(argv, env=environment(), cwd=config.path.parent, timeout_s=config.timeout_s, folder=place)
    if ended.error == "stopped":
        raise KeyboardInterrupt
    result = _read(cell.name, ended, out)
    result = _held_to_the_past(_since_last(result, history), this, history)
    if result.status == FAIL and config.base is not None:
        result = replace(result, base=_base(config, cell, spec, result, this, history))
        result = replace(result, reasons=(result.base["text"], *result.reasons))
    if result.status == PASS:
        for left in place.iterdir():
            left.unlink()
        place.rmdir()
    return result


def _place(folder: Path, cell: str) -> Path:
    """A folder of its own for the cell; never one that a killed nightly's child may still be writing to."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", cell)
    for n in range(1, 1 << 30):
        place = folder / (name if n == 1 else f"{name}~{n}")
        with contextlib.suppress(FileExistsError):
            place.mkdir()
            return place
    raise AssertionError("unreachable")


def _read(name: str, ended: Finished, out: Path) -> Result:
    """What the cell's process left, or what its end says: a crash and a hang are results too."""
    common: dict[str, Any] = {"cell": name, "time": now(), "wall_s": ended.wall_s}
    crashed = ended.timed_out or ended.rc is None or ended.rc < 0
    if not crashed and out.is_file():
        found = json.loads(out.read_text())
        if found["exit_code"] == ended.rc:
            known = ("status", "exit_code", "metrics", "golden", "dump", "digest", "verdict")
            more = {key: found[key] for key in known if found.get(key) is not None}
            return Result(**common, **more, reasons=tuple(found["reasons"]), remarks=tuple(found.get("remarks", ())))
    lines = ended.stderr.read_text(errors="replace").strip().splitlines() if ended.stderr.exists() else []
    why = (ended.trouble() or "ended without a result") + (f": {lines[-1]}" if lines else "")
    if ended.timed_out or (ended.rc is not None and ended.rc < 0):
        return Result(**common, status=FAIL, exit_code=statuses.EXIT_FAIL, reasons=(f"the cell {why}",))
    return Result(**common, status=INTERNAL, exit_code=statuses.EXIT_INTERNAL, reasons=(f"the cell {why}",))


def _since_last(result: Result, history: History) -> Result:
    """With a remark where a figure moved since the cell's last result: drift from night to night."""
    past = [r for r in history.results(cell=result.cell) if r.metrics]
    if not past or not result.metrics:
        return result
    moved = [name for name in FOLLOWED if name in result.metrics and result.metrics[name] != past[-1].metrics.get(name)]
    said = [f"{FOLLOWED[name]} {figure(past[-1].metrics.get(name), 8)} -> {figure(result.metrics[name], 8)}" for name in moved]
    if result.golden != past[-1].golden:
        said.append("another golden was accepted")
    return replace(result, remarks=(*result.remarks, f"since nightly {past[-1].run}: {', '.join(said)}")) if said else result


def _held_to_the_past(result: Result, this: Run, history: History) -> Result:
    """One commit, one binary, one golden, and another answer: neither of the two can be relied on."""
    if this.dirty or this.commit is None:
        return result
    alike = {r.run for r in history.runs() if (r.commit, r.dirty, r.binary_sha256) == (this.commit, this.dirty, this.binary_sha256)}
    past = [r for r in history.results(cell=result.cell) if r.run in alike and r.run != this.run and r.golden == result.golden]
    other = [
        r
        for r in past
        if r.status != result.status or (r.digest is not None and result.digest is not None and r.digest != result.digest)
    ]
    if not other:
        return result
    text = (
        f"another answer from the same commit and binary: nightly {other[-1].run} said {other[-1].status} at {other[-1].time[:16]}"
    )
    if result.status != PASS:
        return replace(result, remarks=(*result.remarks, text))
    return replace(result, status=INCONCLUSIVE, exit_code=statuses.EXIT_INCONCLUSIVE, reasons=(text, *result.reasons))


def _base(config: Config, cell: Cell, spec: Mapping[str, Any], result: Result, this: Run, history: History) -> dict[str, Any]:
    base = config.base
    try:
        commit = Git(config.path.parent).resolve(base.commit)
    except GitError as wrong:
        return {
            "commit": None,
            "status": None,
            "not_this_change": False,
            "text": f"the base {base.commit} is not known here ({wrong})",
        }
    here = bases.Here(commit=this.commit, binary_sha256=this.binary_sha256, kernels_sha256=this.kernels_sha256)
    if commit == this.commit and not this.dirty:
        return {"commit": commit, "status": None, "not_this_change": False, "text": f"this is the base {commit[:10]} itself"}
    found = bases.from_history(cell.name, result.golden, commit, history.runs(), history.results(cell=cell.name))
    if found is None and base.command:
        found = bases.by_running(base, commit, spec, environment(), config.path.parent)
    return bases.weigh(found, here, commit)


def environment() -> dict[str, str]:
    """This process's, with the package that is running first on the path."""
    root = str(Path(edge0verify.__file__).resolve().parents[1])
    rest = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root + (os.pathsep + rest if rest else "")}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one nightly per folder. The lock goes with the process, however it ends."""
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise InputError(
                f"{path}: expected no other nightly at work here, found process {file.read().strip() or 'unknown'}"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
