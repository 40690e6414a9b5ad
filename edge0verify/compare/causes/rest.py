"""What the causes that need a whole tensor see: the elements that no element cause claimed, and which side breaks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edge0verify.compare import comparators
from edge0verify.compare.elements import Mask
from edge0verify.compare.entry import Entry
from edge0verify.records.evidence import Evidence, Side

SIDES = ("a", "b")
_CHUNK = 1 << 17  # elements judged together


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one rest cause claims of an entry."""

    mask: Mask
    """bool [n, m]: its elements; only those that are still open count."""
    note: str = ""
    """The rule that fits, in words."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What a limit of a policy is held against."""


@dataclass(frozen=True, kw_only=True)
class Rest:
    """Elements of one entry that break a contract and have no cause yet."""

    evidence: Evidence
    """The whole tensor, both sides."""
    entry: Entry
    open: Mask
    """bool [n, m] over the entry: still without a cause."""
    unjudged: bool = False
    """Nothing says what either side's elements may be; open are those that differ."""
    memory: dict[Any, Any] = field(default_factory=dict)
    """Shared by all entries of one tensor: rows found stale by their codes need no second search for their scales."""

    @property
    def unit(self) -> str:
        """'code', 'scale', 'sum', 'row' or 'id'."""
        return self.entry.unit

    @property
    def keyed(self) -> bool:
        """Whether rows belong together by keys; then their order says nothing."""
        return self.evidence.keys is not None

    def side(self, name: str) -> Side:
        return self.evidence.a if name == "a" else self.evidence.b

    def narrowed(self, left: Mask) -> Rest:
        """The same with fewer elements open."""
        return replace(self, open=left)

    def rows(self) -> np.ndarray:
        """Indices of the rows that hold an open element."""
        return np.flatnonzero(self.open.any(axis=1))

    def judged(self, name: str) -> bool:
        """Whether anything says what this side's elements may be."""
        return self._broken()[2][name]

    def broken(self, name: str) -> Mask:
        """bool [n, m]: open elements where this side breaks its contract; where nothing judges either side, where they differ."""
        return self._broken()[SIDES.index(name)] & self.open

    def _broken(self) -> tuple[Mask, Mask, dict[str, bool]]:
        key = ("broken", self.entry.name)
        if key not in self.memory:
            self.memory[key] = self._judge()
        return self.memory[key]

    def _judge(self) -> tuple[Mask, Mask, dict[str, bool]]:
        found = {name: np.zeros(self.open.shape, bool) for name in SIDES}
        judged = dict.fromkeys(SIDES, False)
        rows = self.rows()
        step = max(1, _CHUNK // self.open.shape[1])
        comparator = comparators.find(self.evidence.kind)
        for lo in range(0, len(rows), step):
            part = rows[lo : lo + step]
            elements = comparator.elements(self.evidence, part)[self.entry.name]
            for name, side in (("a", elements.a), ("b", elements.b)):
                judged[name] |= side.keeps is not None
                if side.keeps is not None:
                    found[name][part] = ~side.keeps
                elif not elements.judged and elements.a.keeps is elements.b.keeps:
                    found[name][part] = ~elements.same
        return found["a"], found["b"], judged


def bits(side: Side, unit: str) -> np.ndarray:
    """Unsigned integers [n, m]: the bits of one side's elements of that unit."""
    if unit == "row":
        assert side.rows is not None
        return np.ascontiguousarray(side.rows).view(np.uint32)
    assert side.blocks is not None
    if unit == "code":
        return np.ascontiguousarray(side.blocks.codes).view(np.uint8)
    floats = side.blocks.d if unit == "scale" else side.blocks.s
    assert floats is not None
    return np.ascontiguousarray(floats).view(np.uint16 if floats.dtype == np.float16 else np.uint32)


def holds(side: Side | None, unit: str) -> bool:
    """Whether a side has elements of that unit."""
    if side is None:
        return False
    if unit in ("row", "id"):
        return side.present("rows" if unit == "row" else "ids")
    return side.blocks is not None and (unit != "sum" or side.blocks.s is not None)
