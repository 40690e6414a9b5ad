"""The rules of a gate, read from TOML: which paths invalidate a record, which legs there are and what each must show."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge0verify.gate.record import LEG
from edge0verify.records.errors import InputError

SCHEMA = "edge0verify.gate-policy/1"
FILE_NAME = "gate.toml"


@dataclass(frozen=True)
class Exclusion:
    """Paths that do not invalidate although they lie below one that does, and why."""

    paths: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class LegRules:
    """What a record of one leg must show to be good."""

    required_metrics: tuple[str, ...] = ()
    allow_unmeasured_state: bool = False
    """Accept a speed run on a machine whose throttle counters cannot be read."""


@dataclass(frozen=True)
class Policy:
    """The rules of one gate."""

    invalidating: tuple[str, ...]
    exclusions: tuple[Exclusion, ...] = ()
    legs: Mapping[str, LegRules] = field(default_factory=dict)
    """Legs that must have a good record; without any, those found in the store are checked."""

    def rules(self, leg: str) -> LegRules:
        return self.legs.get(leg, LegRules())

    def invalidates(self, path: str) -> bool:
        """Whether a change of this path makes older records void."""
        return any(matches(pattern, path) for pattern in self.invalidating) and self.excused(path) is None

    def excused(self, path: str) -> str | None:
        """The reason of the first exclusion that names this path."""
        for exclusion in self.exclusions:
            if any(matches(pattern, path) for pattern in exclusion.paths):
                return exclusion.reason
        return None


EVERYTHING = Policy(("**",))
"""The rules where there is no policy file: any change makes a record void."""


def matches(pattern: str, path: str) -> bool:
    """Whether `path` (with slashes, from the root) fits: `*` and `?` within a folder, `**` across, `x/` all below x."""
    if pattern.endswith("/"):
        pattern += "**"
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.fullmatch("".join(meaning.get(part, re.escape(part)) for part in parts), path, re.DOTALL) is not None


def load(path: Path) -> Policy:
    """Read a policy file. Anything that is not understood is refused: a misspelt rule must not be no rule."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: expected a gate policy, found: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected TOML, found: {error}") from error
    return parse(data, where=str(path))


def parse(data: Mapping[str, Any], *, where: str) -> Policy:
    """A policy from its TOML form."""
    _known(data, {"schema", "invalidating", "exclude", "legs"}, where)
    if data.get("schema") != SCHEMA:
        raise InputError(f"{where}: schema: expected {SCHEMA!r}, found {data.get('schema')!r}")
    exclusions = []
    for number, item in enumerate(_typed(data, "exclude", list, [], where), 1):
        place = f"{where}: exclude {number}"
        if not isinstance(item, dict):
            raise InputError(f"{place}: expected a table with paths and reason")
        _known(item, {"paths", "reason"}, place)
        reason = _typed(item, "reason", str, "", place).strip()
        if not reason:
            raise InputError(f"{place}: reason: expected why these paths do not invalidate, found none")
        exclusions.append(Exclusion(_strings(item, "paths", place), reason))
    legs = {}
    for name, item in _typed(data, "legs", dict, {}, where).items():
        place = f"{where}: legs.{name}"
        if not LEG.fullmatch(name) or not isinstance(item, dict):
            raise InputError(f"{place}: expected a table under a leg's name in small letters")
        _known(item, {"required_metrics", "allow_unmeasured_state"}, place)
        required = _strings(item, "required_metrics", place) if "required_metrics" in item else ()
        legs[name] = LegRules(required, _typed(item, "allow_unmeasured_state", bool, False, place))
    return Policy(_strings(data, "invalidating", where), tuple(exclusions), legs)


def _known(data: Mapping, names: set[str], where: str) -> None:
    unknown = sorted(set(data) - names)
    if unknown:
        raise InputError(f"{where}: expected {', '.join(sorted(names))}, found an unknown {unknown[0]!r}")


def _typed(data: Mapping, name: str, kind: type, default: Any, where: str) -> Any:
    value = data.get(name, default)
    if not isinstance(value, kind):
        raise InputError(f"{where}: {name}: expected {kind.__name__}, found {value!r}")
    return value


def _strings(data: Mapping, name: str, where: str) -> tuple[str, ...]:
    value = data.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise InputError(f"{where}: {name}: expected a list of at least one text, found {value!r}")
    return tuple(value)
