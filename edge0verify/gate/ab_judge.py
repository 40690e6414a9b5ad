"""What the runs of two arms prove: ratios with intervals, engagement, and the status. Decisions from values only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from scipy import stats

from edge0verify.gate.ab_config import Arm
from edge0verify.gate.ab_read import Run
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS

WALL = "wall time, s"
EQUAL_TIME = 0.03
"""Arms whose every ratio is this near to 1, or cannot be told from 1, took equal time."""


@dataclass(frozen=True)
class Ratio:
    """b over a of one quantity, over the rounds."""

    what: str
    tokens: int | None
    better: str
    """'lower' or 'higher'."""
    a: float
    b: float
    """Geometric means."""
    ratio: float
    low: float | None
    high: float | None
    rounds: int
    confidence: float

    @property
    def says(self) -> str:
        """The interval in a word, from B's side."""
        if self.low is None:
            return "one round: no interval"
        if self.low <= 1.0 <= self.high:
            return "no difference shown"
        return "B is better" if (self.ratio < 1.0) == (self.better == "lower") else "B is worse"

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "says": self.says}


@dataclass(frozen=True)
class Judged:
    """The answer."""

    status: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    engaged: Mapping[str, bool | None]
    launches: Mapping[str, Mapping[str, int]]
    output: Mapping[str, Any]
    ratios: tuple[Ratio, ...]


