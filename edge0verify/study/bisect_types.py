"""What a bisection is asked and what it answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from edge0verify.model import Model
from edge0verify.records import status as statuses
from edge0verify.records.verdict import plain
from edge0verify.study.bisect_judge import Flips, Judged
from edge0verify.study.bisect_place import Exchange
from edge0verify.study.bisect_walk import CHUNK

SCHEMA = "edge0verify.bisect/1"


@dataclass(frozen=True, kw_only=True)
class Request:
    """Which two runs.  stage 'D', 'A', 'U' or 'all': the stages that a and b name variants for; the others run mmvq."""

    model: Model
    a: str
    b: str
    prompt: str
    tokens: np.ndarray
    stage: str = "all"
    model_b: Model | None = None
    threads: int = 1
    chunk: int = CHUNK


@dataclass
class Entry:
    """Sums over chunks of one entry of one stage of one layer, one side."""

    layer: int | str
    stage: str
    tensor: str
    unit: str
    n: int = 0
    broken: int = 0
    columns: np.ndarray | None = None
    tokens: int = 0
    experts: dict[int, int] = field(default_factory=dict)
    first: tuple[tuple[int, ...], int] | None = None
    biased: str = ""
    lost: int = 0

    @property
    def faulty(self) -> bool:
        return bool(self.broken or self.biased)

    def add(self, found: Judged) -> None:
        self.n += found.broken.size
        wrong = int(np.count_nonzero(found.broken))
        if found.biased and not self.biased:
            self.biased = found.biased
            self.first = self.first or (tuple(int(v) for v in found.keys[0]), 0)
        if self.columns is None:
            self.columns = np.zeros(found.broken.shape[1], bool)
        if not wrong:
            return
        self.broken += wrong
        self.lost += found.lost
        self.columns |= found.broken.any(axis=0)
        rows = np.flatnonzero(found.broken.any(axis=1))
        self.tokens += len(np.unique(found.keys[rows, 1]))
        if found.keys.shape[1] == 5:
            for expert, n in zip(*np.unique(found.keys[rows, 3], return_counts=True)):
                self.experts[int(expert)] = self.experts.get(int(expert), 0) + int(n)
        if self.first is None:
            self.first = (tuple(int(v) for v in found.keys[rows[0]]), int(np.argmax(found.broken[rows[0]])))


@dataclass(frozen=True, kw_only=True)
class First:
    """The first entry that does not conform, and where in it and in the weights.

    position, slot, expert: of the first broken row; column: its first broken column; block: that column's block of 32, or the
    block itself where the entry is scales or sums.  weights, weight_row, weight_blocks: the tensor behind it, the row that makes
    the column, and the blocks along the dot that a probe finds wrong.  experts: broken rows per expert.  differs: blocks of the
    weights whose bytes differ from model A's, (expert, row, block), with their number.
    """

    side: str
    layer: int | str
    stage: str
    tensor: str
    n: int
    broken: int
    tokens: int
    columns: int
    position: int
    slot: int | None
    expert: int | None
    column: int
    block: int | None
    experts: dict[int, int]
    biased: str = ""
    """Every element conforms and their errors are systematic, so no single place is to blame."""
    weights: str | None = None
    weight_row: int | None = None
    weight_blocks: tuple[int, ...] | None = None
    exchanges: tuple[Exchange, ...] = ()
    differs: tuple[tuple[int | None, int, int], ...] = ()
    differing_blocks: int = 0
    excuse: str = ""
    """The smallest limit of a policy that would have let it pass."""
    unequal: tuple[str, ...] = ()
    """Outside the stages: tensors that the two models store with other bytes."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One layer: how far a and b are apart at each step (rel L2), by how much that grew over the layer below (`jump`, of u), how
    far each is from the float oracle, and the tokens whose route flips.  stages: per step, broken elements of a and of b."""

    layer: int | str
    difference: dict[str, float | None]
    jump: float | None
    triangle: dict[str, float | None]
    flips: Flips
    stages: dict[str, dict[str, int]]


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """The answer."""

    status: str
    reasons: tuple[str, ...]
    a: str
    b: str
    stage: str
    variants: dict[str, dict[str, str]]
    model: dict[str, Any]
    model_b: dict[str, Any] | None
    prompt: dict[str, Any]
    engaged: dict[str, bool | None]
    first: First | None
    layers: tuple[Rung, ...]
    attribute: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return statuses.exit_code(self.status)

    def to_json(self) -> dict[str, Any]:
        return plain({"schema": SCHEMA, **asdict(self)})

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"
