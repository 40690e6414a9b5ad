"""Float32 rows: |y - t| <= bound, side by side."""

from __future__ import annotations

import numpy as np

from edge0verify.compare.elements import Elements, Judged
from edge0verify.compare.entry import Entry, by_flag, check_common, expect_dtype, expect_shape, where
from edge0verify.numerics.blocks import POISON_F32_BITS, same_floats
from edge0verify.numerics.conform import rows_conform
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Evidence, Side


def check(evidence: Evidence) -> None:
    """Raise InputError unless both sides hold f32 rows of one shape [n, m]."""
    a, b = evidence.a.rows, evidence.b.rows
    assert a is not None and b is not None
    if a.ndim != 2:
        raise InputError(f"{where(evidence, 'a')}: expected rows [n, m], found shape {list(a.shape)}")
    expect_shape(evidence, "b", "rows", b.shape, a.shape)
    for name, array in (("a", a), ("b", b)):
        expect_dtype(evidence, name, "rows", array.dtype, ("float32",))
    check_common(evidence, a.shape)


def size(side: Side) -> int:
    """Number of rows."""
    return 0 if side.rows is None else len(side.rows)


def entries(evidence: Evidence) -> tuple[Entry, ...]:
    assert evidence.a.rows is not None
    return (Entry(evidence.tensor, "row", evidence.a.rows.shape[1]),)


def judge(side: Side, part: slice | np.ndarray) -> Judged:
    """Rows `part` of one side against its bound."""
    assert side.rows is not None
    y = np.ascontiguousarray(side.rows[part])
    poison = y.view(np.uint32) == POISON_F32_BITS
    nonfinite = ~np.isfinite(y) & ~poison
    if side.t is None or side.bound is None:
        return Judged(nonfinite=nonfinite, poison=poison, keeps=None)
    return Judged(nonfinite=nonfinite, poison=poison, keeps=rows_conform(y, side.t[part], side.bound[part]))


def elements(evidence: Evidence, part: slice | np.ndarray) -> dict[str, Elements]:
    """The elements of rows `part`, by entry name."""
    a, b = evidence.a, evidence.b
    assert a.rows is not None and b.rows is not None
    y_a, y_b = a.rows[part], b.rows[part]
    same = same_floats(y_a, y_b)
    judged_a, judged_b = judge(a, part), judge(b, part)
    if a.chained or b.chained:
        judged_a = Judged(nonfinite=judged_a.nonfinite, poison=judged_a.poison, keeps=judged_a.keeps, loose=~same)
    apart = None
    if a.t is not None and b.t is not None and a.t is not b.t and a.bound is not None and b.bound is not None:
        t_a, t_b, reach = a.t[part], b.t[part], a.bound[part] + b.bound[part]

        def apart() -> np.ndarray:
            return np.abs(t_a - t_b) > reach

    made = Elements(
        unit="row",
        same=same,
        a=judged_a,
        b=judged_b,
        values_a=y_a.astype(np.float64),
        values_b=y_b.astype(np.float64),
        raw_a=y_a,
        raw_b=y_b,
        apart=apart,
        declared=by_flag(evidence, part),
    )
    return {evidence.tensor: made}


def values(side: Side, unit: str, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """f64 values of single elements, for their size."""
    assert side.rows is not None
    return side.rows[rows, columns].astype(np.float64)


def shown(side: Side, unit: str, row: int, column: int) -> float:
    """One element as a reader should see it."""
    assert side.rows is not None
    return float(side.rows[row, column])


def limits(evidence: Evidence, side: Side, rows: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray] | None]:
    """Per entry, lowest and highest conforming value f64 [len(rows), m] of `side`; None where nothing bounds it."""
    if side.t is None or side.bound is None:
        return {evidence.tensor: None}
    t, bound = side.t[rows], side.bound[rows]
    return {evidence.tensor: (t - bound, t + bound)}
