"""The tensors of one side of a dumped layer: read once, when they are asked for, and cut to the rows that are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from edge0verify.numerics.blocks import Blocks
from edge0verify.records.evidence import Side
from edge0verify.study.dump_rows import SideRows, take
from edge0verify.study.own import Own

Value = np.ndarray | Blocks


class OnDemand(Mapping):
    """The tensors of one side of a layer by name, each read once."""

    def __init__(self, side: SideRows, read: Callable[[str], Value]) -> None:
        self._names = [tensor for tensor in side.dump.tensors(side.layer) if side.has(tensor)]
        self._read, self._known = read, {}

    def __getitem__(self, tensor: str) -> Value:
        if tensor not in self._known:
            if tensor not in self._names:
                raise KeyError(tensor)
            self._known[tensor] = self._read(tensor)
        return self._known[tensor]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._names


def judged(side: Side) -> bool:
    """Whether anything says what the side may hold."""
    return any(x is not None for x in (side.t, side.exact, side.chosen))


def cut_own(own: Own, rows: np.ndarray) -> Own:
    """The given rows of everything that a side holds."""
    held = {name: getattr(own.side, name) for name in ("rows", "blocks", "ids", "chosen", "t", "bound", "exact")}
    cut = {name: take(value, rows) for name, value in held.items() if value is not None}
    if "rows" in cut and cut["rows"].dtype == np.float16:
        cut["rows"] = cut["rows"].astype(np.float32)
    terms, misread = own.side.terms, own.side.misread
    if terms is not None:
        cut["terms"] = lambda chosen, width: terms(rows[chosen], width)
    if misread is not None:
        cut["misread"] = lambda chosen: misread(rows[chosen])
    return Own(replace(own.side, **cut), None if own.truth is None else take(own.truth, rows))
