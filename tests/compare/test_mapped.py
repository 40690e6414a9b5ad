"""Everything wrong in one way: signs, reciprocals, a factor, a row stride; and what is not."""

import numpy as np
import pytest

from edge0verify.compare import compare
from tests.compare.sides import blocks_pair, blocks_side, edited, pair, rows_side


def reason(evidence):
    """(cause with most elements, the reasons) of the entry that fails."""
    failing = next(r for r in compare(evidence) if r.status == "FAIL")
    return max(failing.causes, key=failing.causes.get), " ".join(failing.reasons)


def rows(change):
    side = rows_side("w11")
    return pair(rows_side("mmvq"), edited(side, rows=change))


def put(make):
    def change(array):
        array[...] = make(array)

    return change


def wider(gap):
    def change(array):
        n, m = array.shape
        wide = np.zeros((n, m + gap), np.float32)
        wide[:, :m] = array
        array.reshape(-1)[:] = wide.reshape(-1)[: array.size]

    return change


def nearer(gap):
    """Each row written over the end of the one before."""

    def change(array):
        n, m = array.shape
        out = array.copy().reshape(-1)
        for row in range(n):
            out[row * (m - gap) : row * (m - gap) + m] = array[row]
        array.reshape(-1)[:] = out

    return change


WRONG = {
    "values have the other sign": lambda: rows(put(lambda y: -y)),
    "values are 2 times what they should be": lambda: rows(put(lambda y: y * 2)),
    "rows are written 72 columns apart and read 64 apart": lambda: rows(wider(8)),
    "rows are written 56 columns apart and read 64 apart": lambda: rows(nearer(8)),
    "rows and columns are exchanged": lambda: rows(put(lambda y: np.ascontiguousarray(y.T).reshape(y.shape))),
    "scales are the reciprocal of what they should be": lambda: blocks_pair(
        blocks_side("mmvq"), edited(blocks_side("w11"), d=put(lambda d: 1 / d.astype(np.float32)))
    ),
    "codes have the other sign": lambda: blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), codes=put(lambda c: -c))),
}


@pytest.mark.parametrize("said", WRONG)
def test_the_way_is_named(said):
    cause, text = reason(WRONG[said]())
    assert cause == "structured" and said in text


def drawn(kind, *arguments):
    """Random float32 values of a shape, the same in each run."""
    return lambda shape: getattr(np.random.default_rng(1), kind)(*arguments, shape).astype(np.float32)


NOT_THAT = {
    "noise": lambda: rows(put(lambda y: y + drawn("normal", 0, 1)(y.shape))),
    "a factor of each value's own": lambda: rows(put(lambda y: y * drawn("uniform", 1.5, 3)(y.shape))),
}


@pytest.mark.parametrize("name", NOT_THAT)
def test_what_is_wrong_in_many_ways_is_not(name):
    cause, text = reason(NOT_THAT[name]())
    assert cause == "unexplained" and "structured" not in text
