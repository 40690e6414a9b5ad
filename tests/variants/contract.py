"""`VariantContract`: what every variant must do, on every instruction set and runtime.

A subclass names the stage, the variant and the weight format and says which kernels to call; it then inherits every test below.
The judge is tests/transcription, the contract table written out a second time.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from edge0verify.numerics.blocks import POISON_CODE, POISON_F16_BITS, POISON_F32_BITS, Blocks, same_floats
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.registry import LINEAR, find
from tests.transcription import stages
from tests.variants.scenes import INPUTS, SHAPES, WEIGHTS, Scene, Shape, scene

GUARD = 64
MANY = {"D": Shape(49, 192, 1056), "A1": Shape(65, 128, 256, 4, 2), "A2": Shape(65, 288, 256, 4, 2)}
"""Enough products for a second thread to be started."""
GUARD_BYTE = 0xA5


class GuardedKernels(Kernels):
    """Kernels whose outputs each lie between guard bytes, at an address that is aligned to nothing but the element."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._buffers: list[np.ndarray] = []

    def poisoned(self, shape, dtype) -> np.ndarray:
        fresh = super().poisoned(shape, dtype)
        lead = GUARD + fresh.itemsize
        buffer = np.full(lead + fresh.nbytes + GUARD, GUARD_BYTE, np.uint8)
        buffer[lead:lead + fresh.nbytes] = fresh.reshape(-1).view(np.uint8)
        self._buffers.append(buffer)
        return buffer[lead:lead + fresh.nbytes].view(dtype).reshape(shape)

    def check_guards(self) -> None:
        for buffer in self._buffers:
            edge = np.concatenate([buffer[:GUARD], buffer[-GUARD:]])
            assert (edge == GUARD_BYTE).all(), f"{int((edge != GUARD_BYTE).sum())} guard bytes were written"
        self._buffers.clear()


def place_between_nans(x: np.ndarray) -> np.ndarray:
    """The same rows inside a buffer of NaN: a kernel that reads past its input shows it."""
    buffer = np.full(x.size + 64, np.nan, np.float32)
    inner = buffer[32:32 + x.size].reshape(x.shape)
    inner[:] = x
    return inner


def run(kernels, stage: str, variant, fmt: str, s: Scene) -> dict[str, np.ndarray | Blocks]:
    """The outputs of one stage by compiled kernels; names as in the dump."""
    x = place_between_nans(s.x)
    if stage == "D":
        out = kernels.d(variant, kernels.pack(fmt, s.raw), x)
        return {"d-hq": out.hq, "d-xl": out.xl, "d-xlq": out.xlq}
    if stage == "U":
        out = kernels.u(variant, kernels.pack(fmt, s.raw), x)
        return {"u-ylq": out.ylq, "u": out.u}
    if stage == "linear":
        return {"rows": kernels.linear(kernels.pack(fmt, s.raw), x)}
    if stage == "A1":
        out = kernels.a1(variant, kernels.pack(fmt, s.raw), kernels.pack(fmt, s.raw_up), x, s.blocks, s.ids, capture=True)
        return {"a-gate": out.gate, "a-up": out.up, "a-h": out.h}
    out = kernels.a2(variant, kernels.pack(fmt, s.raw), s.blocks, s.ids, s.weights)
    return {"a-y": out.y, "a-yl": out.yl}


@lru_cache(maxsize=512)
def expected(
    stage: str, variant: str, fmt: str, shape: Shape, inputs: str = "normal", weight: str = "normal", codes: str = "normal"
) -> dict[str, np.ndarray | Blocks]:
    """The same outputs by the transcription (E excepted, which has tests of its own)."""
    s = scene(stage, variant, fmt, shape, inputs, weight, codes)
    if stage == "D":
        return dict(zip(("d-hq", "d-xl", "d-xlq"), stages.d(variant, s.raw, fmt, s.x)))
    if stage == "U":
        return dict(zip(("u-ylq", "u"), stages.u(variant, s.raw, fmt, s.x)))
    if stage == "linear":
        return {"rows": stages.u("mmvq", s.raw, fmt, s.x)[1]}
    if stage == "A1":
        return dict(zip(("a-gate", "a-up", "a-h"), stages.a1(variant, s.raw, s.raw_up, s.x, s.blocks, s.ids, Kernels().exp)))
    return dict(zip(("a-y", "a-yl"), stages.a2(variant, s.raw, s.blocks, s.ids, s.weights, fmt)))


def arrays(name: str, value: np.ndarray | Blocks) -> dict[str, np.ndarray]:
    if not isinstance(value, Blocks):
        return {name: value}
    parts = {name: value.codes, f"{name}.d": value.d, f"{name}.s": value.s}
    return {k: v for k, v in parts.items() if v is not None}


