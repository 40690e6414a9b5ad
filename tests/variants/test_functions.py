"""E(x) and the quantisers, as compiled, on each instruction set."""

import numpy as np
import pytest

from edge0verify.numerics.blocks import same_floats
from edge0verify.variants import _kernels
from edge0verify.variants.kernels import Kernels
from tests.transcription.quantisers import quantise as transcribed
from tests.variants.scenes import INPUTS, activations, rng_of

ISAS = _kernels.usable_isas()


def some_floats(n: int) -> np.ndarray:
    """All kinds of bit patterns, and a dense sweep over where exp is neither 0 nor infinite."""
    rng = rng_of("floats", n)
    bits = rng.integers(0, 2**32, n, dtype=np.uint32).view(np.float32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.7228317, 88.7228394, -87.3365479, -103.97208, -103.972084, -104.0, 1e-45]
    return np.concatenate([bits, rng.uniform(-104, 89, n).astype(np.float32), np.array(special, np.float32)])


class TestExp:
    @pytest.mark.parametrize("isa", ISAS)
    def test_it_is_within_one_ulp_over_the_whole_range(self, isa):
        x = some_floats(200_000)
        got = Kernels(isa=isa).exp(x).astype(np.float64)
        with np.errstate(all="ignore"):
            want = np.exp(x.astype(np.float64))
            rounded = want.astype(np.float32)
            ulp = np.spacing(np.maximum(rounded, np.float32(2.0**-126)).astype(np.float32)).astype(np.float64)
        finite = np.isfinite(rounded)
        error = np.abs(got[finite] - want[finite]) / ulp[finite]
        assert error.max() < 1.0, (error.max(), x[finite][error.argmax()])
        assert (got[np.isposinf(rounded)] == np.inf).all() and np.isnan(got[np.isnan(x)]).all()
        assert (got[x == -np.inf] == 0).all() and (got[x == 0] == 1).all()

    def test_each_instruction_set_gives_the_same_bits(self):
        x = some_floats(100_003)                             # an odd count: the scalar tail takes part
        want = Kernels(isa=ISAS[-1]).exp(x)
        assert [isa for isa in ISAS if not same_floats(Kernels(isa=isa).exp(x), want).all()] == []


QUANTISERS = ("mmvq", "mmq", "ggml-ref", "ggml-x86")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", QUANTISERS)
class TestQuantise:
    def blocks(self, isa, name, x):
        kernels = Kernels(isa=isa, threads=1)
        try:
            return kernels.quantise(name, x)
        except ValueError as error:
            assert isa == "phase" and name.startswith("ggml"), error      # no variant uses them, so no device form exists
            return transcribed(name, x)

    def test_every_kind_of_input_gives_the_transcribed_bits(self, isa, name):
        bad = []
        for kind in ("normal", *INPUTS):
            x = activations(rng_of("quantise", kind), 64, 320, kind)
            if not self.blocks(isa, name, x).same_bits(transcribed(name, x)):
                bad.append(kind)
        assert not bad

    def test_halves_and_their_neighbours_round_as_named(self, isa, name):
        ties = np.arange(-126.5, 127, 1, dtype=np.float32)
        values = np.stack([np.nextafter(ties, np.float32(-200)), ties, np.nextafter(ties, np.float32(200))]).reshape(-1)
        values = np.resize(values, (len(values) + 30) // 31 * 31).reshape(-1, 31)
        x = np.concatenate([np.full((len(values), 1), 127, np.float32), values.astype(np.float32)], axis=1)
        assert self.blocks(isa, name, x).same_bits(transcribed(name, x))

    def test_a_subnormal_scale_clamps_its_codes(self, isa, name):
        units = np.arange(1, 400, dtype=np.int32)
        x = np.zeros((len(units), 32), np.float32)
        x[:, 3] = units.view(np.float32)
        x[:, 4] = -(units // 2).view(np.float32)
        got = self.blocks(isa, name, x)
        assert got.same_bits(transcribed(name, x)) and np.abs(got.codes.astype(int)).max() <= 127


def test_the_threads_of_a_quantiser_change_nothing():
    x = activations(rng_of("threads"), 700, 384)
    assert Kernels(threads=1).quantise("mmvq", x).same_bits(Kernels(threads=2).quantise("mmvq", x))
