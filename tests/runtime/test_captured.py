"""A dump taken inside a captured graph equals one from plain launches, and a graph that leaves a copy out is seen."""

import numpy as np
import pytest

from edge0verify.engine import Engine
from edge0verify.model import encode, load_model, prompt
from edge0verify.numerics.blocks import Blocks
from edge0verify.runtime import cuda, hip
from edge0verify.runtime.cpu import CpuRuntime
from edge0verify.runtime.detect import Absent
from edge0verify.runtime.sim import SimRuntime
from edge0verify.variants.captured import UNWRITTEN, CapturedKernels
from edge0verify.variants.device_kernels import DeviceKernels
from edge0verify.variants.kernels import Kernels

REAL = {name: found.detect() for name, found in (("cuda", cuda), ("hip", hip))}


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(params=["sim", *(pytest.param(n, marks=[] if f.runtime else pytest.mark.skip(f"not run: {f.reason}"))
                                 for n, f in REAL.items())])
def runtime(request):
    if request.param != "sim":
        yield REAL[request.param].runtime
        return
    made = SimRuntime(1)
    yield made
    made.close()


def flat(value) -> dict[str, np.ndarray]:
    if isinstance(value, Blocks):
        return {part: array for part in ("codes", "d", "s") if (array := getattr(value, part)) is not None}
    return {"": value}


def trace(model, kernels, name, tokens, chunk=4):
    """Every tensor that the engine shows in two batches of one size and one of another."""
    seen = {}

    def tap(layer, tensor, first, value):
        for part, array in flat(value).items():
            seen[layer, tensor, part, first] = array.copy()

    engine = Engine(model, kernels=kernels, variants=dict.fromkeys("DAU", name), threads=1, chunk=chunk)
    logits = engine.prefill(tokens, tap=tap).logits_last
    return seen, logits


@pytest.mark.parametrize("name", ["mmvq", "mmq", "w11", "ref"])
def test_a_replayed_dump_is_the_plain_one(model, runtime, name):
    tokens = encode(prompt("prose"))[:10]
    graphs = CapturedKernels(runtime)
    opened = CapturedKernels(runtime, plain=True)
    plain = {"in the open": opened, "stage by stage": DeviceKernels(runtime), "host": Kernels(threads=1)}
    got, logits = trace(model, graphs, name, tokens)
    assert graphs.replays == 3 * model.config.layers
    launches = {key: n for key, n in graphs.launches().items() if not key.startswith("linear")}
    for how, kernels in plain.items():
        kernels.reset_launches()
        want, same = trace(model, kernels, name, tokens)
        assert want.keys() == got.keys()
        assert [key for key in want if want[key].tobytes() != got[key].tobytes()] == [], how
        assert logits.tobytes() == same.tobytes(), how
        assert {key: n for key, n in kernels.launches().items() if not key.startswith("linear")} == launches, how


def test_a_copy_that_the_graph_leaves_out_is_seen(model):
    class Lax(SimRuntime):
        """Captures every launch but the last copy, as a driver that drops work silently."""

        def end_capture(self, stream):
            stream.capturing.pop()
            return super().end_capture(stream)

    sim = Lax(1)
    try:
        got, _ = trace(model, CapturedKernels(sim), "mmvq", encode(prompt("prose"))[:8])
    finally:
        sim.close()
    assert (got[0, "u", "", 0].view(np.uint8) == UNWRITTEN).all()


def test_a_graph_is_made_once_for_each_layer_and_number_of_rows(model):
    sim = SimRuntime(1)
    try:
        kernels = CapturedKernels(sim)
        trace(model, kernels, "mmvq", encode(prompt("prose"))[:10])
        assert len(kernels._graphs) == 2 * model.config.layers and kernels.replays == 3 * model.config.layers
    finally:
        sim.close()


def test_a_runtime_without_graphs_says_so():
    with pytest.raises(Absent, match="no graph capture"):
        CapturedKernels(CpuRuntime(threads=1))
