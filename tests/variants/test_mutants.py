"""The contract check catches a planted fault; the product module has none."""

from dataclasses import replace

import numpy as np
import pytest

from edge0verify.variants import _kernels, _mutants
from tests.variants.contract import GuardedKernels, VariantContract, expected, run
from tests.variants.scenes import SHAPES, Shape, scene

PER_STAGE = {"D": "Q8_0", "U": "Q8_0", "A1": "Q3_K", "A2": "IQ4_NL"}
VARIANTS = ("ref", "mmvq", "mmq", "w11")
TWO_BLOCKS = {**{s: Shape(17, 64, 64) for s in ("D", "U")}, "A1": Shape(18, 64, 768, 5, 3), "A2": Shape(18, 64, 64, 5, 3)}


@pytest.fixture
def plant():
    yield _mutants.set_fault
    _mutants.set_fault(None)


def contract(stage, variant, isa=None):
    c = VariantContract()
    c.stage, c.variant, c.fmt = stage, variant, PER_STAGE[stage]
    c.make_kernels = lambda threads=1: GuardedKernels(_mutants, isa=isa, threads=threads)
    return c


ONLY_IN = {"flip-hmask-bit": ("A1",), "nibbles-swapped": ("A2",), "gate-up-swapped": ("A1",), "drop-slot": ("A2",),
           "f32-operand-scale": ("D", "U"), "store-truncates": ("D", "A1"), "store-next-scale": ("D", "A1"),
           "one-route-weight": ("A2",), "next-expert": ("A1", "A2"), "lanes-once": ("D", "U", "A2"), "first-super-scale": ("A1",),
           "rough-exp": ("A1",), "sum-of-codes": ("D", "A1")}
"""Where a fault can be: the others can be in every stage."""
NOT_IN_FLOAT64 = ("f16-accumulation", "bf16-accumulation", "round-toward-zero")
"""`ref` has no float32 sums."""
NOT_BY = {"lanes-once": ("ref", "mmq", "w11")}
"""One running sum has no lanes."""
NOT_IN_A1 = {"sum-of-codes": ("mmq",), "dot-saturates": ("mmvq", "mmq")}
"""A store without block sums, and dots too short to saturate."""


def exercised(fault, stage, variant):
    if variant in NOT_BY.get(fault, ()) or (stage == "A1" and variant in NOT_IN_A1.get(fault, ())):
        return False
    return stage in ONLY_IN.get(fault, PER_STAGE) and not (variant == "ref" and fault in NOT_IN_FLOAT64)


def shape_for(fault, stage):
    """Two blocks are enough for most faults; the lanes start over after 32."""
    shape = TWO_BLOCKS[stage]
    return replace(shape, k=33 * 32) if fault == "lanes-once" and stage != "A1" else shape


@pytest.mark.parametrize("stage", PER_STAGE)
@pytest.mark.parametrize("variant", VARIANTS)
def test_without_a_fault_the_module_keeps_the_contract(stage, variant):
    assert contract(stage, variant).differences(TWO_BLOCKS[stage]) == []


@pytest.mark.parametrize("stage", PER_STAGE)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fault", _mutants.faults())
def test_a_planted_fault_is_caught(fault, stage, variant, plant):
    plant(fault)
    found = contract(stage, variant).differences(shape_for(fault, stage))
    assert bool(found) == exercised(fault, stage, variant), found


@pytest.mark.parametrize("isa", _mutants.usable_isas())
@pytest.mark.parametrize("fault", _mutants.faults())
def test_each_object_carries_each_fault(fault, isa, plant):
    plant(fault)
    stage = ONLY_IN.get(fault, ("A1",))[0]
    variant = "mmvq" if fault == "lanes-once" else "w11"
    assert contract(stage, variant, isa).differences(shape_for(fault, stage))


def test_a_skipped_tile_is_seen_as_unwritten(plant):
    plant("skip-last-partial-tile")
    found = contract("D", "w11").differences(TWO_BLOCKS["D"])
    assert any("never written" in line for line in found), found


def test_a_flipped_hmask_bit_touches_one_row_of_each_expert_and_of_gate_alone(plant):
    key = ("A1", "mmvq", "Q3_K", SHAPES["A1"]["one past a tile"])
    plant("flip-hmask-bit")
    got, want = run(contract("A1", "mmvq").make_kernels(), *key[:3], scene(*key)), expected(*key)
    assert set(np.argwhere(got["a-gate"] != want["a-gate"])[:, 1]) == {5}
    assert (got["a-up"] == want["a-up"]).all()


def test_an_unknown_fault_is_refused():
    with pytest.raises(ValueError, match="no fault named nonsense"):
        _mutants.set_fault("nonsense")


def test_the_product_module_has_no_faults():
    assert not hasattr(_kernels, "set_fault") and not hasattr(_kernels, "faults")
