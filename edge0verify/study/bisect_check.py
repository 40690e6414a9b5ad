"""Search over runs of an outside engine: the first candidate, in a given order, whose dump does not conform.

The engine is a command line; each run leaves a dump.  Answers are kept in a file after every run, so that a search that was
interrupted goes on where it stood.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from edge0verify.compare import DEFAULT
from edge0verify.dump.reader import Dump, open_dump
from edge0verify.model import Model
from edge0verify.model.model import file_sha256
from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import plain
from edge0verify.runtime.process import run_command
from edge0verify.study.bisect_judge import judge_route, judge_stages

SCHEMA = "edge0verify.bisect-search/1"
STATE = "edge0verify.bisect-state/1"
GOOD, BAD, SKIPPED = "good", "bad", "skipped"
PLACES = ("{layers}", "{flags}", "{candidate}")
SKIP_STATUS = 125
"""Exit status by which a command says that this candidate cannot be tried, as git bisect has it."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What to search.  candidates: values of {layers}, {flags} or {candidate}, in order; good: a dump to compare with."""

    command: str
    candidates: tuple[str, ...]
    model: Model
    good: Path | None = None
    state: Path | None = None
    timeout_s: float = 600.0
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One run: the comparison's exit code (None where there was no dump to compare) and what it means."""

    index: int
    candidate: str
    answer: str
    exit: int | None
    reason: str
    wall_s: float | None


