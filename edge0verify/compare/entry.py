"""What an entry of a verdict is: one kind of element of one tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Evidence


@dataclass(frozen=True)
class Entry:
    name: str
    """Tensor name, with `.d` for scales and `.s` for block sums."""
    unit: str
    """'code', 'scale', 'sum', 'row' or 'id'."""
    columns: int


def in_layer(layer: int | str) -> str:
    """'layer 3', 'layer mtp'; of a kernel tested alone 'case one token'."""
    return f"layer {layer}" if isinstance(layer, int) or layer in ("mtp", "head") else f"case {layer}"


def where(evidence: Evidence, side: str | None = None) -> str:
    """The evidence's place, to begin an error line with."""
    return f"{in_layer(evidence.layer)} {evidence.tensor}" + (f" side {side}" if side else "")


def by_flag(evidence: Evidence, part: slice | np.ndarray) -> bool | np.ndarray:
    """Whether a flag declares a difference in rows `part`: for all of them, or bool [rows, 1]."""
    if not evidence.declared or evidence.declared_rows is None:
        return bool(evidence.declared)
    return evidence.declared_rows[part][:, None]


def expect_shape(evidence: Evidence, side: str | None, what: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """InputError unless the shapes agree."""
    if tuple(found) != tuple(expected):
        raise InputError(f"{where(evidence, side)}: expected {what} of shape {list(expected)}, found {list(found)}")


def expect_dtype(evidence: Evidence, side: str | None, what: str, found: object, allowed: tuple[str, ...]) -> None:
    """InputError unless the dtype is one of `allowed`."""
    if str(found) not in allowed:
        raise InputError(f"{where(evidence, side)}: expected {what} as {' or '.join(allowed)}, found {found}")


def check_common(evidence: Evidence, shape: tuple[int, int]) -> None:
    """Shapes and dtypes of what every kind of evidence may carry, n rows of m values."""
    for name, side in (("a", evidence.a), ("b", evidence.b)):
        for what, array in (("own oracle t", side.t), ("bound", side.bound)):
            if array is not None:
                expect_shape(evidence, name, what, array.shape, shape)
                expect_dtype(evidence, name, what, array.dtype, ("float64",))
        if side.bound is not None and side.t is None:
            raise InputError(f"{where(evidence, name)}: expected the own oracle t with its bound, found the bound alone")
    for what, array in (("oracle", evidence.oracle), ("oracle_a", evidence.oracle_a), ("oracle_b", evidence.oracle_b)):
        if array is not None:
            expect_shape(evidence, None, what, array.shape, shape)
    if evidence.declared_rows is not None and evidence.declared_rows.shape != shape[:1]:
        raise InputError(f"{where(evidence)}: expected a flag's rows [{shape[0]}], found {list(evidence.declared_rows.shape)}")
    if evidence.keys is not None and (evidence.keys.ndim != 2 or len(evidence.keys) != shape[0]):
        raise InputError(f"{where(evidence)}: expected keys of {shape[0]} rows, found shape {list(evidence.keys.shape)}")
