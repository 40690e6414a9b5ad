"""The compiled bias test: equal to numpy's, silent on 300 runs of the kernels, loud on each mutant that stays inside the bound."""

from dataclasses import dataclass

import numpy as np
import pytest

from edge0verify.model import encode, load_model, prompt
from edge0verify.numerics import formats
from edge0verify.numerics.bias import FEWEST, BiasTest
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.contracts import contract
from edge0verify.numerics.spread import expert_sum_spread, row_spread
from edge0verify.study import _oracle, bias, kernel_cases, oracle
from edge0verify.study.kernel_cases import Case, Shape
from edge0verify.study.pair import Request, compare_variants
from edge0verify.variants import _mutants
from edge0verify.variants.kernels import Kernels

STAGES = ("D", "U", "A1", "A2")
VARIANTS = ("ref", "mmvq", "mmq", "w11")
MANY = {"D": Shape(96, 110, 384), "U": Shape(97, 110, 384), "A1": Shape(96, 56, 512, 4, 2), "A2": Shape(97, 56, 384, 4, 2)}
HIDDEN = ("weight-scale-21", "block-scale-18", "activation-scale-ulp", "activation-scale-ulp-one-block", "round-toward-zero",
          "every-7th-row-ulp")


@dataclass(frozen=True, kw_only=True)
class Run:
    """Rows of one product of one kernel with what judges them; for A2 the sum over experts too."""

    contract: object
    weights: kernel_cases.Weights
    blocks: Blocks
    y: np.ndarray
    experts: np.ndarray | None = None
    inputs: kernel_cases.Inputs
    yl: np.ndarray | None = None

    def test(self, **k):
        return bias.rows_test(self.contract, self.weights, self.blocks, self.y, experts=self.experts, threads=1, **k)


def run(stage, variant, seed, kernels=None, shape=None):
    kernels = kernels or Kernels(threads=1)
    c = contract(stage, variant)
    made = kernel_cases.make(stage, kernel_cases.FORMAT[stage], Case(name="many", shape=shape or MANY[stage]), seed)
    packed = [kernels.pack(w.fmt, w.raw) for w in made.weights]
    common = dict(contract=c, weights=made.weights[0], inputs=made)
    operands = made.operands(c.operand)
    if stage == "D":
        return Run(blocks=operands, y=kernels.d(variant, packed[0], made.x).xl, **common)
    if stage == "U":
        return Run(blocks=operands, y=kernels.u(variant, packed[0], made.x).u, **common)
    experts = made.ids.reshape(-1)
    if stage == "A1":
        out = kernels.a1(variant, *packed, made.x, operands, made.ids, capture=True)
        token = np.repeat(np.arange(len(made.x)), made.ids.shape[1])
        return Run(blocks=operands.take(token), y=out.gate, experts=experts, **common)
    out = kernels.a2(variant, packed[0], operands, made.ids, made.route_weights)
    return Run(blocks=operands, y=out.y, yl=out.yl, experts=experts, **common)


