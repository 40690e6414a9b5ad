"""The comparators are mutated themselves: a comparator that cannot fail must not survive its own battery."""

from dataclasses import replace

import numpy as np
import pytest

from edge0verify.compare import causes, compare
from edge0verify.compare.causes import biased, equal, route_flip, unwritten
from edge0verify.compare.causes.rest import Finding
from edge0verify.compare.comparators import blocks, rows
from edge0verify.compare.policy import Limits, Policy
from edge0verify.numerics import conform
from edge0verify.records.causes import FAILING
from edge0verify.records.evidence import Side
from edge0verify.records.status import worst_status
from tests.compare.sides import (
    SHAPE,
    at,
    blocks_pair,
    blocks_side,
    edited,
    near_tie,
    operand_side,
    pair,
    rows_side,
    terms_of,
    token_keys,
)
from tests.compare.test_rows import POISON


def next_scale(d):
    d[:, 0] = d[:, 1]


def one_more(codes):
    codes[41, 37] += 1


def both(side, **edit):
    return edited(side, **edit), edited(side, **edit)


def stale(rows):
    rows[41] = rows[12]


def stale_tile(rows):
    rows[41, 16:48] = rows[12, 16:48]


def swapped_blocks(rows):
    rows[:, :32], rows[:, 32:] = rows[:, 32:].copy(), rows[:, :32].copy()


def shuffled(rows):
    rows[:] = np.roll(rows, 3, axis=0)


def tile(rows):
    rows[:, 16:32] *= np.float32(1.01)


def earlier_run():
    side = rows_side("w11")
    old = Side(rows=-side.rows[::-1].copy())
    return replace(edited(side, rows=at(5, old.rows[9])), previous=lambda: ("an earlier run", old))


def half_of_the_sum():
    terms = terms_of("w11")
    missing = terms(np.arange(SHAPE["n"]))[:16].sum(axis=0)
    return replace(edited(rows_side("w11"), rows=lambda rows: np.subtract(rows, missing, out=rows, casting="unsafe")), terms=terms)


def flip_by_inherited_logits(**more):
    far = near_tie(0.3)
    a, b = (replace(side, chosen=side.ids) for side in (far.a, far.b))
    return replace(far, a=a, b=b, **more)


STATISTICS = {"n": 12_000, "tested": True, "mean_t": 0.3, "sign_t": -1.2, "gain_t": 2.0, "block_t": {"index": 3, "t": -3.1},
              "column_t": {"index": 9, "t": 3.9}, "mean_z2": 0.97, "suspects": 0, "places": [], "reasons": []}


def with_bias(side, **statistics):
    return replace(side, bias={**STATISTICS, **statistics})


MMVQ, W11 = (lambda: rows_side("mmvq")), (lambda: rows_side("w11"))
KEYS = token_keys()

