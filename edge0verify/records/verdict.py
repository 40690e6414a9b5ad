"""A verdict and its parts, with the JSON form `edge0verify.verdict/1`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError

SCHEMA = "edge0verify.verdict/1"


def percent(part: int, whole: int) -> float | None:
    """100 * part / whole as a float64, which tells one element in 10^8 (and in 10^13); None of nothing."""
    return 100.0 * part / whole if whole else None


def plain(value: Any) -> Any:
    """The JSON form of a number: numpy scalars as Python's, and NaN and Inf as strings, since JSON has none."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


@dataclass(frozen=True, kw_only=True)
class Worst:
    """One element worth looking at."""

    index: tuple[int, ...]
    """(row, column); of a scale or sum (row, block)."""
    key: tuple[int, ...] | None
    """What the row stands for, as in the dump's keys."""
    a: float | int | str
    b: float | int | str
    bound: tuple[float | int | str, float | int | str] | None
    """Lowest and highest value that the side at fault (else a) may have; None where nothing bounds it."""
    cause: str

    def to_json(self) -> dict[str, Any]:
        return {
            "index": list(self.index),
            "key": None if self.key is None else list(self.key),
            "a": plain(self.a),
            "b": plain(self.b),
            "bound": None if self.bound is None else plain(list(self.bound)),
            "cause": self.cause,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Worst:
        key, bound = data["key"], data["bound"]
        return cls(
            index=tuple(data["index"]),
            key=None if key is None else tuple(key),
            a=data["a"],
            b=data["b"],
            bound=None if bound is None else tuple(bound),
            cause=data["cause"],
        )


@dataclass(frozen=True, kw_only=True)
class LayerResult:
    """What was found for one entry: a tensor of one layer, or its scales (`T.d`) or block sums (`T.s`)."""

    layer: int | str
    tensor: str
    n: int
    equal: int
    """Elements with the same bits."""
    equal_pct: float | None
    max_code_diff: int | None
    code_diffs: dict[str, int] | None
    """Histogram of |code a - code b| over the codes that differ: {'1': 7, '2': 1}."""
    scale_equal_pct: float | None
    rel_l2: float | None
    """|a - b| / |b|, over elements that are finite on both sides; codes by their values d * code."""
    max_abs: float | None
    max_ulp: int | None
    corr: float | None
    """Pearson; None where it is not defined (a constant side). Reported, never decides."""
    conforming: dict[str, int | None]
    """{a, b}: elements of that side that keep its contract; None where nothing is known to judge them by."""
    poison: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    """{a, b}: elements that still hold the poison their output was preset to."""
    causes: dict[str, int]
    """Adds up to n."""
    bias: dict[str, Any] | None = None
    worst: tuple[Worst, ...] = ()
    triangle: dict[str, float | None] | None = None
    """rel-L2: {a_oracle, b_oracle, a_b, oracles}; `oracles` is what the operands alone explain."""
    status: str
    reasons: tuple[str, ...] = ()
    """Why the status is not PASS, a sentence each; of a pass what it rests on, such as a flip within the router's bound."""

    def to_json(self) -> dict[str, Any]:
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        data["worst"] = [worst.to_json() for worst in self.worst]
        data["reasons"] = list(self.reasons)
        return plain(data)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LayerResult:
        known = {f.name: data[f.name] for f in fields(cls)}
        known["worst"] = tuple(Worst.from_json(worst) for worst in data["worst"])
        known["reasons"] = tuple(data["reasons"])
        return cls(**known)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to one comparison."""

    status: str
    reasons: tuple[str, ...]
    stage: str | None
    a: str
    b: str
    reference: str | None
    model: dict[str, Any] | None
    prompt: dict[str, Any] | None
    engaged: dict[str, bool | None]
    signature: dict[str, Any]
    layers: tuple[LayerResult, ...]
    totals: dict[str, Any]
    top8: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    grids: tuple[dict[str, Any], ...] | None = None
    """Reduced tensors for pictures (`study.kept_grids`), where they were asked for; left out of the JSON where they were not."""

    def __post_init__(self) -> None:
        if self.status not in statuses.STATUSES:
            raise ValueError(f"status is one of {', '.join(statuses.STATUSES)}, not {self.status!r}")

    @property
    def exit_code(self) -> int:
        return statuses.exit_code(self.status)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict, `schema` first."""
        data: dict[str, Any] = {"schema": SCHEMA}
        data.update({f.name: getattr(self, f.name) for f in fields(self)})
        data["reasons"] = list(self.reasons)
        data["layers"] = [layer.to_json() for layer in self.layers]
        if self.grids is None:
            del data["grids"]
        return {key: plain(value) for key, value in data.items()}

    def dumps(self) -> str:
        """The JSON text, one value a line, ending in a newline."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, data: Any, *, source: str = "verdict") -> Verdict:
        """Read a verdict back; InputError names `source` and the field that is wrong."""
        from edge0verify.records.schema import VERDICT, check

        check(data, VERDICT, source)
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        known["reasons"] = tuple(data["reasons"])
        if "grids" in data:
            known["grids"] = tuple(data["grids"])
        known["layers"] = tuple(LayerResult.from_json(layer) for layer in data["layers"])
        return cls(**known)

    @classmethod
    def loads(cls, text: str | bytes, *, source: str = "verdict") -> Verdict:
        try:
            data = json.loads(text)
        except ValueError as wrong:
            raise InputError(f"{source}: expected JSON, found {wrong}") from None
        return cls.from_json(data, source=source)
