"""Stored blocks of 32: codes, their scales, and block sums where both sides store them, an entry each."""

from __future__ import annotations

import numpy as np

from edge0verify.compare import stored
from edge0verify.compare.elements import Elements, Judged
from edge0verify.compare.entry import Entry, check_common, expect_dtype, expect_shape, where
from edge0verify.numerics.blocks import BLOCK, POISON_CODE, POISON_F16_BITS, POISON_F32_BITS, Blocks, same_floats
from edge0verify.numerics.conform import code_of_oracle
from edge0verify.numerics.rounding import to_f16
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Evidence, Side

_SUMS_CHUNK = 1 << 20  # codes whose sums are looked at together


def check(evidence: Evidence) -> None:
    """Raise InputError unless both sides hold blocks of one shape, and whatever else they hold fits it."""
    shape = None
    for name, side in (("a", evidence.a), ("b", evidence.b)):
        blocks = side.blocks
        assert blocks is not None
        if blocks.codes.ndim != 2 or blocks.codes.shape[1] % BLOCK:
            found = list(blocks.codes.shape)
            raise InputError(f"{where(evidence, name)}: expected codes [n, a multiple of {BLOCK}], found shape {found}")
        shape = shape or blocks.codes.shape
        expect_shape(evidence, name, "codes", blocks.codes.shape, shape)
        expect_dtype(evidence, name, "codes", blocks.codes.dtype, ("int8",))
        for given in (blocks, side.exact):
            if given is not None:
                _check_parts(evidence, name, given, shape)
        if side.rows is not None:
            expect_shape(evidence, name, "rows before the store", side.rows.shape, shape)
            expect_dtype(evidence, name, "rows before the store", side.rows.dtype, ("float32",))
    assert shape is not None
    check_common(evidence, shape)