def unwritten(a: np.ndarray) -> np.ndarray:
    if a.dtype == np.int8:
        return a == POISON_CODE
    bits = {2: (np.uint16, POISON_F16_BITS), 4: (np.uint32, POISON_F32_BITS)}[a.itemsize]
    return np.ascontiguousarray(a).view(bits[0]) == bits[1]


def differences(got: dict, want: dict) -> list[str]:
    """One line per array that differs: how many, and the first place with both values."""
    lines = []
    for name, value in want.items():
        have = arrays(name, got[name])
        for part, w in arrays(name, value).items():
            g = have.get(part)
            if g is None or g.shape != w.shape or g.dtype != w.dtype:
                lines.append(f"{part}: expected {w.dtype}{list(w.shape)}, found {None if g is None else (g.dtype, g.shape)}")
                continue
            same = g == w if w.dtype == np.int8 else same_floats(g, w)
            if not same.all():
                at = tuple(int(i) for i in np.argwhere(~same)[0])
                lines.append(f"{part}: {int((~same).sum())} of {w.size} differ, first at {at}: {g[at]!r} instead of {w[at]!r}")
            if unwritten(g).any():
                lines.append(f"{part}: {int(unwritten(g).sum())} of {w.size} were never written")
    return lines


class VariantContract:
    """Inherit, set `stage`, `variant`, `fmt`, and `make_kernels`."""

    stage: str
    variant: str
    fmt: str

    def make_kernels(self, threads: int = 1):
        """Kernels whose outputs are guarded: an object with the calls of `edge0verify.variants.kernels.Kernels`."""
        raise NotImplementedError

    def differences(self, shape: Shape, inputs: str = "normal", weight: str = "normal", codes: str = "normal") -> list[str]:
        """What differs from the transcription; guards are checked too."""
        kernels = self.make_kernels()
        key = (self.stage, self.variant, self.fmt, shape, inputs, weight, codes)
        got = run(kernels, self.stage, self.variant, self.fmt, scene(*key))
        kernels.check_guards()
        return differences(got, expected(*key))

    def typical(self) -> Shape:
        return list(SHAPES[self.stage].values())[-1]

    def test_every_shape_gives_the_bits_of_the_contract(self):
        failed = {name: lines for name, shape in SHAPES[self.stage].items() if (lines := self.differences(shape))}
        assert not failed, failed

    def test_every_kind_of_input_gives_the_bits_of_the_contract(self):
        failed = {kind: lines for kind in INPUTS if (lines := self.differences(self.typical(), inputs=kind))}
        assert not failed, failed

    def test_every_kind_of_weight_gives_the_bits_of_the_contract(self):
        failed = {kind: lines for kind in WEIGHTS if (lines := self.differences(self.typical(), weight=kind))}
        assert not failed, failed

    def test_the_code_minus_128_is_defined(self):
        """No quantiser writes it; D and U form their operands themselves, so for them the weights carry it."""
        activations = self.stage in ("A1", "A2")
        lines = self.differences(self.typical(), codes="-128" if activations else "normal", weight="-128 codes")
        assert not lines, lines

    def test_threads_and_batch_change_nothing(self):
        s = scene(self.stage, self.variant, self.fmt, MANY.get(self.stage, Shape(49, 193, 1056)))
        one = run(self.make_kernels(1), self.stage, self.variant, self.fmt, s)
        two = run(self.make_kernels(2), self.stage, self.variant, self.fmt, s)
        assert not differences(two, one)
        if self.stage in ("D", "U", "linear"):
            wide = scene(self.stage, self.variant, self.fmt, Shape(2, 4160, 1056))      # weight rows are split between threads
            first = Scene(wide.raw, None, wide.x[:1], None, None, None)
            both = run(self.make_kernels(2), self.stage, self.variant, self.fmt, wide)
            alone = run(self.make_kernels(2), self.stage, self.variant, self.fmt, first)
            assert not differences({k: _head(v) for k, v in both.items()}, alone)

    def test_a_launch_is_counted_under_its_own_name_only(self):
        kernels = self.make_kernels()
        kernels.reset_launches()
        run(kernels, self.stage, self.variant, self.fmt, scene(self.stage, self.variant, self.fmt, self.typical()))
        v = LINEAR if self.stage == "linear" else find(self.stage, self.variant)
        assert kernels.launches() == {v.key(self.fmt): 1}

    def test_weights_of_another_format_are_refused(self):
        shape = self.typical()
        other = "Q3_K" if self.fmt != "Q3_K" else "Q8_0"
        s = scene(self.stage, self.variant, other, Shape(shape.n, shape.m, 256, shape.experts, shape.slots))
        with pytest.raises(Exception, match=r"Q8_0|Q3_K"):
            run(self.make_kernels(), self.stage, self.variant, other, s)


def _head(value):
    return value.take(slice(0, 1)) if isinstance(value, Blocks) else value[:1]
