"""The contract table's facts, and the operation counts behind n."""

import pytest

from edge0verify.numerics.contracts import CONTRACTS, STAGES, VARIANTS, contract


def test_every_cell_exists_once():
    assert {(c.stage, c.variant) for c in CONTRACTS} == {(s, v) for s in STAGES for v in VARIANTS} | {("linear", "mmvq")}
    with pytest.raises(ValueError, match="no contract for stage 'D' variant 'w12'"):
        contract("D", "w12")


@pytest.mark.parametrize("stage", STAGES)
def test_operands_and_stores(stage):
    for variant in VARIANTS:
        c = contract(stage, variant)
        assert c.operand == ("mmq" if variant == "mmq" else "mmvq")
        assert c.store == {"D": "mmvq", "A1": c.operand}.get(stage)
        assert c.weighted_sum == {"mmq": "expert-id", "ref": "f64"}.get(variant, "route")
        assert c.granularity == (32 if stage != "A1" else {"mmvq": 4, "mmq": 16}.get(variant, 32))


def test_roundings():
    assert contract("D", "mmvq").roundings(nb=16) == 7  # one fma, its product, five sums of the butterfly
    assert contract("D", "mmvq").roundings(nb=33) == 8
    assert contract("U", "mmq").roundings(nb=33) == contract("A2", "w11").roundings(nb=33) == 34
    assert contract("A1", "mmvq").roundings(nb=8) == 9 == contract("A1", "mmvq").roundings(nb=8, super_blocks=1)
    assert contract("A1", "mmvq").roundings(nb=24) == 11
    assert contract("A1", "mmq").roundings(nb=8) == 11
    assert contract("A1", "w11").roundings(nb=8) == 9
    for stage in STAGES:
        assert contract(stage, "ref").roundings(nb=64) == 1
        assert contract(stage, "ref").roundings(nb=64, k=4) == 5
    assert contract("A2", "mmq").roundings(nb=8, k=4) == 13