def _check_parts(evidence: Evidence, name: str, blocks: Blocks, shape: tuple[int, int]) -> None:
    per_block = (shape[0], shape[1] // BLOCK)
    expect_shape(evidence, name, "codes", blocks.codes.shape, shape)
    expect_shape(evidence, name, "scales", blocks.d.shape, per_block)
    expect_dtype(evidence, name, "scales", blocks.d.dtype, ("float16", "float32"))
    if blocks.s is not None:
        expect_shape(evidence, name, "block sums", blocks.s.shape, per_block)
        expect_dtype(evidence, name, "block sums", blocks.s.dtype, ("float16",))


def _sums(evidence: Evidence) -> bool:
    a, b = evidence.a.blocks, evidence.b.blocks
    return a is not None and b is not None and a.s is not None and b.s is not None


def _lone_sums(evidence: Evidence) -> str | None:
    """'a' or 'b' where that side alone stores block sums and some of them are wrong. There is nothing to compare them with, but a
    sum that is not what its quantiser makes is a fault all the same."""
    having = [name for name in ("a", "b") if getattr(evidence, name).blocks.s is not None]
    if len(having) != 1:
        return None
    side = getattr(evidence, having[0])
    step = max(1, _SUMS_CHUNK // side.blocks.codes.shape[1])
    for lo in range(0, len(side.blocks.s), step):
        part = slice(lo, lo + step)
        nonfinite, poison = _float_faults(side.blocks.s[part])
        keeps = stored.sums_keep(side, part, stored.allowed(side, part))
        if nonfinite.any() or poison.any() or (keeps is not None and not keeps.all()):
            return having[0]
    return None


def size(side: Side) -> int:
    """Number of rows."""
    return 0 if side.blocks is None else len(side.blocks.codes)


def entries(evidence: Evidence) -> tuple[Entry, ...]:
    assert evidence.a.blocks is not None
    columns = evidence.a.blocks.codes.shape[1]
    found = [Entry(evidence.tensor, "code", columns), Entry(evidence.tensor + ".d", "scale", columns // BLOCK)]
    if _sums(evidence) or _lone_sums(evidence):
        found.append(Entry(evidence.tensor + ".s", "sum", columns // BLOCK))
    return tuple(found)


def _float_faults(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(nonfinite, poison) masks of f16 or f32 values."""
    x = np.ascontiguousarray(x)
    poison = x.view(np.uint16) == POISON_F16_BITS if x.dtype == np.float16 else x.view(np.uint32) == POISON_F32_BITS
    return ~np.isfinite(x) & ~poison, poison


def _spread(per_block: np.ndarray) -> np.ndarray:
    return np.repeat(per_block, BLOCK, axis=1)


class _Part:
    """One side's rows `part`, judged: codes, scales, sums."""

    def __init__(self, side: Side, part: slice | np.ndarray) -> None:
        assert side.blocks is not None
        self.side, self.part = side, part
        self.blocks = side.blocks.take(part)
        self.may = stored.allowed(side, part)
        self.dead, self.scale_poison = _float_faults(self.blocks.d)
        self._ideal: tuple[np.ndarray, np.ndarray] | None = None
        loose_codes, loose_scales = self._loose()
        self.codes = Judged(
            nonfinite=_spread(self.dead),
            poison=self.blocks.codes == POISON_CODE,
            keeps=stored.codes_keep(self.blocks, self.may),
            loose=loose_codes,
        )
        self.scales = Judged(
            nonfinite=self.dead, poison=self.scale_poison, keeps=stored.scales_keep(side, self.blocks, self.may), loose=loose_scales
        )
        self.sums = None if self.blocks.s is None else self._sums()

    @property
    def oracle(self) -> np.ndarray | None:
        """f64 rows that were to be quantised: the own oracle, or known rows."""
        if self.side.t is not None:
            return self.side.t[self.part]
        return None if self.side.rows is None else self.side.rows[self.part].astype(np.float64)

    def ideal(self) -> tuple[np.ndarray, np.ndarray]:
        """Codes and scales that exact arithmetic would store of the oracle."""
        if self._ideal is None:
            oracle = self.oracle
            assert oracle is not None
            self._ideal = code_of_oracle(oracle, stored.store_of(self.side))
        return self._ideal

    def _loose(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Loose masks of codes and scales. An element that the oracle itself would have stored needs no bound."""
        wide = self.may.wide
        if wide is None or not wide.any():
            return None, None
        assert self.may.scale is not None
        touches_zero = (self.may.scale[0] <= 0) & wide.reshape(*self.dead.shape, BLOCK).any(axis=2)
        codes, d = self.ideal()
        return wide & (self.blocks.codes != codes), touches_zero & ~stored.same_scales(self.blocks.d, d)

    def _sums(self) -> Judged:
        assert self.blocks.s is not None
        nonfinite, poison = _float_faults(self.blocks.s)
        return Judged(nonfinite=nonfinite, poison=poison, keeps=stored.sums_keep(self.side, self.part, self.may))


def _chained(judged: Judged, same: np.ndarray) -> Judged:
    return Judged(nonfinite=judged.nonfinite, poison=judged.poison, keeps=judged.keeps, loose=~same)


def _one_input(a: Side, b: Side) -> bool:
    """Whether both sides quantised the very same oracle: then operands explain nothing."""
    if a.t is not None or b.t is not None:
        return a.t is b.t
    return a.rows is not None and a.rows is b.rows


def elements(evidence: Evidence, part: slice | np.ndarray) -> dict[str, Elements]:
    """The elements of rows `part`, by entry name."""
    sums = _sums(evidence)
    a, b = _Part(evidence.a, part), _Part(evidence.b, part)
    with np.errstate(invalid="ignore"):
        values_a, values_b = a.blocks.values(), b.blocks.values()
    one_input = _one_input(evidence.a, evidence.b)
    known = a.oracle is not None and b.oracle is not None
    scale_form = a.blocks.d.dtype != b.blocks.d.dtype

    def codes_apart() -> np.ndarray:
        if known:
            return a.ideal()[0] != b.ideal()[0]
        # Blocks of known rows that were not handed over: two forms of the quantiser may differ by one code, no more.
        gap = np.abs(a.blocks.codes.astype(np.int16) - b.blocks.codes)
        return gap > (1 if stored.store_of(a.side) != stored.store_of(b.side) else 0)

    def scales_apart() -> np.ndarray:
        if known:
            return ~stored.same_scales(a.ideal()[1], b.ideal()[1])
        return ~stored.same_scales(a.blocks.d, b.blocks.d)

    def sums_apart() -> np.ndarray:
        if a.oracle is None or b.oracle is None:
            return np.zeros(a.dead.shape, bool)
        return _sums_of(a) != _sums_of(b)

    made = {
        evidence.tensor: _elements(
            evidence, "code", a.blocks.codes == b.blocks.codes, a.codes, b.codes, values_a, values_b,
            code_gap=np.abs(a.blocks.codes.astype(np.int16) - b.blocks.codes),
            apart=None if one_input else codes_apart,
        ),
        evidence.tensor + ".d": _elements(
            evidence, "scale", stored.same_scales(a.blocks.d, b.blocks.d), a.scales, b.scales,
            a.blocks.d.astype(np.float64), b.blocks.d.astype(np.float64),
            raw=(a.blocks.dot_scale(), b.blocks.dot_scale()) if scale_form else (a.blocks.d, b.blocks.d),
            apart=None if one_input and not scale_form else scales_apart,
        ),
    }
    if sums:
        assert a.blocks.s is not None and b.blocks.s is not None and a.sums is not None and b.sums is not None
        made[evidence.tensor + ".s"] = _elements(
            evidence, "sum", same_floats(a.blocks.s, b.blocks.s), a.sums, b.sums,
            a.blocks.s.astype(np.float64), b.blocks.s.astype(np.float64), raw=(a.blocks.s, b.blocks.s),
            apart=None if one_input else sums_apart,
        )
    elif a.sums is not None or b.sums is not None:
        made[evidence.tensor + ".s"] = _one_sided(evidence, a, b)
    return made


def _one_sided(evidence: Evidence, a: _Part, b: _Part) -> Elements:
    """Block sums that one side alone stores: the other has none that could be wrong. Where its scale is not finite either, a sum
    that is not finite came from what both sides read."""
    has, other = (a, b) if a.sums is not None else (b, a)
    assert has.sums is not None and has.blocks.s is not None
    shape = has.blocks.s.shape
    none = Judged(nonfinite=has.sums.nonfinite & other.dead, poison=np.zeros(shape, bool), keeps=np.ones(shape, bool))
    fine = ~(has.sums.nonfinite | has.sums.poison)
    if has.sums.keeps is not None:
        fine &= has.sums.keeps
    fine |= none.nonfinite
    values = has.blocks.s.astype(np.float64)
    return _elements(evidence, "sum", fine, a.sums or none, b.sums or none, values, values)


def _sums_of(side: _Part) -> np.ndarray:
    """f16 block sums of the side's oracle, as its kind of quantiser defines them."""
    assert side.oracle is not None
    if stored.store_of(side.side) == "mmvq":
        return to_f16(side.oracle.reshape(*side.dead.shape, BLOCK).sum(axis=2))
    codes, d = side.ideal()
    return to_f16(d.astype(np.float64) * codes.reshape(*side.dead.shape, BLOCK).sum(axis=2, dtype=np.int64))


def _elements(evidence, unit, same, a, b, values_a, values_b, *, raw=(None, None), code_gap=None, apart=None) -> Elements:
    if evidence.a.chained or evidence.b.chained:
        a = _chained(a, same)
    return Elements(
        unit=unit, same=same, a=a, b=b, values_a=values_a, values_b=values_b, raw_a=raw[0], raw_b=raw[1],
        code_gap=code_gap, apart=apart, declared=bool(evidence.declared),
    )


def values(side: Side, unit: str, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """f64 values of single elements (of codes d * code), for their size."""
    assert side.blocks is not None
    if unit == "sum":
        return np.full(len(rows), np.nan) if side.blocks.s is None else side.blocks.s[rows, columns].astype(np.float64)
    if unit == "scale":
        return side.blocks.d[rows, columns].astype(np.float64)
    return side.blocks.codes[rows, columns] * side.blocks.d[rows, columns // BLOCK].astype(np.float64)


def shown(side: Side, unit: str, row: int, column: int) -> float | int:
    """One element as a reader should see it: a code rather than the value it stands for."""
    assert side.blocks is not None
    if unit == "code":
        return int(side.blocks.codes[row, column])
    return float(values(side, unit, np.array([row]), np.array([column]))[0])


def limits(evidence: Evidence, side: Side, rows: np.ndarray) -> dict[str, stored.Span | None]:
    """Per entry, lowest and highest conforming code, scale and sum of `side` in `rows`; None where nothing bounds it."""
    may = stored.allowed(side, rows)
    found: dict[str, stored.Span | None] = {}
    exact = may.exact
    found[evidence.tensor] = (exact.codes, exact.codes) if exact is not None else may.code
    found[evidence.tensor + ".d"] = (exact.d, exact.d) if exact is not None else may.scale
    if side.blocks is not None and side.blocks.s is None:
        found[evidence.tensor + ".s"] = None
    else:
        known = exact is not None and exact.s is not None
        found[evidence.tensor + ".s"] = (exact.s, exact.s) if known else stored.sum_span(side, rows, may)
    return found
