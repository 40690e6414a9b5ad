"""F12: rows padded with zeros and refilled with garbage: everything after the last full block of 256 was wrong."""

import numpy as np
import pytest

from edge0verify.numerics import formats
from edge0verify.numerics.blocks import poison_f32
from edge0verify.records.evidence import Side
from tests.field.common import evidence, token_keys, verdict

ROWS, SUPER = 24, 256


def decoded(columns, tail):
    """Decoded Q4_0 rows and the same with the part after the last full 256 replaced by `tail(shape)`."""
    x = np.random.default_rng(15).standard_normal((ROWS, columns)).astype(np.float32)
    good = formats.decode("Q4_0", formats.encode("Q4_0", x))
    bad = good.copy()
    start = columns // SUPER * SUPER
    if start < columns:
        bad[:, start:] = tail((ROWS, columns - start))
    t, bound = good.astype(np.float64), np.zeros(good.shape)
    return evidence(Side(rows=good, t=t, bound=bound), Side(rows=bad, t=t, bound=bound), keys=token_keys(ROWS)), start


def garbage(shape):
    return np.random.default_rng(16).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("columns", [288, 480, 800, 1312])
def test_the_tail_is_named_with_its_first_bad_column(columns):
    item, start = decoded(columns, garbage)
    found = verdict(item)
    assert found.status == "FAIL"
    assert found.layers[0].causes["structured"] == ROWS * (columns - start)
    assert f"columns {start}..{columns - 1}, the tail after the last full tile of 256" in found.reasons[0]
    assert f"first wrong column {start}" in found.reasons[0]


def test_a_tail_of_zeros_says_so():
    found = verdict(decoded(800, np.zeros)[0])
    assert "all zero" in found.reasons[0] and "first wrong column 768" in found.reasons[0]


def test_a_tail_that_was_never_written_is_unwritten():
    found = verdict(decoded(800, poison_f32)[0])
    assert "unwritten" in found.reasons[0] and "columns 768..799" in found.reasons[0]


def test_rows_can_have_a_tail_too():
    item, _ = decoded(256, garbage)
    bad = item.b.rows.copy()
    bad[16:] = garbage((8, 256))
    tall = evidence(item.a, Side(rows=bad[:23], t=item.b.t[:23], bound=item.b.bound[:23]))
    tall = evidence(Side(rows=item.a.rows[:23], t=item.a.t[:23], bound=item.a.bound[:23]), tall.b)
    assert "rows 16..22, the tail after the last full tile of 16" in verdict(tall).reasons[0]


@pytest.mark.parametrize("columns", [256, 512, 1024])
def test_full_blocks_pass_whatever_the_tail_would_be(columns):
    assert verdict(decoded(columns, garbage)[0]).status == "PASS"


@pytest.mark.parametrize("columns", [288, 800])
def test_a_right_tail_passes(columns):
    item, _ = decoded(columns, garbage)
    assert verdict(evidence(item.a, item.a)).status == "PASS"


def test_scattered_faults_are_no_tail():
    item, _ = decoded(512, garbage)
    bad, rng = item.a.rows.copy(), np.random.default_rng(17)
    bad[rng.integers(0, ROWS, 40), rng.integers(0, 512, 40)] += 1
    found = verdict(evidence(item.a, Side(rows=bad, t=item.a.t, bound=item.a.bound)))
    assert "structured" not in found.layers[0].causes and found.layers[0].causes["unexplained"] > 30