def by_numpy(r):
    """The same test by numerics, expert by expert."""
    u = formats.unpack(r.weights.fmt, r.weights.raw)
    test = BiasTest(r.y.shape[1], u.columns // 32)
    if r.experts is None:
        test.add(r.y, row_spread(r.contract, u, r.blocks))
    else:
        for expert in np.unique(r.experts):
            rows = np.flatnonzero(r.experts == expert)
            test.add(r.y[rows], row_spread(r.contract, u[expert], r.blocks.take(rows)))
    return test.result()


def agree(a, b):
    assert a.n == b.n and a.suspects == b.suspects and len(a.reasons) == len(b.reasons)
    for field in ("mean", "sign", "gain", "blocks", "columns", "column_signs", "mean_square"):
        np.testing.assert_allclose(getattr(a, field), getattr(b, field), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_numpys(stage, variant):
    r = run(stage, variant, 1)
    agree(r.test(), by_numpy(r))


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_numpys_past_a_lane_loop(variant):
    for stage, shape in (("D", Shape(32, 40, 40 * 32)), ("A1", Shape(32, 20, 5 * 256, 3, 2))):
        r = run(stage, variant, 2, shape=shape)
        agree(r.test(), by_numpy(r))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_expert_sum_is_numpys(variant):
    r = run("A2", variant, 3)
    found = bias.expert_sum_test(r.contract, r.y, r.inputs.route_weights, r.inputs.ids, r.yl, threads=2)
    test = BiasTest(r.yl.shape[1], r.inputs.ids.shape[1])
    test.add(r.yl, expert_sum_spread(r.contract, r.y, r.inputs.route_weights, r.inputs.ids))
    agree(found, test.result())
    other = r.inputs.route_weights * np.float32(1 + 2.0**-19)
    assert bias.expert_sum_bias(r.contract, r.y, other, r.inputs.ids, r.yl)["mean_z2"] > 2


@pytest.mark.parametrize("stage", STAGES)
def test_instruction_sets_and_threads_give_the_same_bits(stage):
    for variant in VARIANTS:
        r = run(stage, variant, 4)
        u = formats.unpack(r.weights.fmt, r.weights.raw)
        sub = None if u.sc is None else np.ascontiguousarray(u.sc)
        order = "f64" if variant == "ref" else bias._ORDERS[variant, sub is not None]
        ids = None if r.experts is None else np.ascontiguousarray(r.experts, np.int32)
        found = []
        for isa in _oracle.isas():
            w = _oracle.Weights(np.ascontiguousarray(u.q), np.ascontiguousarray(u.d), sub, isa=isa)
            for threads in (1, 2):
                sums = bias._sums(u.columns // 32, r.y.shape[1])
                scales, narrow = np.ascontiguousarray(r.blocks.dot_scale()), r.blocks.d.dtype == np.float16
                _oracle.spread_rows(w, np.ascontiguousarray(r.blocks.codes), scales, narrow, order, ids, r.y, *sums, threads)
                found.append(np.concatenate([s.reshape(-1) for s in sums]))
        assert all((f == found[0]).all() for f in found)


@pytest.mark.parametrize("stage", STAGES)
def test_none_of_three_hundred_runs_of_the_kernels_is_biased(stage):
    """4 stages x 4 variants x 19 seeds."""
    largest = 0.0
    for variant in VARIANTS:
        for seed in range(100, 119):
            found = run(stage, variant, seed).test()
            assert found.tested and not found.biased, (variant, seed, found.reasons)
            largest = max(largest, found.largest)
    assert largest < 5.5


@pytest.fixture
def plant():
    yield _mutants.set_fault
    _mutants.set_fault(None)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fault", HIDDEN)
def test_mutants_inside_the_bound_are_biased(stage, fault, plant):
    """At 10^4 values, in every variant that forms the altered value."""
    mutants, good = Kernels(_mutants, threads=1), 0
    for variant in ("mmvq", "mmq", "w11"):
        plant(fault)
        r = run(stage, variant, 7, kernels=mutants)
        plant(None)
        assert (r.y != run(stage, variant, 7).y).any(), f"not exercised by {variant}"
        own = oracle.own_oracle(r.contract, r.weights, r.blocks, experts=r.experts, threads=1)
        inside = float((np.abs(r.y - own.t) <= own.bound).mean())
        found = r.test()
        assert FEWEST <= found.n < 1.2 * FEWEST and found.biased, (variant, inside, found.largest)
        good += inside > 0.95
    assert good or fault == "block-scale-18", "the bound catches it in every variant: nothing is shown"


def test_a_sample_has_no_stride_and_is_the_same_every_time():
    rows = bias.sample(5268, 512)
    assert len(rows) == 512 == len(set(rows)) and (np.diff(rows) > 0).all() and (rows == bias.sample(5268, 512)).all()
    for stride in range(2, 65):
        share = np.bincount(rows % stride, minlength=stride) / 512
        assert share.min() > 0 or stride > 48, stride
    assert bias.sample(512, 512) is None


def test_a_sample_says_how_much_it_saw_and_names_rows_of_the_whole():
    r = run("D", "mmvq", 8, shape=Shape(96, 300, 384))
    y = r.y.copy()
    seen = bias.sample(300, 110)
    y[seen[50], 5] *= np.float32(1 + 2.0**-17)
    found = bias.rows_bias(r.contract, r.weights, r.blocks, y, limit=110, threads=1)
    assert (found["rows"], found["of_rows"], found["n"]) == (110, 300, 110 * 96) and found["tested"]
    assert [p[:2] for p in found["places"]] == [[int(seen[50]), 5]] and found["suspects"] == 1
    assert bias.rows_bias(r.contract, r.weights, r.blocks, None) is None


def test_values_that_are_not_finite_are_left_out():
    r = run("D", "mmvq", 9)
    r.y[3, 4], r.y[5, 6] = np.nan, np.inf
    agree(r.test(), by_numpy(r))
    assert r.test().n == r.y.size - 2 and not r.test().biased


@pytest.mark.parametrize("stage", ["D", "U"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_zeros_are_left_out(stage, variant):
    """Of rows that are zero through and through nothing was rounded; six of ten of them would pull mean z^2 below its limit."""
    r = run(stage, variant, 11)
    kept = len(r.y) * 4 // 10
    for part in (r.y, r.blocks.codes, r.blocks.d):
        part[kept:] = 0
    agree(r.test(), by_numpy(r))
    assert r.test().n == r.y[:kept].size and 0.5 < r.test().mean_square < 2
    r.y[kept + 1, 5] = 1e-3                                  # and what should be zero and is not is still seen
    agree(r.test(), by_numpy(r))
    assert r.test().suspects == 1 and r.test().places[0][:2] == (kept + 1, 5)


def test_wrong_shapes_and_orders_are_refused():
    r = run("D", "mmvq", 10)
    with pytest.raises(ValueError, match="y: expected"):
        bias.rows_test(r.contract, r.weights, r.blocks, r.y[:, :90])
    sums = bias._sums(12, 96)
    w = oracle.packed(r.weights, 1)
    with pytest.raises(ValueError, match="q3k-lanes"):
        _oracle.spread_rows(w, r.blocks.codes, r.blocks.dot_scale(), True, "q3k-lanes", None, r.y, *sums, 1)
    with pytest.raises(ValueError, match="order"):
        _oracle.spread_rows(w, r.blocks.codes, r.blocks.dot_scale(), True, "nonsense", None, r.y, *sums, 1)


@pytest.mark.parametrize(("stage", "tensor", "fault"), [("D", "d-xl", "weight-scale-21"), ("A", "a-gate", "round-toward-zero")])
def test_compare_calls_a_hidden_fault_biased(stage, tensor, fault, plant):
    """End to end on the embedded model: one layer of side a runs the mutant; b and the other layer stay clean."""
    model, own, mutants = load_model(), Kernels(threads=1), Kernels(_mutants, threads=1)
    tokens = encode(prompt("prose"))[:100]
    request = Request(model=model, prompt="prose", tokens=tokens, stage=stage, a="w11", b="mmvq", layers=(0, 1), threads=1)
    plant(fault)
    verdict = compare_variants(request, kernels_for=lambda side, layer: mutants if (side, layer) == ("a", 1) else own)
    assert verdict.status == "FAIL"
    biased = [(r.layer, r.tensor) for r in verdict.layers if any("biased" in reason for reason in r.reasons)]
    assert (1, tensor) in biased and {layer for layer, _ in biased} == {1}
    found = next(r.bias for r in verdict.layers if (r.layer, r.tensor) == (1, tensor))
    assert found["a"]["reasons"] and not found["b"]["reasons"]
    assert {"n", "rows", "of_rows", "mean_t", "sign_t", "gain_t", "block_t", "column_t", "mean_z2", "suspects"} <= set(found["a"])
