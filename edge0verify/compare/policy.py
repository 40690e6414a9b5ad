"""The limits that turn counts into a status: those derived from the contracts, or rules of a file over them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from edge0verify.records.errors import InputError

SCHEMA = "edge0verify.policy/1"
LOOSE_SHARE = 1e-3
"""Measured on the embedded model: 0. Above this share the bounds say too little to call the rest a pass."""

_STAGES = {"route": "route", "ffn": "route", "d": "D", "a": "A2", "u": "U", "top8": "head"}
_STAGES |= {"a-gate": "A1", "a-up": "A1", "a-h": "A1"}


def base_name(tensor: str) -> str:
    """The tensor that scales (`.d`) or block sums (`.s`) belong to."""
    return tensor.removesuffix(".d").removesuffix(".s")


def stage_of(tensor: str) -> str:
    """The stage that writes a tensor of a dump, by its name: 'D' for d-xlq.d; '' for a name of none."""
    base = base_name(tensor)
    return _STAGES.get(base) or _STAGES.get(base.split("-")[0], "")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one entry may show and still pass."""

    matched: float | None = None
    """Smallest share of elements whose cause passes (where nothing judges them: that are equal). None: all of them, and nothing
    said of elements that nothing judges. Never excuses `nonfinite` and `unwritten`."""
    loose_share: float = LOOSE_SHARE
    """Largest share of `loose` elements that is not INCONCLUSIVE."""
    permuted_share: float = 0.0
    """Largest share of elements in rows that stand elsewhere."""
    route_flips: int | None = None
    """Largest number of rows that flip; None: any number within `route_gap`."""
    route_gap: float = 1.0
    """Largest gap of a flip, in units of the router's bound."""
    bias_t: float = 6.0
    """Largest |t| of the bias test's statistics."""
    bias_z2: float = 2.0
    """Mean z^2 lies within [1/bias_z2, bias_z2]."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Limits of the tensors it matches. A pattern must match the whole name; that of a tensor also holds for the tensor's scales
    (`.d`) and block sums (`.s`), unless a rule before it takes them."""

    stage: re.Pattern
    tensor: re.Pattern
    layer: re.Pattern
    limits: Limits
    name: str
    """Where it stands, for messages: 'rule[2] of policy.toml'."""

    def matches(self, stage: str, tensor: str, layer: int | str) -> bool:
        named = self.tensor.fullmatch(tensor) or self.tensor.fullmatch(base_name(tensor))
        return bool(self.stage.fullmatch(stage) and named and self.layer.fullmatch(str(layer)))


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Limits of one comparison."""

    loose_share: float = LOOSE_SHARE
    """Of the derived default; rules of a file have their own."""
    allow_foreign: bool = False
    """Whether a side whose engine counts no launches may pass."""
    top8_spread: float | None = None
    """Largest movement of top-8 log-probs, in units of the spread of the accepted variants among themselves; None: only shown."""
    worst: int = 5
    """Elements shown per entry."""
    rules: tuple[Rule, ...] = ()
    """In order, the first that matches an entry holds for it. Without any, the derived default holds for all."""
    source: str = ""
    """The file they came from."""

    def limits(self, stage: str, tensor: str, layer: int | str) -> Limits | None:
        """Limits of an entry; None where there are rules and none of them matches."""
        if not self.rules:
            return Limits(loose_share=self.loose_share)
        return next((rule.limits for rule in self.rules if rule.matches(stage, tensor, layer)), None)

    def unused(self, entries: Iterable[tuple[str, int | str]]) -> list[str]:
        """Names of the rules that hold for none of the entries (tensor, layer): they prove nothing, or are misspelt."""
        held = set()
        for tensor, layer in entries:
            found = next((i for i, r in enumerate(self.rules) if r.matches(stage_of(tensor), tensor, layer)), None)
            held.add(found)
        return [rule.name for i, rule in enumerate(self.rules) if i not in held]


DEFAULT = Policy()

_SHARES = ("matched", "loose_share", "permuted_share")


def load_policy(path: Path) -> Policy:
    """Read a policy file. InputError naming file and key for anything that is not understood: a misspelt limit is no limit."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: expected a policy file, found: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected TOML, found: {error}") from None
    return read_policy(data, source=str(path))


def read_policy(data: Mapping[str, Any], *, source: str) -> Policy:
    """A policy from the plain values of its file; errors as in `load_policy`."""
    _known(data, ("schema", "allow_foreign", "top8_spread", "worst", "rule"), source, "")
    if data.get("schema", SCHEMA) != SCHEMA:
        raise InputError(f"{source}: schema: expected {SCHEMA!r}, found {data['schema']!r}")
    rules = data.get("rule", [])
    if not isinstance(rules, list) or not rules or not all(isinstance(rule, dict) for rule in rules):
        raise InputError(f"{source}: rule: expected at least one [[rule]], found {'none' if not rules else type(rules).__name__}")
    given: dict[str, Any] = {}
    if "allow_foreign" in data:
        given["allow_foreign"] = _bool(data["allow_foreign"], source, "allow_foreign")
    if "top8_spread" in data:
        given["top8_spread"] = _number(data["top8_spread"], source, "top8_spread")
    if "worst" in data:
        given["worst"] = _whole(data["worst"], source, "worst")
    made = tuple(_rule(rule, source, f"rule[{i}]") for i, rule in enumerate(rules, 1))
    return Policy(rules=made, source=source, **given)


def _rule(data: Mapping[str, Any], source: str, where: str) -> Rule:
    names = tuple(f.name for f in fields(Limits))
    _known(data, ("stage", "tensor", "layer", *names), source, f"{where}.")
    patterns = {name: _pattern(data.get(name, ".*"), source, f"{where}.{name}") for name in ("stage", "tensor", "layer")}
    limits: dict[str, Any] = {}
    for name in names:
        if name not in data:
            continue
        key = f"{where}.{name}"
        limits[name] = _whole(data[name], source, key) if name == "route_flips" else _number(data[name], source, key)
        if name in _SHARES and limits[name] > 1:
            raise InputError(f"{source}: {key}: expected a share from 0 to 1, found {data[name]!r}")
        if name == "bias_z2" and limits[name] < 1:
            raise InputError(f"{source}: {key}: expected at least 1, found {data[name]!r}")
    return Rule(**patterns, limits=Limits(**limits), name=f"{where} of {source}")


def _known(data: Mapping[str, Any], names: tuple[str, ...], source: str, prefix: str) -> None:
    for name in data:
        if name not in names:
            raise InputError(f"{source}: {prefix}{name}: expected one of {', '.join(names)}, found this key")


def _pattern(value: Any, source: str, key: str) -> re.Pattern:
    """A regular expression; whole numbers are taken for layers."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise InputError(f"{source}: {key}: expected a regular expression, found {value!r}")
    try:
        return re.compile(value)
    except re.error as error:
        raise InputError(f"{source}: {key}: expected a regular expression, found {value!r}: {error}") from None


def _number(value: Any, source: str, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise InputError(f"{source}: {key}: expected a number of at least 0, found {value!r}")
    return float(value)


def _whole(value: Any, source: str, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{source}: {key}: expected a whole number of at least 0, found {value!r}")
    return value


def _bool(value: Any, source: str, key: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{source}: {key}: expected true or false, found {value!r}")
    return value
