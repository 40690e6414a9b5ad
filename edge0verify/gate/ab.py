"""Runs two arms in rotated rounds and hands the runs to the judge. Result schema `edge0verify.ab/1`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge0verify.gate import machine
from edge0verify.gate.ab_config import Arm, Prompt
from edge0verify.gate.ab_judge import Judged, judge
from edge0verify.gate.ab_read import Run, answer_hash, read_text
from edge0verify.gate.gather import file_sha256
from edge0verify.runtime.process import run_command

SCHEMA = "edge0verify.ab/1"
WARM_UP = -1


@dataclass(frozen=True)
class Result:
    """An A/B benchmark."""

    arms: Mapping[str, Arm]
    runs: tuple[Run, ...]
    order: tuple[str, ...]
    """Sides in the order in which their turns ran, warm-up left out."""
    binaries: Mapping[str, Mapping[str, Mapping[str, str]]]
    state: Mapping[str, Any]
    judged: Judged

    @property
    def status(self) -> str:
        return self.judged.status

    def to_json(self) -> dict[str, Any]:
        """The document that a gate record can rest on."""
        judged = self.judged
        return {
            "schema": SCHEMA,
            "status": judged.status,
            "reasons": list(judged.reasons),
            "notes": list(judged.notes),
            "a": self.arms["a"].name,
            "b": self.arms["b"].name,
            "differs_by": self.arms["a"].differs_by,
            "engaged": dict(judged.engaged),
            "launches": {side: dict(counts) for side, counts in judged.launches.items()},
            "output": dict(judged.output),
            "statistics": {"ratios_b_over_a": [ratio.to_json() for ratio in judged.ratios]},
            "order": "".join(self.order),
            "arms": {
                side: {
                    "name": arm.name,
                    "command": list(arm.command),
                    "cwd": str(arm.cwd),
                    "environment": {name: value for name, value in sorted(arm.env.items()) if name not in arm.inherited},
                    # Their values are the caller's own, perhaps secret: the names alone are kept.
                    "inherited": list(arm.inherited),
                    "binaries": self.binaries[side],
                }
                for side, arm in self.arms.items()
            },
            "machine_state": dict(self.state),
            "runs": [run.to_json() for run in self.runs],
        }


def order_of(rounds: int) -> tuple[tuple[str, str], ...]:
    """The sides of each round: every other round begins with the other side, so that neither is always the warm one."""
    return tuple(("a", "b") if number % 2 == 0 else ("b", "a") for number in range(rounds))


def run_ab(
    a: Arm, b: Arm, *, rounds: int, warm_up: int = 1, confidence: float = 0.95, say: Callable[[str], None] = lambda text: None
) -> Result:
    """Run both arms `rounds` times, `warm_up` turns of each before that count for nothing but faults."""
    arms = {"a": a, "b": b}
    before = {side: _hashes(arm) for side, arm in arms.items()}
    start = machine.snapshot()
    runs: list[Run] = []
    turns = [(WARM_UP, side) for _ in range(warm_up) for side in arms]
    turns += [(number, side) for number, sides in enumerate(order_of(rounds)) for side in sides]
    for number, side in turns:
        say(f"{'warm-up' if number == WARM_UP else f'round {number + 1} of {rounds}'}: {side} ({arms[side].name})")
        for prompt, argv in arms[side].runs():
            runs.append(_run(arms[side], side, number, prompt, argv))
    end = machine.snapshot()
    after = {side: _hashes(arm, gone="gone") for side, arm in arms.items()}
    state = {**machine.judge_state(start, end, kind="speed"), "before": start, "after": end}
    judged = judge(arms, runs, before=before, after=after, rounds=rounds, state=state, confidence=confidence)
    binaries = {
        side: {path: {"before": digest, "after": after[side][path]} for path, digest in before[side].items()} for side in arms
    }
    return Result(arms, tuple(runs), tuple(side for number, side in turns if number != WARM_UP), binaries, state, judged)


def _run(arm: Arm, side: str, number: int, prompt: Prompt | None, argv: tuple[str, ...]) -> Run:
    stamps = [_stamp(path) for path in arm.output_files]
    with tempfile.TemporaryDirectory(prefix="edge0verify-ab-") as folder:
        done = run_command(argv, env=arm.env, cwd=arm.cwd, timeout_s=arm.timeout_s, folder=Path(folder))
        text = "\n".join(_text(path) for path in (done.stdout, done.stderr))
    # A file that the run did not touch is an answer of some earlier run.
    files = [path.read_bytes() if _stamp(path) not in (None, old) else None for path, old in zip(arm.output_files, stamps)]
    read = read_text(arm, prompt, text)
    output, missing = answer_hash(arm, text, files)
    read["missing"] = (*read["missing"], *missing)
    return Run(
        arm=side,
        round=number,
        tokens=prompt.tokens if prompt else None,
        wall_s=done.wall_s,
        trouble=done.trouble(),
        leftover=done.leftover,
        output=output,
        **read,
    )


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _hashes(arm: Arm, *, gone: str | None = None) -> dict[str, str]:
    """Hashes of the arm's binaries; with `gone`, what stands for a file that is not there any more."""
    return {str(path): gone if gone is not None and not path.exists() else file_sha256(path) for path in arm.binaries}
