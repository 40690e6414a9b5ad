"""F17: the reference was the wrong one: 162 of 162 weights were called unsafe."""

import numpy as np
import pytest

from edge0verify.compare.reference import suspicions
from edge0verify.numerics import formats
from edge0verify.numerics.quantise import quantise
from edge0verify.records.evidence import Side
from tests.field.common import evidence, halves, product, verdict

TENSORS = 162


def weights(seed):
    return (np.random.default_rng(seed).standard_normal((32, 64)) * 0.05).astype(np.float32)


def stored(w):
    return formats.decode("Q8_0", formats.encode("Q8_0", w))


def scene(reference_of, b_of=stored):
    """Each tensor: the reference table's weights, what two variants decoded, and the weights before they were stored."""
    items = []
    for at in range(TENSORS):
        w = weights(at)
        good = stored(w)
        t, bound = good.astype(np.float64), np.zeros(good.shape)
        reference = Side(rows=reference_of(good))
        sides = [Side(rows=rows, t=t, bound=bound) for rows in (good, b_of(w))]
        items.append(evidence(*sides, tensor=f"w{at}", oracle=w.astype(np.float64), reference=reference))
    return items


def swapped(good):
    return np.roll(good, 1, axis=1)


def broken(w):
    return stored(w) * np.float32(1.25)


def judged(items):
    return verdict(*items, suspect=suspicions(items))


def test_the_reference_is_suspect_before_any_variant_is_blamed():
    found = judged(scene(swapped, b_of=broken))
    assert (found.status, found.exit_code) == ("INCONCLUSIVE", 3)
    assert "reference is suspect" in found.reasons[0] and "from the oracle, where a and b are" in found.reasons[0]


def test_all_of_them_are_counted():
    assert len(suspicions(scene(swapped))) == TENSORS


def test_a_right_reference_is_not_suspect_and_a_broken_variant_is_blamed():
    items = scene(lambda good: good, b_of=broken)
    assert suspicions(items) == []
    found = judged(items)
    assert found.status == "FAIL" and "b does not conform" in found.reasons[0]


def test_a_right_reference_and_right_variants_pass():
    assert judged(scene(lambda good: good)).status == "PASS"


def test_a_reference_that_breaks_its_own_contract_is_suspect_without_any_oracle():
    rng = np.random.default_rng(19)
    w, x = rng.standard_normal((64, 96)).astype(np.float32), rng.standard_normal((7, 96)).astype(np.float32)
    good, t, bound = product(w, x)
    sides = [Side(rows=rows, t=t, bound=bound) for rows in (good, halves(w, x))]
    for rows, said in ((good, 0), (good * np.float32(1.01), 1), (np.where(good > 2, np.nan, good).astype(np.float32), 1)):
        item = evidence(*sides, reference=Side(rows=rows, t=t, bound=bound))
        assert len(suspicions([item])) == said
        assert verdict(item, suspect=suspicions([item])).status == ("INCONCLUSIVE" if said else "PASS")


@pytest.mark.parametrize("times", [1.5, 3.0])
def test_a_reference_a_little_further_off_is_not_suspect(times):
    items = []
    for item in scene(lambda good: good)[:8]:
        error = item.reference.rows - item.oracle
        further = Side(rows=(item.oracle + times * error).astype(np.float32))
        items.append(evidence(item.a, item.b, tensor=item.tensor, oracle=item.oracle, reference=further))
    assert suspicions(items) == []


def test_nan_that_came_in_is_no_fault_of_the_reference_and_hides_no_other():
    """A weight that is no number makes a column NaN on every path; a variant that is wrong elsewhere is still blamed."""
    rng = np.random.default_rng(20)
    w, x = rng.standard_normal((64, 96)).astype(np.float32), rng.standard_normal((7, 96)).astype(np.float32)
    good, t, bound = product(w, x)
    for values in (good, t, bound):
        values[:, 9] = np.nan
    wrong = good.copy()
    wrong[2, 3] *= np.float32(1.5)
    reference = Side(rows=good, t=t, bound=bound)
    for b, expected in ((good, "INCONCLUSIVE"), (wrong, "FAIL")):
        item = evidence(Side(rows=good, t=t, bound=bound), Side(rows=b, t=t, bound=bound), reference=reference)
        assert suspicions([item]) == [] and verdict(item, suspect=suspicions([item])).status == expected
    blocks = [Side(blocks=quantise("mmvq", good), exact=quantise("mmvq", good), store="mmvq") for _ in range(3)]
    assert suspicions([evidence(*blocks[:2], tensor="d-hq", kind="blocks", reference=blocks[2])]) == []
