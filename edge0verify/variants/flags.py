"""Engine flags and the variants they choose, unset flags included.

The rules of a stage are asked in order and the first that matches decides. A flag that is set to 0 is off, not merely "present".
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from edge0verify.records.errors import InputError

DU = "STRATA_LATENT_FUSED_DU"
MMQ = "STRATA_LATENT_MMQ"
FUSED = "STRATA_LATENT_FUSED"
FUSED_Q3K = "STRATA_LAT_FUSED_Q3K"
TAIL_SKIP = "STRATA_ROUTE_TAIL_SKIP"
PRIOR = "STRATA_ROUTE_PRIOR"
RESIDENT = "STRATA_ROUTE_RESIDENT"

SWITCHES = (DU, MMQ, FUSED, FUSED_Q3K)
"""Flags that choose a kernel: 0 or 1."""
BY_DESIGN = (TAIL_SKIP, PRIOR)
"""Flags that change the output by design; any value here, since other engines may give them other ones. What they mean in this
engine, and which values it takes, is for `engine.route_flags` to say."""
KNOWN = (*SWITCHES, *BY_DESIGN, RESIDENT)
"""RESIDENT names the experts that PRIOR favours; alone it changes nothing."""


@dataclass(frozen=True)
class Rule:
    """`stages` get `variant` where every flag of `when` has the value given (None: is not set)."""

    stages: tuple[str, ...]
    variant: str
    when: Mapping[str, str | None]

    def matches(self, flags: Mapping[str, str | None]) -> bool:
        return all(flags.get(name) == value for name, value in self.when.items())


RULES = (
    Rule(("D", "U"), "mmvq", {DU: "0"}),
    Rule(("D", "U"), "w11", {}),
    Rule(("A1", "A2"), "mmq", {MMQ: "1"}),
    Rule(("A1", "A2"), "w11", {FUSED: "1", FUSED_Q3K: "1"}),
    Rule(("A1", "A2"), "mmvq", {}),
)


def read_flags(text: str) -> dict[str, str | None]:
    """'NAME=VALUE NAME=VALUE' as a value per known flag, None where it is not set.

    InputError for a word that is no assignment, an unknown flag (with the nearest name), one given twice, or a switch that is
    neither 0 nor 1.
    """
    found: dict[str, str | None] = dict.fromkeys(KNOWN)
    try:
        words = shlex.split(text)
    except ValueError as wrong:
        raise InputError(f"flags {text!r}: expected NAME=VALUE words, found {wrong}") from None
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InputError(f"flags: expected NAME=VALUE, found {word!r}")
        if name not in KNOWN:
            near = difflib.get_close_matches(name, KNOWN, 1, cutoff=0.0)
            raise InputError(f"flag {name}: expected one of {', '.join(KNOWN)}; did you mean {near[0]}?")
        if found[name] is not None:
            raise InputError(f"flag {name}: expected once, found twice")
        if name in SWITCHES and value not in ("0", "1"):
            raise InputError(f"flag {name}: expected 0 or 1, found {value!r}")
        found[name] = value
    return found


def variants_of(flags: Mapping[str, str | None]) -> dict[str, str]:
    """The variant of each of D, A1, A2, U that an engine runs under `flags` (as `read_flags` gives them)."""
    chosen: dict[str, str] = {}
    for rule in RULES:
        if rule.matches(flags):
            for stage in rule.stages:
                chosen.setdefault(stage, rule.variant)
    return {stage: chosen[stage] for stage in ("D", "A1", "A2", "U")}


def by_design(flags: Mapping[str, str | None]) -> tuple[str, ...]:
    """The flags in effect that declare a changed output, as 'NAME=VALUE'; the resident experts where a prior favours them."""
    found = [name for name in BY_DESIGN if _in_effect(flags.get(name))]
    if PRIOR in found and flags.get(RESIDENT):
        found.append(RESIDENT)
    return tuple(f"{name}={flags[name]}" for name in found)


def _in_effect(value: str | None) -> bool:
    try:
        return value not in (None, "") and float(value) != 0
    except ValueError:
        return True
