"""What one run printed, read by the arm's patterns: times, speeds, launches, counters, faults, output."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edge0verify.gate.ab_config import Arm, Prompt


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process of one arm in one round."""

    arm: str
    round: int
    tokens: int | None
    """Prompt length, where the arm names prompts."""
    wall_s: float | None
    trouble: str | None
    """Why the process did not end well, or None."""
    leftover: tuple[str, ...]
    ttft_ms: tuple[tuple[int, float], ...]
    """(prompt length, milliseconds), as often as printed."""
    decode_tok_s: tuple[float, ...]
    launches: Mapping[str, int]
    counters: Mapping[str, int]
    faults: Mapping[str, int]
    output: str | None
    """sha256 of what the arm declares as its answer; None where nothing is declared or nothing was written."""
    missing: tuple[str, ...]
    """Declared things that were not found."""

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "launches": dict(self.launches), "counters": dict(self.counters), "faults": dict(self.faults)}


def read_text(arm: Arm, prompt: Prompt | None, text: str) -> dict[str, Any]:
    """The fields of a Run that stand in the text; `missing` names declared patterns that found nothing usable."""
    missing: list[str] = []
    ttft, decode, launches = [], [], {}
    for found in _matches(arm, "ttft", text):
        groups = found.groupdict()
        tokens = int(groups["tokens"]) if groups.get("tokens") is not None else prompt.tokens
        _add_number(ttft, groups["ms"], lambda ms, tokens=tokens: (tokens, ms))
    for found in _matches(arm, "decode", text):
        _add_number(decode, found["tok_s"], lambda speed: speed)
    for found in _matches(arm, "launch", text):
        launches[found["kernel"]] = launches.get(found["kernel"], 0) + _whole(found["count"])
    for name, values in (("ttft", ttft), ("decode", decode)):
        if name in arm.patterns and not values:
            missing.append(f"patterns.{name}")
    return {
        "ttft_ms": tuple(ttft),
        "decode_tok_s": tuple(decode),
        "launches": launches,
        "counters": {name: sum(_whole(found[1]) for found in pattern.finditer(text)) for name, pattern in arm.counters.items()},
        "faults": {name: sum(1 for _ in pattern.finditer(text)) for name, pattern in arm.faults.items()},
        "missing": tuple(missing),
    }


def answer_hash(arm: Arm, text: str, files: list[bytes | None]) -> tuple[str | None, tuple[str, ...]]:
    """(hash of the declared answer, what of it is missing). `files`: contents, None where a run wrote none."""
    if "output" not in arm.patterns and not arm.output_files:
        return None, ()
    parts, missing = [found["text"].encode() for found in _matches(arm, "output", text)], []
    if "output" in arm.patterns and not parts:
        missing.append("patterns.output")
    for path, content in zip(arm.output_files, files):
        if content is None:
            missing.append(f"{path.name} (not written by this run)")
        parts.append(content or b"")
    if missing:
        return None, tuple(missing)
    digest = hashlib.sha256()
    for part in parts:
        # The length goes in too, so that moving a byte from one part to the next is seen.
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest(), ()


def _matches(arm: Arm, name: str, text: str) -> list[re.Match]:
    return list(arm.patterns[name].finditer(text)) if name in arm.patterns else []


def _add_number(values: list, text: str | None, make) -> None:
    try:
        number = float(text)
    except (TypeError, ValueError):
        return
    # A ratio needs a time that passed; 0 and NaN are a broken clock or a broken log.
    if math.isfinite(number) and number > 0:
        values.append(make(number))


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
