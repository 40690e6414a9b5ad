"""Ids, such as the experts of a route: the same ids in the same order, each in range and once in its row."""

from __future__ import annotations

import numpy as np

from edge0verify.compare.elements import Elements, Judged
from edge0verify.compare.entry import Entry, by_flag, check_common, expect_dtype, expect_shape, where
from edge0verify.dump.ids import valid
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Evidence, Side


def check(evidence: Evidence) -> None:
    """Raise InputError unless both sides hold i32 ids of one shape [n, k]."""
    a, b = evidence.a.ids, evidence.b.ids
    assert a is not None and b is not None
    if a.ndim != 2:
        raise InputError(f"{where(evidence, 'a')}: expected ids [n, k], found shape {list(a.shape)}")
    expect_shape(evidence, "b", "ids", b.shape, a.shape)
    for name, array in (("a", a), ("b", b)):
        expect_dtype(evidence, name, "ids", array.dtype, ("int32", "int64"))
    check_common(evidence, a.shape)


def size(side: Side) -> int:
    """Number of rows."""
    return 0 if side.ids is None else len(side.ids)


def entries(evidence: Evidence) -> tuple[Entry, ...]:
    assert evidence.a.ids is not None
    return (Entry(evidence.tensor, "id", evidence.a.ids.shape[1]),)


def elements(evidence: Evidence, part: slice | np.ndarray) -> dict[str, Elements]:
    """The elements of rows `part`. A side keeps its contract where an id is the one that the rule chooses from the side's own
    logits; where those are not known, only where the ids agree: what a flip is worth is for the router's bound to say."""
    assert evidence.a.ids is not None and evidence.b.ids is not None
    a, b = evidence.a.ids[part], evidence.b.ids[part]
    same = a == b
    rules = [declared(evidence, name, part) for name in ("a", "b")]
    flagged = by_flag(evidence, part)
    unknown = same | flagged               # a flag that declares a difference, by a rule that is not known here
    rule_a, rule_b = (unknown if rule is None else ids == rule for rule, ids in zip(rules, (a, b)))
    none = np.zeros(same.shape, bool)
    sides = []
    for name, ids, rule in (("a", a, rule_a), ("b", b, rule_b)):
        fine = valid(ids, evidence.limit)
        sides.append(Judged(nonfinite=_from_nan(evidence, name, part, fine), poison=none, keeps=fine & rule))
    made = Elements(
        unit="id",
        same=same,
        a=sides[0],
        b=sides[1],
        values_a=a.astype(np.float64),
        values_b=b.astype(np.float64),
        declared=flagged,
    )
    return {evidence.tensor: made}


def declared(evidence: Evidence, name: str, part: slice | np.ndarray) -> np.ndarray | None:
    """i32 [rows, k]: what the rule chooses from the side's own logits (the largest, ties to the lower id); None if not known."""
    side = getattr(evidence, name)
    if side.chosen is not None:
        return side.chosen[part]
    logits = None if evidence.router is None else getattr(evidence.router, name)
    if logits is None:
        return None
    return np.argsort(-logits[part].astype(np.float64), axis=1, kind="stable")[:, : side.ids.shape[1]].astype(np.int32)


def _from_nan(evidence: Evidence, name: str, part: slice | np.ndarray, fine: np.ndarray) -> np.ndarray:
    """bool like the ids: chosen from logits of which one is NaN. Ids that no router may choose have a fault of their own."""
    logits = None if evidence.router is None else getattr(evidence.router, name)
    if logits is None:
        return np.zeros(fine.shape, bool)
    return np.isnan(logits[part]).any(axis=1)[:, None] & fine


def values(side: Side, unit: str, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """f64 values of single elements, for their size."""
    assert side.ids is not None
    return side.ids[rows, columns].astype(np.float64)


def shown(side: Side, unit: str, row: int, column: int) -> int:
    """One element as a reader should see it."""
    assert side.ids is not None
    return int(side.ids[row, column])


def limits(evidence: Evidence, side: Side, rows: np.ndarray) -> dict[str, None]:
    return {evidence.tensor: None}
