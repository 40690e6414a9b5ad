"""Was it this change? What the base commit says to a cell that fails, from the history, or by running it there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge0verify.nightly.config import Base
from edge0verify.nightly.history import Result, Run
from edge0verify.records.status import FAIL, PASS
from edge0verify.runtime.process import run_command

UNKNOWN = "not known whether it is this change"


@dataclass(frozen=True, kw_only=True)
class Here:
    """What is running now."""

    commit: str | None
    binary_sha256: str
    kernels_sha256: str


def from_history(
    cell: str, golden: str | None, commit: str, runs: Sequence[Run], results: Sequence[Result]
) -> Mapping[str, Any] | None:
    """The newest clean result of the cell at `commit` against the same golden: {commit, status, source, ...}; None without one."""
    clean = {r.run: r for r in runs if r.commit == commit and not r.dirty}
    found = [r for r in results if r.cell == cell and r.run in clean and r.golden == golden]
    if not found:
        return None
    run = clean[found[-1].run]
    return {
        "commit": commit,
        "status": found[-1].status,
        "exit_code": found[-1].exit_code,
        "source": f"nightly {run.run}",
        "binary_sha256": run.binary_sha256,
        "kernels_sha256": run.kernels_sha256,
    }


def by_running(base: Base, commit: str, spec: Mapping[str, Any], env: Mapping[str, str], cwd: Path) -> Mapping[str, Any]:
    """Run the cell with the configured command; what it wrote to {out}, or why there is nothing."""
    with tempfile.TemporaryDirectory(prefix="edge0verify-") as name:
        folder = Path(name)
        cell, out = folder / "cell.json", folder / "out.json"
        cell.write_text(json.dumps({**spec, "commit": commit, "dirty": False, "keep": str(folder / "dumps")}))
        places = {"{commit}": commit, "{cell}": str(cell), "{out}": str(out)}
        argv = list(base.command)
        for place, value in places.items():
            argv = [word.replace(place, value) for word in argv]
        done = run_command(argv, env=env, cwd=cwd, timeout_s=base.timeout_s, folder=folder)
        if done.error == "stopped":
            raise KeyboardInterrupt
        try:
            found = json.loads(out.read_text())
            return {
                "commit": commit,
                "status": found["status"],
                "exit_code": found["exit_code"],
                "source": "run there",
                "binary_sha256": found.get("binary_sha256"),
                "kernels_sha256": found.get("kernels_sha256"),
            }
        except (OSError, ValueError, KeyError):
            said = (done.stderr.read_text(errors="replace").strip().splitlines() or [""])[-1] if done.stderr.exists() else ""
            why = done.trouble() or "left no answer"
            return {
                "commit": commit,
                "status": None,
                "exit_code": None,
                "source": "run there",
                "trouble": f"{why}: {said}".rstrip(": "),
            }


def weigh(found: Mapping[str, Any] | None, here: Here, commit: str) -> dict[str, Any]:
    """With `not_this_change` and a sentence. One binary under two commits whose kernels differ says nothing: one is stale."""
    short = commit[:10]
    if found is None:
        return {
            "commit": commit,
            "status": None,
            "not_this_change": False,
            "text": f"the base {short} was never run: {UNKNOWN}",
        }
    known, excused = dict(found), False
    same_binary = known.get("binary_sha256") == here.binary_sha256
    other_source = known.get("kernels_sha256") not in (None, here.kernels_sha256)
    if known["status"] is None:
        text = f"the base {short} gave no result ({known.get('trouble')}): {UNKNOWN}"
    elif same_binary and other_source:
        text = f"the base {short} ran the same binary though its kernel sources differ, one is stale: {UNKNOWN}"
    elif known["status"] == FAIL:
        text, excused = f"not this change: it fails on the base {short} too ({known['source']})", True
    elif known["status"] == PASS:
        text = f"this change: it passes on the base {short} ({known['source']})"
    else:
        text = f"the base {short} says {known['status']} ({known['source']}): {UNKNOWN}"
    return {**known, "not_this_change": excused, "text": text}