def paired_ratio(a: Sequence[float], b: Sequence[float], *, confidence: float) -> tuple[float, float | None, float | None]:
    """(geometric mean of b/a, low, high) of paired positive values, one pair per round.

    Student's t on the logarithms: with the few rounds a benchmark has, resampling them gives intervals that are too
    narrow. One pair has no interval.
    """
    logs = [math.log(y / x) for x, y in zip(a, b, strict=True)]
    mean = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return math.exp(mean), None, None
    variance = math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
    half = float(stats.t.ppf(0.5 * (1.0 + confidence), len(logs) - 1)) * math.sqrt(variance / len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def ratios(runs: Sequence[Run], *, confidence: float) -> tuple[Ratio, ...]:
    """Time to first token per prompt length, decode speed and wall time, of rounds that both arms have."""
    tables: dict[tuple[str, int | None, str], dict[str, dict[int, list[float]]]] = {}

    def note(what: str, tokens: int | None, better: str, run: Run, value: float) -> None:
        sides = tables.setdefault((what, tokens, better), {"a": {}, "b": {}})
        sides[run.arm].setdefault(run.round, []).append(value)

    for run in runs:
        for tokens, ms in run.ttft_ms:
            note("time to first token, ms", tokens, "lower", run, ms)
        for speed in run.decode_tok_s:
            note("decode, tok/s", run.tokens, "higher", run, speed)
        if run.wall_s:
            note(WALL, run.tokens, "lower", run, run.wall_s)
    found = []
    for (what, tokens, better), sides in sorted(tables.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        rounds = sorted(set(sides["a"]) & set(sides["b"]))
        if not rounds:
            continue
        a, b = ([_geometric(side[n]) for n in rounds] for side in (sides["a"], sides["b"]))
        ratio, low, high = paired_ratio(a, b, confidence=confidence)
        found.append(Ratio(what, tokens, better, _geometric(a), _geometric(b), ratio, low, high, len(rounds), confidence))
    return tuple(found)


def judge(
    arms: Mapping[str, Arm],
    runs: Sequence[Run],
    *,
    before: Mapping[str, Mapping[str, str]],
    after: Mapping[str, Mapping[str, str]],
    rounds: int,
    state: Mapping[str, Any],
    confidence: float = 0.95,
) -> Judged:
    """The status. `before`, `after`: per arm {path: sha256}. Warm-up runs have round -1: faults in them count, times do not."""
    timed = [run for run in runs if run.round >= 0]
    found = ratios(timed, confidence=confidence)
    launches = {side: _summed(run.launches for run in timed if run.arm == side) for side in arms}
    engaged = {side: _engaged(arm, launches[side]) for side, arm in arms.items()}
    output = compare_outputs(timed)
    unlike = _unlike(arms, before, after)
    failing = _failing(arms, runs)
    open_ends = _open_ends(arms, timed, launches, engaged, output, found, rounds, state)
    status = INCONCLUSIVE if unlike else FAIL if failing else INCONCLUSIVE if open_ends else PASS
    return Judged(
        status, (*unlike, *failing, *open_ends), tuple(_notes(arms, runs, output, state)), engaged, launches, output, found
    )


def compare_outputs(runs: Sequence[Run]) -> dict[str, Any]:
    """How often the declared answers of one round and prompt are the same bytes, and whether an arm repeats itself."""
    answers: dict[tuple[int, int | None], dict[str, str]] = {}
    own: dict[tuple[str, int | None], set[str]] = {}
    for run in runs:
        if run.output is not None:
            answers.setdefault((run.round, run.tokens), {})[run.arm] = run.output
            own.setdefault((run.arm, run.tokens), set()).add(run.output)
    pairs = [sides for sides in answers.values() if len(sides) == 2]
    return {
        "compared": len(pairs),
        "identical": sum(sides["a"] == sides["b"] for sides in pairs),
        "steady": {side: all(len(seen) == 1 for (arm, _), seen in own.items() if arm == side) for side in ("a", "b")}
        if pairs
        else None,
    }


def _unlike(arms: Mapping[str, Arm], before: Mapping, after: Mapping) -> list[str]:
    """Why this is no comparison of two things at all."""
    found = []
    for side in arms:
        changed = [path for path, digest in before[side].items() if after[side].get(path) != digest]
        if changed:
            found.append(f"{side}: {changed[0]} changed while the benchmark ran")
    hashes = {side: sorted(before[side].values()) for side in arms}
    one_binary = hashes["a"] == hashes["b"]
    if one_binary and arms["a"].differs_by == "build":
        found.append(f"same binary: both arms run sha256 {hashes['a'][0][:12]}, said to be two builds")
    elif one_binary and (arms["a"].command[1:], dict(arms["a"].env)) == (arms["b"].command[1:], dict(arms["b"].env)):
        found.append("same binary, same arguments, same environment: the arms are one")
    return found


def _failing(arms: Mapping[str, Arm], runs: Sequence[Run]) -> list[str]:
    found = []
    for side, arm in arms.items():
        own = [run for run in runs if run.arm == side]
        troubled = [run for run in own if run.trouble]
        if troubled:
            found.append(f"{side} ({arm.name}): {len(troubled)} of {len(own)} runs: it {troubled[0].trouble}")
        for name, count in _summed(run.faults for run in own).items():
            if count:
                found.append(f"{side} ({arm.name}): {count} faults '{name}' in the log")
    return found


def _open_ends(arms, runs, launches, engaged, output, found, rounds, state) -> list[str]:
    """Why nothing is proven although the arms differ and nothing failed."""
    said = []
    if rounds < 2:
        said.append("one run per arm is an observation, not an A/B: expected at least 2 rounds")
    for side, arm in arms.items():
        own = [run for run in runs if run.arm == side]
        missing = sorted({name for run in own for name in run.missing})
        said += [f"{side} ({arm.name}): {name} found nothing" for name in missing]
        said += [
            f"{side} ({arm.name}): counter '{name}' is 0: it did nothing"
            for name, n in _summed(r.counters for r in own).items()
            if n == 0
        ]
    if engaged["b"] is False:
        said.append(_never_ran(arms["b"], launches["b"], output, found))
    if engaged["a"] is False:
        said.append(f"a ({arms['a'].name}): not engaged: no launch of {_idle(arms['a'], launches['a'])}")
    said += [
        f"{side} ({arm.name}): engagement is unknown: the arm declares no kernel"
        for side, arm in arms.items()
        if engaged[side] is None
    ]
    shared = [
        pattern
        for pattern in arms["b"].engaged
        if pattern not in arms["a"].engaged and any(fnmatchcase(name, pattern) for name in _ran(launches["a"]))
    ]
    if shared:
        said.append(f"a ({arms['a'].name}) launched {shared[0]} too, the kernel that b is said to bring")
    if state.get("validity") == "invalid":
        said.append("the machine throttled: " + "; ".join(state.get("concerns") or ()))
    return said


def _never_ran(arm: Arm, launches: Mapping[str, int], output: Mapping[str, Any], found: Sequence[Ratio]) -> str:
    """The new kernel that never ran, with the two facts that make it look harmless."""
    facts = [f"b ({arm.name}): not engaged: launches of {_idle(arm, launches)} are 0"]
    if output["compared"]:
        same = output["identical"] == output["compared"]
        facts.append(f"output {'byte-identical' if same else 'identical'} in {output['identical']} of {output['compared']} runs")
    if found:
        # The wall time holds start-up and shutdown; it speaks only where nothing else was measured.
        told = [ratio for ratio in found if ratio.what != WALL] or list(found)
        equal = all(_equal_time(ratio) for ratio in told)
        shown = max(told, key=lambda ratio: abs(math.log(ratio.ratio)))
        facts.append(f"{'equal time' if equal else 'time'}: {shown.what} ratio {shown.ratio:.2f}")
        if equal and output["compared"] and output["identical"] == output["compared"]:
            facts.append("this is the old kernel compared with itself")
    return ", ".join(facts)


def _equal_time(ratio: Ratio) -> bool:
    return abs(math.log(ratio.ratio)) <= EQUAL_TIME or (ratio.low is not None and ratio.low <= 1.0 <= ratio.high)


def _notes(arms, runs, output, state) -> list[str]:
    said = []
    if output["compared"]:
        differing = output["compared"] - output["identical"]
        said.append(f"output identical in {output['identical']} of {output['compared']} runs")
        unsteady = [side for side in arms if not output["steady"][side]]
        if differing and unsteady:
            said.append(f"{' and '.join(unsteady)} does not repeat its own output, so the difference is not the other's alone")
    for side in arms:
        names = sorted({name for run in runs if run.arm == side for name in run.leftover})
        if names:
            said.append(f"{side}: processes outlived the command and were ended: {', '.join(names)}")
    if state.get("validity") == "unmeasured":
        said.append("throttle counters could not be read here: nothing says that the machine kept its clocks")
    elif state.get("validity") == "valid":
        said += [f"machine: {concern}" for concern in state.get("concerns") or ()]
    return said


def _engaged(arm: Arm, launches: Mapping[str, int]) -> bool | None:
    return _idle(arm, launches) is None if arm.engaged else None


def _idle(arm: Arm, launches: Mapping[str, int]) -> str | None:
    """The first kernel this arm must launch and did not."""
    return next((pattern for pattern in arm.engaged if not any(fnmatchcase(name, pattern) for name in _ran(launches))), None)


def _ran(launches: Mapping[str, int]) -> list[str]:
    return [name for name, count in launches.items() if count > 0]


def _summed(tables: Callable | Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for table in tables:
        for name, count in table.items():
            total[name] = total.get(name, 0) + count
    return total


def _geometric(values: Sequence[float]) -> float:
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))