FAULTS = {
    "row value": ("unexplained", lambda: pair(MMVQ(), edited(W11(), rows=at((41, 7), 12.5)))),
    "row value of a": ("unexplained", lambda: pair(edited(MMVQ(), rows=at((41, 7), 12.5)), W11())),
    "row value of both": ("unexplained", lambda: pair(*both(MMVQ(), rows=at((41, 7), 12.5)))),
    "row value not a number": ("nonfinite", lambda: pair(MMVQ(), edited(W11(), rows=at((3, 4), np.nan)))),
    "rows unwritten": ("unwritten", lambda: pair(*both(MMVQ(), rows=at((slice(None), slice(48, None)), POISON)))),
    "code": ("unexplained", lambda: blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), codes=one_more))),
    "code without rows": (
        "unexplained",
        lambda: blocks_pair(blocks_side("mmvq", known_rows=False), edited(blocks_side("w11", known_rows=False), codes=one_more)),
    ),
    "code of both": ("unexplained", lambda: blocks_pair(*both(blocks_side("mmvq"), codes=one_more))),
    "code of an operand": (
        "unexplained",
        lambda: pair(operand_side("mmvq"), edited(operand_side("w11"), codes=one_more), tensor="d-hq", kind="blocks"),
    ),
    "next block's scale": ("structured", lambda: blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), d=next_scale))),
    "block sum": ("unexplained", lambda: blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), s=at((3, 1), 100.0)))),
    "codes unwritten": (
        "unwritten",
        lambda: blocks_pair(*both(blocks_side("mmvq"), codes=at((slice(None), slice(32, None)), -128))),
    ),
    "row of another token": ("stale", lambda: pair(MMVQ(), edited(W11(), rows=stale), keys=KEYS)),
    "row of another token on both sides": ("stale", lambda: pair(*both(MMVQ(), rows=stale), keys=KEYS)),
    "tile of another token": ("stale", lambda: pair(MMVQ(), edited(W11(), rows=stale_tile))),
    "codes of another token": (
        "stale",
        lambda: blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), codes=stale), keys=KEYS),
    ),
    "row of an earlier run": ("stale", lambda: pair(MMVQ(), earlier_run(), keys=KEYS)),
    "keyed rows in another order": ("stale", lambda: pair(MMVQ(), edited(W11(), rows=shuffled), keys=KEYS)),
    "rows in another order": ("permuted", lambda: pair(MMVQ(), edited(MMVQ(), rows=shuffled))),
    "rows in another order and other rounding": ("permuted", lambda: pair(MMVQ(), edited(W11(), rows=shuffled))),
    "rows in another order, nothing known": (
        "permuted",
        lambda: pair(Side(rows=MMVQ().rows), Side(rows=np.roll(MMVQ().rows, 3, axis=0))),
    ),
    "tile": ("structured", lambda: pair(MMVQ(), edited(W11(), rows=tile))),
    "swapped blocks": ("structured", lambda: pair(MMVQ(), edited(W11(), rows=swapped_blocks), keys=KEYS)),
    "half of the sum": ("structured", lambda: pair(MMVQ(), half_of_the_sum())),
    "flip beyond the bound": ("route-flip", lambda: near_tie(0.3)),
    "ids that no router may choose": (
        "unexplained",
        lambda: pair(Side(ids=np.array([[1, 1]], np.int32)), Side(ids=np.array([[1, 0]], np.int32)), kind="ids", limit=4),
    ),
    "biased": ("biased", lambda: pair(MMVQ(), with_bias(W11(), sign_t=-306.0))),
    "biased on side a": ("biased", lambda: pair(with_bias(MMVQ(), column_t={"index": 5, "t": 57.0}), W11())),
}

LEGITIMATE = {
    "order of rows": lambda: pair(MMVQ(), W11()),
    "order of rows, keyed": lambda: pair(MMVQ(), W11(), keys=KEYS),
    "order of blocks": lambda: blocks_pair(blocks_side("mmvq"), blocks_side("w11")),
    "operands": lambda: blocks_pair(blocks_side("mmq"), blocks_side("w11")),
    "one rounding": lambda: pair(rows_side("ref"), W11()),
    "quantiser form": lambda: pair(operand_side("mmvq"), operand_side("mmq"), tensor="d-hq", kind="blocks"),
    "near tie": lambda: near_tie(5e-7),
    "other logits came in": lambda: flip_by_inherited_logits(inherited=np.ones(40, bool)),
    "removed by a replay": lambda: pair(
        Side(rows=MMVQ().rows), Side(rows=MMVQ().rows * np.float32(1.5)), removed=np.ones(97, bool), earlier="layer 2 route"
    ),
    "bias tested": lambda: pair(with_bias(MMVQ()), with_bias(W11())),
}


def named(cause, results):
    """Whether one of the results has this cause; `biased` is said of a tensor, not of its elements."""
    return any(cause in r.causes or (cause == "biased" and any(": biased" in why for why in r.reasons)) for r in results)


def caught(name):
    """Whether the fault fails and its cause is named."""
    cause, make = FAULTS[name]
    results = compare(make())
    return worst_status(r.status for r in results) == "FAIL" and named(cause, results)


def missed():
    """Faults that this comparator passes or misnames, and legitimate changes that it does not pass."""
    alarms = [name for name, make in LEGITIMATE.items() if worst_status(r.status for r in compare(make())) != "PASS"]
    return [name for name in FAULTS if not caught(name)] + alarms


