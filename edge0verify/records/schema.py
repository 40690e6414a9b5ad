"""JSON schemas of what is written to disk, and a validator for the part of JSON Schema that they use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from edge0verify.records.errors import InputError
from edge0verify.records.status import STATUSES

_TYPES = {
    "object": Mapping,
    "array": (list, tuple),
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def _nullable(*types: str) -> dict[str, Any]:
    return {"type": [*types, "null"]}


def record(properties: dict[str, Any], *, optional: tuple[str, ...] = (), closed: bool = True) -> dict[str, Any]:
    """An object schema whose properties are all required but the optional ones; closed refuses any other."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema["required"] = [name for name in properties if name not in optional]
    if closed:
        schema["additionalProperties"] = False
    return schema


COUNT = {"type": "integer", "minimum": 0}
COUNTS = {"type": "object", "additionalProperties": COUNT}
SHA256 = {"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"}
LAYER = {"type": ["integer", "string"]}
FIGURE = {"type": ["number", "string", "null"], "pattern": "^(nan|inf|-inf)$"}

WORST = record(
    {
        "index": {"type": "array", "items": COUNT},
        "key": {"type": ["array", "null"], "items": {"type": "integer"}},
        "a": FIGURE,
        "b": FIGURE,
        "bound": {"type": ["array", "null"], "items": FIGURE},
        "cause": {"type": "string"},
    }
)

LAYER_RESULT = record(
    {
        "layer": LAYER,
        "tensor": {"type": "string"},
        "n": COUNT,
        "equal": COUNT,
        "equal_pct": _nullable("number"),
        "max_code_diff": _nullable("integer"),
        "code_diffs": {"type": ["object", "null"], "additionalProperties": COUNT},
        "scale_equal_pct": _nullable("number"),
        "rel_l2": FIGURE,
        "max_abs": FIGURE,
        "max_ulp": _nullable("integer"),
        "corr": _nullable("number"),
        "conforming": record({"a": _nullable("integer"), "b": _nullable("integer")}),
        "poison": record({"a": COUNT, "b": COUNT}),
        "causes": COUNTS,
        "bias": _nullable("object"),
        "worst": {"type": "array", "items": WORST},
        "triangle": {
            "type": ["object", "null"],
            "properties": {"a_oracle": FIGURE, "b_oracle": FIGURE, "a_b": FIGURE, "oracles": FIGURE},
            "required": ["a_oracle", "b_oracle", "a_b", "oracles"],
            "additionalProperties": False,
        },
        "status": {"enum": list(STATUSES)},
        "reasons": {"type": "array", "items": {"type": "string"}},
    }
)

VERDICT = record(
    {
        "schema": {"const": "edge0verify.verdict/1"},
        "status": {"enum": list(STATUSES)},
        "reasons": {"type": "array", "items": {"type": "string"}},
        "stage": _nullable("string"),
        "a": {"type": "string"},
        "b": {"type": "string"},
        "reference": _nullable("string"),
        "model": _nullable("object"),
        "prompt": _nullable("object"),
        "engaged": record({"a": _nullable("boolean"), "b": _nullable("boolean")}),
        "signature": {"type": "object"},
        "layers": {"type": "array", "items": LAYER_RESULT},
        "totals": {"type": "object"},
        "top8": _nullable("object"),
        "environment": {"type": "object"},
        "grids": {"type": "array", "items": {"type": "object"}},
    },
    optional=("grids",),
)

MANIFEST = record(
    {
        "schema": {"const": "edge0verify.dump/1"},
        "engine": record(
            {
                "name": {"type": "string"},
                "commit": _nullable("string"),
                "dirty": _nullable("boolean"),
                "binary_sha256": SHA256,
            }
        ),
        "kernel_source_sha256": SHA256,
        "model_sha256": SHA256,
        "prompt": record({"sha256": SHA256, "tokens": {"type": ["integer", "null"], "minimum": 0}}),
        "variants": {"type": "object", "additionalProperties": {"type": "string"}},
        "flags": {"type": "object", "additionalProperties": _nullable("string")},
        "device": record(
            {
                "name": {"type": "string"},
                "arch": _nullable("string"),
                "driver": _nullable("string"),
                "link": _nullable("string"),
            }
        ),
        "split": {"type": "array", "items": {"type": "array", "items": LAYER}},
        "launches": {"type": ["object", "null"], "additionalProperties": COUNT},
        "seed": _nullable("integer"),
        "level": {"enum": ["outputs", "replay", "full", "sketch", "hash"]},
        "signature": record(
            {
                "tensors": {"type": "array", "items": {"type": "string"}},
                "layers": {"type": "array", "items": LAYER},
                "rows": COUNT,
            }
        ),
        "time": {"type": "string"},
    }
)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name in ("integer", "number"):
        return False
    return isinstance(value, _TYPES[name])


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def problem(value: Any, schema: Mapping[str, Any], path: str = "") -> str | None:
    """The first thing in `value` that breaks `schema`, as 'field: expected ..., found ...'; None if it fits."""
    here = path or "the whole"
    if "const" in schema and value != schema["const"]:
        return f"{here}: expected {schema['const']!r}, found {_show(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{here}: expected one of {', '.join(map(str, schema['enum']))}, found {_show(value)}"
    if "type" in schema:
        types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        if not any(_is(value, name) for name in types):
            return f"{here}: expected {' or '.join(types)}, found {_show(value)}"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        return f"{here}: expected text like {schema['pattern']}, found {_show(value)}"
    if _is(value, "number") and "minimum" in schema and not value >= schema["minimum"]:
        return f"{here}: expected at least {schema['minimum']}, found {_show(value)}"
    if isinstance(value, Mapping):
        return _object_problem(value, schema, path)
    if isinstance(value, (list, tuple)) and "items" in schema:
        found = (problem(part, schema["items"], f"{path}[{i}]") for i, part in enumerate(value))
        return next((text for text in found if text), None)
    return None


def _object_problem(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> str | None:
    prefix = f"{path}." if path else ""
    for name in schema.get("required", ()):
        if name not in value:
            return f"{prefix}{name}: expected a value, found none"
    known = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    for name, part in value.items():
        if name in known:
            text = problem(part, known[name], f"{prefix}{name}")
        elif rest is False:
            text = f"{prefix}{name}: expected one of {', '.join(known)}, found this field"
        else:
            text = problem(part, rest, f"{prefix}{name}") if isinstance(rest, Mapping) else None
        if text:
            return text
    return None


def check(value: Any, schema: Mapping[str, Any], source: str) -> None:
    """Raise InputError naming `source` and the first field of `value` that breaks `schema`."""
    text = problem(value, schema)
    if text:
        raise InputError(f"{source}: {text}")
