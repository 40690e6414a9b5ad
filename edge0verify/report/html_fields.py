"""What the report reads of the fields that the verdict's schema leaves open; a field of another shape is an input error."""

from __future__ import annotations

from typing import Any

from edge0verify.records.errors import InputError
from edge0verify.records.schema import COUNT, FIGURE, LAYER, check, record
from edge0verify.records.verdict import Verdict

_TEXTS = {"type": "array", "items": {"type": "string"}}
_MOST = 1 << 62
_IDS = {"type": "array", "items": {"type": "integer"}}
_PAIR = record(
    {
        "a": {"type": "string"},
        "b": {"type": "string"},
        "max_move": FIGURE,
        "per_prompt": {"type": "object", "additionalProperties": FIGURE},
        "mean_kl": FIGURE,
        "max_kl": FIGURE,
        "positions": COUNT,
    },
    optional=("per_prompt", "mean_kl", "max_kl", "positions"),
    closed=False,
)
_SPREAD = record(
    {"variants": _TEXTS, "max_move": FIGURE, "pairs": {"type": "array", "items": _PAIR}, "left_out": _TEXTS},
    optional=("pairs", "left_out"),
    closed=False,
)
_POSITION = record(
    {"name": {"type": "string"}, "move": FIGURE, "shared": COUNT, "argmax": _IDS, "argmax_margin": FIGURE, "kl": FIGURE},
    closed=False,
)
TOP8 = record(
    {
        "positions": COUNT,
        "max_move": FIGURE,
        "argmax_changes": COUNT,
        "set_changes": COUNT,
        "per_position": {"type": "array", "items": _POSITION},
        "spread": {**_SPREAD, "type": ["object", "null"]},
    },
    optional=("spread",),
    closed=False,
)
_JUMP = record(
    {
        "layer": LAYER,
        "tensor": {"type": "string"},
        "factor": FIGURE,
        "after": {"type": "array", "items": LAYER},
    },
    closed=False,
)
TOTALS = record(
    {"notes": _TEXTS, "widest_jump": {**_JUMP, "type": ["object", "null"]}}, optional=("notes", "widest_jump"), closed=False
)
ENVIRONMENT = record({"command": {"type": ["string", "null"]}}, optional=("command",), closed=False)


def check_open_fields(verdict: Verdict, source: str) -> None:
    """Raise InputError naming `source` and the field that the report could not show."""
    for name, value, schema in (
        ("top8", verdict.top8, TOP8),
        ("totals", verdict.totals, TOTALS),
        ("environment", verdict.environment, ENVIRONMENT),
    ):
        if value is not None:
            check(value, schema, f"{source}: {name}")
    for i, position in enumerate((verdict.top8 or {}).get("per_position", ())):
        if len(position["argmax"]) != 2:
            raise InputError(
                f"{source}: top8: per_position[{i}].argmax: expected the best of a and of b, found {len(position['argmax'])} ids"
            )
    jump = verdict.totals.get("widest_jump")
    if jump and len(jump["after"]) != 2:
        raise InputError(f"{source}: totals: widest_jump.after: expected layer and tensor, found {len(jump['after'])} values")
    for i, result in enumerate(verdict.layers):
        here = f"{source}: layers[{i}]"
        if not 0 <= result.equal <= result.n < _MOST:
            raise InputError(f"{here}.equal: expected at most n = {result.n!r:.40}, found {result.equal!r:.40}")
        for name in ("equal_pct", "scale_equal_pct"):
            value = getattr(result, name)
            if value is not None and not 0 <= value <= 100:
                raise InputError(f"{here}.{name}: expected 0 to 100, found {value!r:.40}")
    twice = _twice([(r.layer, r.tensor) for r in verdict.layers])
    if twice:
        raise InputError(f"{source}: layers: expected each entry once, found layer {twice[0]!r:.40} {twice[1]!r:.60} twice")


def _twice(items: list[tuple]) -> tuple | None:
    seen: set[tuple] = set()
    return next((item for item in items if item in seen or seen.add(item)), None)


def flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested facts as (dotted name, text) pairs; null is '-'."""
    if isinstance(value, dict):
        return [pair for key, part in value.items() for pair in flat(part, f"{prefix}.{key}" if prefix else str(key))]
    if isinstance(value, list):
        return [(prefix, ", ".join("-" if part is None else str(part) for part in value) or "-")]
    if isinstance(value, float):
        return [(prefix, f"{value:.6g}")]
    return [(prefix, "-" if value is None or value == "" else str(value))]