def test_the_comparator_misses_nothing_and_raises_no_false_alarm():
    assert missed() == []


def test_every_failing_cause_has_a_fault():
    assert {cause for cause, _ in FAULTS.values()} == FAILING


def always(value):
    return lambda *args, **more: np.full(np.asarray(args[0]).shape, value)


MUTANTS = {
    "says equal always": lambda m: m.setattr(equal, "execute", lambda e: np.ones(e.same.shape, bool)),
    "takes same bits for right": lambda m: m.setattr(equal, "execute", lambda e: e.same),
    "ignores poison": lambda m: m.setattr(unwritten, "plan", lambda e: False),
    "takes every row for conforming": lambda m: m.setattr(rows, "rows_conform", always(True)),
    "takes no row for conforming": lambda m: m.setattr(rows, "rows_conform", always(False)),
    "takes every scale for conforming": lambda m: m.setattr(
        "edge0verify.compare.stored.scales_keep", lambda side, b, may: np.ones(b.d.shape, bool)
    ),
    "takes every sum for conforming": lambda m: m.setattr(
        "edge0verify.compare.stored.sums_keep", lambda side, part, may: np.ones(side.blocks.d[part].shape, bool)
    ),
    "takes every code for conforming": lambda m: m.setattr(
        "edge0verify.compare.stored.codes_keep", lambda b, may: np.ones(b.codes.shape, bool)
    ),
    "forgives a code of one": lambda m: m.setattr(
        conform, "code_interval", lambda *a, keep=conform.code_interval: (keep(*a)[0] - 1, keep(*a)[1] + 1)
    ),
    "judges b alone": lambda m: m.setattr(
        rows,
        "judge",
        lambda side, part, keep=rows.judge: (
            keep(side, part)
            if side.rows[0, 0] != rows_side("mmvq").rows[0, 0]
            else rows.Judged(
                nonfinite=np.zeros(side.rows[part].shape, bool),
                poison=np.zeros(side.rows[part].shape, bool),
                keeps=np.ones(side.rows[part].shape, bool),
            )
        ),
    ),
    "ignores the gap of a flip": lambda m: m.setattr(route_flip, "_figures", lambda flips: {"flips": 1.0, "gap": 0.0}),
    "believes that ids follow their logits": lambda m: m.setattr(route_flip, "valid", lambda ids, limit: np.ones(ids.shape, bool)),
    "does not look at the bias": lambda m: m.setattr(biased, "plan", lambda evidence: False),
    "calls everything biased": lambda m: m.setattr(biased, "execute", lambda *a, **k: [biased.Biased("a", "always", {})]),
    "lets any share go": lambda m: m.setattr(Policy, "limits", lambda self, *where: Limits(matched=0.0)),
    "has no cause but the first": lambda m: m.setattr(causes, "ELEMENT_CAUSES", causes.ELEMENT_CAUSES[:1]),
    "compares codes only": lambda m: m.setattr(blocks, "entries", lambda evidence, keep=blocks.entries: keep(evidence)[:1]),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutated_comparator_is_caught(mutant, monkeypatch):
    MUTANTS[mutant](monkeypatch)
    try:
        found = missed()
    except (AssertionError, KeyError):
        return
    assert found, f"a comparator that {mutant} passes the whole battery"


REST = [module for module in causes.REST_CAUSES if module is not causes.unexplained]


@pytest.mark.parametrize("module", REST, ids=lambda module: module.CAUSE.name)
class TestEachRestCause:
    """Every module is missed when it is gone, and seen when it claims what is not its own."""

    def test_one_that_never_applies_is_caught(self, module, monkeypatch):
        monkeypatch.setattr(module, "plan", lambda rest: False)
        assert missed()

    def test_one_that_claims_everything_is_caught(self, module, monkeypatch):
        monkeypatch.setattr(module, "plan", lambda rest: True)
        monkeypatch.setattr(module, "execute", lambda rest: Finding(mask=rest.open))
        try:
            found = missed()
        except (AssertionError, KeyError):
            return
        assert found
