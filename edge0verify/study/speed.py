"""What a speed measurement answers: rows beside the ceilings that were measured in the same run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from edge0verify.numerics.formats import FORMATS
from edge0verify.records.verdict import plain

SCHEMA = "edge0verify.speed/1"
SCALE_AT = {"Q3_K": 108}
"""Byte of a block's f16 scale, where it is not the first."""


@dataclass(frozen=True, kw_only=True)
class SpeedRow:
    """One measurement.  us: median microseconds of a launch or call; spread: range over the repetitions as a share of it."""

    part: str
    """'tile', 'row', 'bare' (a tile product that copies nothing after its first stages), or a stage on the CPU."""
    variant: str
    fmt: str
    m: int
    n: int
    k: int
    us: float
    spread: float
    tops: float
    """10^12 multiplications and additions a second."""
    weights_tbs: float | None = None
    """TB/s of weights, for products of few rows."""
    of_int8: float | None = None
    """Share of the vendor's int8 matrix product."""
    of_reading: float | None = None
    """Share of the bandwidth of a kernel that only reads as much."""
    of_bare: float | None = None
    """Share of the variant's own inner loop."""
    ggml: float | None = None
    """Of ggml's dots on the same weights in the same run, times as fast."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Share:
    """One stage's part of a prefill."""

    stage: str
    seconds: float
    share: float


@dataclass(frozen=True, kw_only=True)
class SpeedReport:
    """The answer of `bench kernels`.  not_measured says of each figure that is missing why it is."""

    device: dict[str, Any]
    rows: tuple[SpeedRow, ...] = ()
    int8_tops: float | None = None
    read_tbs: dict[str, float] = field(default_factory=dict)
    """MiB a launch reads -> TB/s."""
    prefill: dict[str, Any] | None = None
    not_measured: tuple[str, ...] = ()
    reason: str | None = None
    """Why nothing was measured."""

    def to_json(self) -> dict[str, Any]:
        return plain({"schema": SCHEMA, **asdict(self)})

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"


def median_and_spread(times: Sequence[float]) -> tuple[float, float]:
    median = statistics.median(times)
    return median, (max(times) - min(times)) / median


def random_weights(rng: np.random.Generator, fmt: str, rows: int, k: int) -> np.ndarray:
    """GGUF rows uint8 [rows, bytes] with random codes and scales about 0.01."""
    values, size = FORMATS[fmt].values, FORMATS[fmt].bytes
    blocks = rng.integers(0, 256, (rows, k // values, size), dtype=np.uint8)
    at = SCALE_AT.get(fmt, 0)
    d = (rng.standard_normal(blocks.shape[:2]) * 0.01).astype(np.float16)
    blocks[..., at : at + 2] = d.view(np.uint8).reshape(*d.shape, 2)
    return blocks.reshape(rows, -1)
