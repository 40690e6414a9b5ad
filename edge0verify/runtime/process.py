"""Starts a command under the supervisor and hands back how it ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SUPERVISOR = Path(__file__).with_name("supervise.py")
CLEAN_UP_S = 20.0
"""How long the supervisor may take to end a command that will not end: its own grace and sweep, and some."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a command ended."""

    rc: int | None
    """Exit status, negative for a signal; None when it did not start."""
    wall_s: float | None
    timed_out: bool
    leftover: tuple[str, ...]
    """Names of processes that outlived the command and were killed."""
    error: str | None
    """Why it did not start."""
    stdout: Path
    stderr: Path

    def trouble(self) -> str | None:
        """What went wrong in a few words, or None."""
        if self.error is not None:
            return f"did not start ({self.error})"
        if self.timed_out:
            return f"ran past its time limit and was killed after {self.wall_s:.1f} s"
        if self.rc is not None and self.rc < 0:
            return f"was ended by signal {-self.rc}"
        return f"exited with {self.rc}" if self.rc else None


def run_command(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    timeout_s: float,
    folder: Path,
    idle: bool = False,
    scratch: bool = False,
) -> Finished:
    """Run `argv` with exactly `env` in `cwd`; its output goes to `folder`/stdout and `folder`/stderr.

    timeout_s: of the whole command, or with `idle` since its last line on stdout.  Whatever happens here (an interrupt, a kill),
    the command and all that it started are ended; with `scratch` the folder goes too where this process ends first.
    """
    stdout, stderr = folder / "stdout", folder / "stderr"
    order = {
        "argv": list(argv),
        "env": dict(env),
        "cwd": str(cwd),
        "stdout": str(stdout),
        "stderr": str(stderr),
        "timeout_s": timeout_s,
        "idle": idle,
        "scratch": str(folder) if scratch else None,
    }
    supervisor = subprocess.Popen(
        [sys.executable, "-I", "-S", str(SUPERVISOR)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        supervisor.stdin.write((json.dumps(order) + "\n").encode())
        supervisor.stdin.flush()
        answer = supervisor.stdout.read()
    finally:
        # Closing the pipe is the order to stop; in the ordinary case the supervisor is gone already.
        supervisor.stdin.close()
        try:
            supervisor.wait(CLEAN_UP_S)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()
        supervisor.stdout.close()
    try:
        report = json.loads(answer)
    except ValueError:
        report = {"rc": None, "wall_s": None, "timed_out": False, "leftover": [], "error": "its supervisor was killed"}
    report["leftover"] = tuple(report["leftover"])
    return Finished(**report, stdout=stdout, stderr=stderr)
