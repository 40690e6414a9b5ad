"""Runs one command and ends everything it started: a program of its own, started as `python -I -S supervise.py`.

It stands between the tool and the command so that nothing is left behind however the tool ends. It adopts orphans of
the command (a daemon that forks twice comes back to it), and it reads the tool's pipe: when that closes, because the
tool was interrupted or killed, it kills what it started. The time is taken here, round the command alone.

In: one JSON line {argv, env, cwd, stdout, stderr, timeout_s, idle, scratch}. Out: one JSON line {rc, wall_s, timed_out,
leftover, error}. idle: whether timeout_s counts from the command's last output. scratch: a folder that nobody needs when the
tool is gone, or null.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LINUX = sys.platform.startswith("linux")
LIBC = ctypes.CDLL(None, use_errno=True) if LINUX else None
TERM_GRACE_S = 2.0
SWEEP_S = 10.0


class Stopped(Exception):
    """A signal asked the supervisor to end."""


def main() -> None:
    """Read the order, run it, report."""
    order = json.loads(sys.stdin.buffer.readline())
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stop)
    report = {"rc": None, "wall_s": None, "timed_out": False, "leftover": [], "error": None}
    try:
        _run(order, report)
    except (OSError, ValueError) as error:
        report["error"] = f"{type(error).__name__}: {error}"
    except Stopped:
        report["error"] = "stopped"
    finally:
        report["leftover"] += sweep()
    if report["error"] == "stopped" and order["scratch"] is not None:
        shutil.rmtree(order["scratch"], ignore_errors=True)
    with contextlib.suppress(BrokenPipeError):  # a tool that was killed reads no answer
        os.write(1, (json.dumps(report) + "\n").encode())


def _stop(number, frame) -> None:
    # Only the first signal interrupts: a second one must not cut the sweep short.
    for other in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    raise Stopped


def adopt_orphans() -> None:
    """Become the parent of every orphan below this process (Linux); elsewhere the session's group must do."""
    if LINUX:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_the_supervisor() -> None:
    """In the command's process before it starts: nobody else would end it if the supervisor itself is killed (Linux)."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _run(order: dict, report: dict) -> None:
    with open(order["stdout"], "wb") as out, open(order["stderr"], "wb") as err:
        began = time.monotonic()
        child = subprocess.Popen(
            order["argv"],
            env=order["env"],
            cwd=order["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=end_with_the_supervisor if LINUX else None,
        )
        ended = wait(child, order["timeout_s"], order["stdout"] if order["idle"] else None)
        if ended == "exit":
            report["rc"] = child.wait()
            report["wall_s"] = time.monotonic() - began
            return
        report["timed_out"] = ended == "timeout"
        report["error"] = None if ended == "timeout" else "stopped"
        terminate(child)
        report["rc"] = child.wait()
        report["wall_s"] = time.monotonic() - began


def wait(child: subprocess.Popen, timeout_s: float, output: str | None) -> str:
    """'exit', 'timeout', or 'closed' when the tool's end of the pipe is gone.  output: the file that shows life."""
    descriptor = os.pidfd_open(child.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(0, select.POLLIN | select.POLLHUP)
        events, left = {}, timeout_s
        while not events and left > 0:
            events = dict(poll.poll(left * 1000))
            left = 0 if output is None else min(timeout_s, timeout_s - (time.time() - os.stat(output).st_mtime))
    finally:
        os.close(descriptor)
    if descriptor in events:
        return "exit"
    return "closed" if events else "timeout"


def terminate(child: subprocess.Popen) -> None:
    """Ask the group to end; what does not is killed with all that it started."""
    _signal_group(child.pid, signal.SIGTERM)
    try:
        child.wait(TERM_GRACE_S)
    except subprocess.TimeoutExpired:
        _signal_group(child.pid, signal.SIGKILL)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def sweep() -> list[str]:
    """Kill every process below this one until none is left; returns their names."""
    names, until = {}, time.monotonic() + SWEEP_S
    while time.monotonic() < until:
        below = descendants(os.getpid())
        names.update(below)
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        if not below:
            break
        time.sleep(0.002)
    return sorted(names.values())


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants(root: int) -> dict[int, str]:
    """{pid: name} of the live processes below `root`, from /proc."""
    parents, names = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        # The name may hold spaces and brackets: the last bracket ends it.
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        if rest[0] != "Z":
            parents[int(entry)], names[int(entry)] = int(rest[1]), name
    found: dict[int, str] = {}
    grown = True
    while grown:
        grown = False
        for pid, parent in parents.items():
            if pid not in found and (parent == root or parent in found):
                found[pid] = names[pid]
                grown = True
    return found


if __name__ == "__main__":
    main()
