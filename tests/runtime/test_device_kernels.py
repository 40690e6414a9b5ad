"""DeviceKernels over the CPU runtime against the host's vectorised kernels: the same calls, the same bits, counted launches."""

import numpy as np
import pytest

from edge0verify.model import load_model
from edge0verify.runtime.cpu import LIBRARY, CpuRuntime
from edge0verify.runtime.detect import Absent, open_device
from edge0verify.variants.device_kernels import DeviceKernels
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.weights import layer_weights
from tests.runtime.cases import differing

VARIANTS = ("ref", "mmvq", "mmq", "w11")


def same(a, b) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, np.ndarray):
        return differing(a, b) == 0
    return same(a.codes, b.codes) and same(a.d, b.d) and same(a.s, b.s)


@pytest.fixture(scope="module")
def both():
    if not LIBRARY.is_file():
        pytest.fail(f"{LIBRARY.name} was not built")
    return Kernels(threads=2), DeviceKernels(CpuRuntime(threads=2))


@pytest.mark.parametrize("variant", VARIANTS)
def test_stages_of_the_model(both, variant):
    model = load_model()
    host, device = both
    device.reset_launches()
    rng = np.random.default_rng(8)
    n, k = 5, 4
    x = rng.standard_normal((n, 384)).astype(np.float32)
    ids = np.stack([rng.permutation(16)[:k] for _ in range(n)]).astype(np.int32)
    weights = rng.random((n, k)).astype(np.float32)
    h, d = (layer_weights(model, 2, side) for side in both)
    one, two = host.d(variant, h.down, x), device.d(variant, d.down, x)
    assert same(one.hq, two.hq) and same(one.xl, two.xl) and same(one.xlq, two.xlq)
    one, two = (side.a1(variant, w.gate_exps, w.up_exps, one.xl, one.xlq, ids, capture=True) for side, w in zip(both, (h, d)))
    assert same(one.h, two.h) and same(one.gate, two.gate) and same(one.up, two.up)
    one, two = (side.a2(variant, w.down_exps, one.h, ids, weights) for side, w in zip(both, (h, d)))
    assert same(one.y, two.y) and same(one.yl, two.yl)
    one, two = (side.u(variant, w.up, one.yl) for side, w in zip(both, (h, d)))
    assert same(one.ylq, two.ylq) and same(one.u, two.u)
    assert device.launches() == {
        f"{s}/{variant}/{f}": 1 for s, f in (("D", "Q8_0"), ("A1", "Q3_K"), ("A2", "IQ4_NL"), ("U", "Q8_0"))
    }


def test_exp(both):
    x = np.linspace(-110, 95, 5000, dtype=np.float32)
    assert same(both[0].exp(x), both[1].exp(x))


def test_quantisers_without_a_device_form_are_refused(both):
    with pytest.raises(ValueError, match="ggml-ref"):
        both[1].quantise("ggml-ref", np.zeros((1, 32), np.float32))


def test_an_absent_device_says_why():
    with pytest.raises(Absent, match="cpu has 1 device"):
        open_device("cpu:1")
