"""The comparators are mutated themselves: a comparator that cannot fail must not survive its own battery."""

import numpy as np
import pytest

from edge0verify.compare import causes, compare
from edge0verify.compare.causes import equal, unwritten
from edge0verify.compare.comparators import blocks, rows
from edge0verify.numerics import conform
from edge0verify.records.status import worst_status
from tests.compare.sides import at, blocks_pair, blocks_side, edited, operand_side, pair, rows_side
from tests.compare.test_rows import POISON


def next_scale(d):
    d[:, 0] = d[:, 1]


def one_more(codes):
    codes[41, 37] += 1


def both(side, **edit):
    return edited(side, **edit), edited(side, **edit)


FAULTS = {
    "row value": lambda: pair(rows_side("mmvq"), edited(rows_side("w11"), rows=at((41, 7), 12.5))),
    "row value of a": lambda: pair(edited(rows_side("mmvq"), rows=at((41, 7), 12.5)), rows_side("w11")),
    "row value of both": lambda: pair(*both(rows_side("mmvq"), rows=at((41, 7), 12.5))),
    "row value not a number": lambda: pair(rows_side("mmvq"), edited(rows_side("w11"), rows=at((3, 4), np.nan))),
    "rows unwritten": lambda: pair(*both(rows_side("mmvq"), rows=at((slice(None), slice(48, None)), POISON))),
    "code": lambda: blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), codes=one_more)),
    "code without rows": lambda: blocks_pair(
        blocks_side("mmvq", known_rows=False), edited(blocks_side("w11", known_rows=False), codes=one_more)
    ),
    "code of both": lambda: blocks_pair(*both(blocks_side("mmvq"), codes=one_more)),
    "code of an operand": lambda: pair(
        operand_side("mmvq"), edited(operand_side("w11"), codes=one_more), tensor="d-hq", kind="blocks"
    ),
    "next block's scale": lambda: blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), d=next_scale)),
    "block sum": lambda: blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), s=at((3, 1), 100.0))),
    "codes unwritten": lambda: blocks_pair(*both(blocks_side("mmvq"), codes=at((slice(None), slice(32, None)), -128))),
}

LEGITIMATE = {
    "order of rows": lambda: pair(rows_side("mmvq"), rows_side("w11")),
    "order of blocks": lambda: blocks_pair(blocks_side("mmvq"), blocks_side("w11")),
    "operands": lambda: blocks_pair(blocks_side("mmq"), blocks_side("w11")),
    "one rounding": lambda: pair(rows_side("ref"), rows_side("w11")),
    "quantiser form": lambda: pair(operand_side("mmvq"), operand_side("mmq"), tensor="d-hq", kind="blocks"),
}


def caught(name):
    """Whether the fault fails, by a cause of its name where it has one ('unwritten' and 'not a number' are causes)."""
    results = compare(FAULTS[name]())
    named = {"unwritten": "unwritten", "not a number": "nonfinite"}
    cause = next((cause for words, cause in named.items() if words in name), "unexplained")
    return worst_status(r.status for r in results) == "FAIL" and any(cause in r.causes for r in results)


def missed():
    """Faults that this comparator passes or misnames, and legitimate changes that it does not pass."""
    alarms = [name for name, make in LEGITIMATE.items() if worst_status(r.status for r in compare(make())) != "PASS"]
    return [name for name in FAULTS if not caught(name)] + alarms


def test_the_comparator_misses_nothing_and_raises_no_false_alarm():
    assert missed() == []


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
