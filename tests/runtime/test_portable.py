"""The portable kernels on the CPU against the independent transcription of the contract table."""

import numpy as np
import pytest

from edge0verify.numerics.blocks import Blocks
from tests.runtime.cases import VARIANTS, RowsCase, activations, differing, rows_cases
from tests.runtime.phase import Phase
from tests.transcription.quantisers import quantise
from tests.transcription.rows import plain_rows, q3_k_rows
from tests.transcription.stages import expert_sum


@pytest.fixture(scope="module")
def phase():
    return Phase()


def small(case: RowsCase) -> RowsCase:
    """The transcription is slow: the same ends with fewer rows."""
    return RowsCase(
        case.fmt, min(case.m, 35), case.n if case.experts > 1 else min(case.n, 5), case.k, case.experts, case.slots, case.extreme
    )


@pytest.mark.parametrize("name", ["mmvq", "mmq"])
def test_quantiser(phase, name):
    x = activations(np.random.default_rng(1), 40, 96, extreme=True)
    codes, d, s = phase.quantise(name, x)
    with np.errstate(all="ignore"):
        want = quantise(name, x)
    assert differing(codes, want.codes) == 0
    assert differing(d, want.d) == 0
    if s is not None:
        assert differing(s, want.s) == 0


@pytest.mark.parametrize("case", [small(c) for c in rows_cases()], ids=lambda c: f"{c.fmt}-{c.m}x{c.n}x{c.k}-e{c.experts}")
def test_rows(phase, case):
    raw, x, ids = case.build()
    for variant in VARIANTS[case.fmt]:
        name = "mmq" if variant == "mmq" else "mmvq"
        codes, d, _ = phase.quantise(name, x)
        before = int(phase.counter[0])
        got = phase.rows(variant, case.fmt, raw, codes, d, ids, m=case.m, n=case.n, experts=case.experts, slots=case.slots)
        assert phase.counter[0] == before + 1
        want = np.empty_like(got)
        operand = Blocks(codes, d, None, name)
        matrices = raw.reshape(case.experts, case.m, -1)
        with np.errstate(all="ignore"):
            for e in range(case.experts):
                at = np.arange(case.n) if ids is None else np.flatnonzero(ids == e)
                if len(at):
                    rows = operand.take(at // case.slots)
                    want[at] = (
                        q3_k_rows(variant, matrices[e], rows)
                        if case.fmt == "Q3_K"
                        else plain_rows(variant, matrices[e], case.fmt, rows)
                    )
        assert differing(got, want) == 0, variant


@pytest.mark.parametrize("order, variant", [("route", "mmvq"), ("expert-id", "mmq"), ("f64", "ref")])
def test_expert_sum(phase, order, variant):
    rng = np.random.default_rng(3)
    ids = np.stack([rng.permutation(16)[:4] for _ in range(9)]).astype(np.int32)
    y, weights = rng.standard_normal((36, 33)).astype(np.float32), rng.random((9, 4)).astype(np.float32)
    assert differing(phase.expert_sum(order, y, weights, ids), expert_sum(variant, y, ids, weights)) == 0


def test_threads_change_nothing():
    case = RowsCase("Q8_0", 129, 65, 160)
    raw, x, ids = case.build()
    one, two = Phase(1), Phase(3)
    codes, d, _ = one.quantise("mmvq", x)
    for variant in ("mmvq", "w11"):
        a, b = (p.rows(variant, "Q8_0", raw, codes, d, ids, m=129, n=65) for p in (one, two))
        assert differing(a, b) == 0


def test_a_planted_difference_is_seen(phase):
    case = RowsCase("Q8_0", 5, 3, 96)
    raw, x, ids = case.build()
    codes, d, _ = phase.quantise("mmvq", x)
    before = phase.rows("w11", "Q8_0", raw, codes, d, ids, m=5, n=3)
    codes[1, 40] += 1
    assert differing(before, phase.rows("w11", "Q8_0", raw, codes, d, ids, m=5, n=3)) == 5