@dataclass(frozen=True, kw_only=True)
class Found:
    """The outcome of a search."""

    status: str
    reasons: tuple[str, ...]
    command: str
    candidates: tuple[str, ...]
    tried: tuple[Tried, ...]
    first_bad: str | None = None
    last_good: str | None = None
    resumed: int = 0
    """Answers that were taken from the state file."""
    environment: dict[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return statuses.exit_code(self.status)

    def to_json(self) -> dict[str, Any]:
        return plain({"schema": SCHEMA, **asdict(self)})

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"


def layer_candidates(command: str, layers: int) -> tuple[str, ...]:
    """'0-0', '0-1', ... for a command with {layers}; InputError for one that needs candidates of its own."""
    if "{layers}" not in command:
        raise InputError("--check: expected --candidate TEXT at least once, or {layers} in the command")
    return tuple(f"0-{last}" for last in range(layers))


def next_candidate(answers: Mapping[int, str], n: int) -> int | None:
    """The candidate to try next, or None where the answers decide.  Pure: the last one first, then halves, around skipped ones."""
    if n - 1 not in answers:
        return n - 1
    low = max((i for i, answer in answers.items() if answer == GOOD), default=-1)
    high = min((i for i, answer in answers.items() if answer == BAD), default=None)
    if high is None:
        # No bad one yet: where the last could not be tried, the one before it stands for it.
        return next((i for i in range(n - 1, low, -1) if i not in answers), None)
    middle = (low + high) // 2 if low + 1 < high else None
    open_ones = [i for i in range(low + 1, high) if i not in answers]
    if middle is None or not open_ones:
        return None
    return min(open_ones, key=lambda i: (abs(i - middle), i))


def conclude(answers: Mapping[int, str], candidates: Sequence[str]) -> tuple[str, tuple[str, ...], str | None, str | None]:
    """(status, reasons, first bad, last good) once `next_candidate` has nothing left."""
    good = [i for i, answer in answers.items() if answer == GOOD]
    bad = [i for i, answer in answers.items() if answer == BAD]
    skipped = [i for i, answer in answers.items() if answer == SKIPPED]
    if good and bad and max(good) > min(bad):
        text = f"{candidates[min(bad)]!r} is bad and {candidates[max(good)]!r} after it is good: expected the bad ones last"
        return INCONCLUSIVE, (text,), None, None
    if not bad:
        if len(candidates) - 1 in good:
            return PASS, (), None, candidates[-1]
        return INCONCLUSIVE, (f"no candidate is bad, and the last that could be tried is "
                              f"{candidates[max(good)]!r}" if good else "no candidate could be tried",), None, None
    first, last = min(bad), max(good, default=-1)
    between = [i for i in skipped if last < i < first]
    name = candidates[last] if last >= 0 else None
    if between:
        return INCONCLUSIVE, (f"the first bad one is among {', '.join(repr(candidates[i]) for i in (*between, first))}: "
                              f"{len(between)} of them could not be tried",), None, name
    text = f"{candidates[first]!r} is the first bad candidate"
    text += f", {name!r} before it is good" if name is not None else "; there is none before it"
    return FAIL, (text,), candidates[first], name


def search(asked: Search, *, tell: Callable[[str], None] = lambda line: None) -> Found:
    """Run the command over candidates until the first bad one is known.  tell(line) reports each run.

    InputError for a command without its places, a state file of another search, a shell that does not find the command.
    """
    if "{out}" not in asked.command or not any(place in asked.command for place in PLACES):
        raise InputError(f"--check: expected {{out}} and one of {', '.join(PLACES)} in the command, found {asked.command!r}")
    if not asked.candidates:
        raise InputError("--check: expected at least one candidate, found none")
    tried = _load(asked)
    resumed = len(tried)
    while (index := next_candidate({i: t.answer for i, t in tried.items()}, len(asked.candidates))) is not None:
        tried[index] = _try(asked, index)
        _save(asked, tried)
        tell(f"{tried[index].answer}: {asked.candidates[index]!r}" + (f" ({tried[index].reason})" if tried[index].reason else ""))
    status, reasons, bad, good = conclude({i: t.answer for i, t in tried.items()}, asked.candidates)
    why = next((t.reason for t in tried.values() if t.candidate == bad and t.answer == BAD), "")
    return Found(status=status, reasons=(*reasons, *([why] if why else [])), command=asked.command, candidates=asked.candidates,
                 tried=tuple(tried.values()), first_bad=bad, last_good=good, resumed=resumed)


def _try(asked: Search, index: int) -> Tried:
    candidate = asked.candidates[index]
    with tempfile.TemporaryDirectory(prefix="edge0verify-") as name:
        folder = Path(name)
        out = folder / "dump.h5"
        line = asked.command
        for place in PLACES:
            line = line.replace(place, candidate)
        line = line.replace("{out}", shlex.quote(str(out)))
        done = run_command(["/bin/sh", "-c", line], env=dict(os.environ), cwd=Path.cwd(), timeout_s=asked.timeout_s, folder=folder)
        errors = done.stderr.read_text(errors="replace").strip().splitlines() if done.stderr.exists() else []
        last = f": {errors[-1]}" if errors else ""

        def answer(what: str, code: int | None, reason: str) -> Tried:
            return Tried(index=index, candidate=candidate, answer=what, exit=code, reason=reason, wall_s=done.wall_s)

        if done.error == "stopped":
            raise KeyboardInterrupt
        if done.rc == 127:
            raise InputError(f"--check: the shell does not find the command{last}")
        if done.rc is not None and (done.rc < 0 or done.rc > 128) and not done.timed_out:
            number = -done.rc if done.rc < 0 else done.rc - 128
            return answer(BAD, None, f"the engine was ended by signal {number}")
        if done.rc == SKIP_STATUS:
            return answer(SKIPPED, None, f"the engine exited with {SKIP_STATUS}")
        if done.trouble() is not None:
            return answer(SKIPPED, None, f"the engine {done.trouble()}{last}")
        if not out.is_file():
            return answer(SKIPPED, None, "the engine left no dump at {out}")
        status, reason = _compare(asked, out)
    word = {PASS: GOOD, FAIL: BAD, INCONCLUSIVE: SKIPPED}[status]
    return answer(word, statuses.exit_code(status), reason)


def _compare(asked: Search, out: Path) -> tuple[str, str]:
    """(status, reason) of one dump: against the good one, or on its own inputs where none is given."""
    if asked.good is None:
        with open_dump(out) as dump:
            return judge_dump(dump, asked.model, threads=asked.threads)
    from edge0verify.study.drift_stability import BITWISE, DumpTrace, stability
    from edge0verify.study.dumps import DumpRequest, compare_dumps

    with open_dump(asked.good) as good, open_dump(out) as dump:
        if stability(DumpTrace(good), DumpTrace(dump), None).kind == BITWISE:
            return PASS, ""
    # An outside engine counts no launches, and none are needed to tell a good dump from a bad one.
    policy = replace(DEFAULT, allow_foreign=True)
    verdict = compare_dumps(DumpRequest(a=asked.good, b=out, model=asked.model, policy=policy, threads=asked.threads))
    return verdict.status, verdict.reasons[0] if verdict.reasons else ""


def judge_dump(dump: Dump, model: Model, *, threads: int = 1) -> tuple[str, str]:
    """(status, reason): every stage of every layer of a dump of level full on its own inputs, by `model`'s weights."""
    names = dump.manifest.variants
    if set(names) < {"D", "A1", "A2", "U"}:
        return INCONCLUSIVE, f"the dump names variants of {', '.join(sorted(names)) or 'no stage'}; expected D, A1, A2, U"
    if dump.manifest.model_sha256 not in (None, model.sha256):
        return INCONCLUSIVE, f"the dump is of model {dump.manifest.model_sha256[:16]}, expected {model.sha256[:16]}"
    judged = 0
    for layer in dump.layers():
        seen = {tensor: dump.read(layer, tensor) for tensor in dump.tensors(layer)}
        keys = dump.token_keys(layer)
        if keys is None:
            keys = np.stack([np.zeros(len(seen["ffn-in"])), np.arange(len(seen["ffn-in"])), np.ones(len(seen["ffn-in"]))], 1)
        missing = {"ffn-in", "route-ids", "route-weights", "route-logits", "d-xl", "a-gate", "a-h", "a-y", "u"} - set(seen)
        if missing:
            return INCONCLUSIVE, f"layer {layer}: expected a dump of level full, found none of {', '.join(sorted(missing))}"
        found = chain(judge_route(model, layer, seen, keys.astype(np.int32)),
                      judge_stages(model, layer, names, seen, keys.astype(np.int32), threads=threads))
        for entry in found:
            judged += entry.broken.size
            if entry.broken.any():
                row, column = map(int, np.argwhere(entry.broken)[0])
                return FAIL, (f"layer {layer} stage {entry.stage} {entry.tensor}: {int(entry.broken.sum())} of {entry.broken.size} "
                              f"elements do not conform, first at row {row} column {column}; {entry.excuse}")
    return (PASS, "") if judged else (INCONCLUSIVE, "the dump holds no layer")


def _identity(asked: Search) -> dict[str, Any]:
    good = file_sha256(asked.good) if asked.good is not None else None
    return {"command": asked.command, "candidates": list(asked.candidates), "model": asked.model.sha256, "good": good}


def _load(asked: Search) -> dict[int, Tried]:
    if asked.state is None or not asked.state.exists():
        return {}
    try:
        data = json.loads(asked.state.read_text())
        kept = {int(t["index"]): Tried(**t) for t in data["tried"]}
        search_of = data["search"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{asked.state}: expected the state of a search ({STATE}), found: {error}") from None
    if data.get("schema") != STATE or search_of != _identity(asked):
        raise InputError(f"{asked.state}: expected the state of this search, found one of another command, list, model or dump")
    return kept


def _save(asked: Search, tried: Mapping[int, Tried]) -> None:
    if asked.state is None:
        return
    text = json.dumps({"schema": STATE, "search": _identity(asked), "tried": [asdict(t) for t in tried.values()]}, indent=1)
    partial = asked.state.with_name(f".{asked.state.name}.{os.getpid()}.partial")
    try:
        with open(partial, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, asked.state)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(f"{asked.state}: expected a file that can be written, found: {error.strerror}") from None
