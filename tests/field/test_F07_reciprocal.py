"""F07: a fused quantiser multiplied by the reciprocal where the other divides; 31,603 bytes differed."""

from dataclasses import replace

import numpy as np

from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.quantise import quantise
from edge0verify.records.evidence import Side
from tests.field.common import evidence, token_keys, verdict


def near_borders(n=64, k=1024):
    """Rows whose values lie beside the borders between two codes of their block."""
    rng = np.random.default_rng(6)
    x = rng.integers(-126, 127, (n, k)).astype(np.float32) + np.float32(0.5)
    x.reshape(n, -1, 32)[:, :, 0] = 127.0
    scale = np.exp(rng.standard_normal((n, k // 32))).astype(np.float32)
    return (x.reshape(n, -1, 32) * scale[:, :, None]).reshape(n, k).astype(np.float32)


def side(x, name):
    """Blocks of known rows, judged by what the quantiser could have made of them."""
    exact = x.astype(np.float64)
    return Side(blocks=quantise(name, x), t=exact, bound=np.zeros(x.shape), store=name)


def scene(x):
    a, b = side(x, "mmvq"), side(x, "ggml-ref")
    return a, replace(b, t=a.t)


def test_both_forms_conform_and_their_differences_are_ties_of_one_code():
    x = near_borders()
    found = verdict(evidence(*scene(x), kind="blocks", tensor="d-hq", keys=token_keys(len(x))))
    codes = found.layers[0]
    assert found.status == "PASS"
    assert set(codes.causes) == {"equal", "tie"} and codes.causes["tie"] > 1000
    assert codes.code_diffs == {"1": codes.causes["tie"]}
    assert codes.conforming == {"a": codes.n, "b": codes.n}


def test_far_from_borders_both_forms_are_equal():
    x = (np.random.default_rng(7).integers(-127, 128, (16, 256)) * 0.25).astype(np.float32)
    x.reshape(16, -1, 32)[:, :, 0] = 127 * 0.25
    found = verdict(evidence(*scene(x), kind="blocks"))
    assert found.status == "PASS" and set(found.layers[0].causes) == {"equal"}


def test_a_quantiser_that_cuts_off_is_no_tie():
    x = near_borders()
    a, b = scene(x)
    with np.errstate(all="ignore"):
        cut = np.trunc(x.reshape(len(x), -1, 32) / b.blocks.d.astype(np.float32)[:, :, None]).reshape(x.shape).astype(np.int8)
    wrong = replace(b, blocks=Blocks(cut, b.blocks.d, b.blocks.s, "ggml-ref"))
    found = verdict(evidence(a, wrong, kind="blocks"))
    assert found.status == "FAIL" and "b does not conform" in found.reasons[0]
