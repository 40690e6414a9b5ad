"""Variants on devices: one variant on two of them, devices that are absent, refuse, or lose a kernel, guards in device memory."""

import ctypes

import numpy as np
import pytest

from edge0verify.cli.main import run as main
from edge0verify.model import encode, load_model, prompt
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.runtime.cpu import CpuRuntime
from edge0verify.runtime.detect import Absent
from edge0verify.runtime.ops import DeviceOps
from edge0verify.runtime.protocol import DeviceError
from edge0verify.study import kernel, pair
from edge0verify.study.kernel_cases import Shape
from edge0verify.study.kernel_guard import GuardedDeviceKernels
from edge0verify.study.on_device import settled
from edge0verify.variants import device_kernels
from edge0verify.variants.device_kernels import DeviceKernels


class Failing(CpuRuntime):
    """The CPU as a device whose `broken` kernel raises an error of a driver."""

    def __init__(self, code: int, broken: str) -> None:
        super().__init__(threads=1)
        self.code, self.broken, self.lost = code, broken, False

    def launch(self, kernel, blocks, threads, args, **options):
        if self.broken in kernel or self.lost:
            self.lost = self.code == 700
            name = {700: "CUDA_ERROR_ILLEGAL_ADDRESS", 2: "CUDA_ERROR_OUT_OF_MEMORY"}[self.code]
            raise DeviceError("cuLaunchKernel", self.code, name)
        super().launch(kernel, blocks, threads, args, **options)


class Wrong(CpuRuntime):
    """The CPU as a device whose `broken` kernel also writes `nbytes` before its output."""

    def __init__(self, broken: str) -> None:
        super().__init__(threads=1)
        self.broken = broken

    def launch(self, kernel, blocks, threads, args, **options):
        super().launch(kernel, blocks, threads, args, **options)
        if self.broken in kernel:
            out = next(a for a in reversed(args[:-4]) if hasattr(a, "pointer"))
            ctypes.memset(out.pointer - 8, 0, 8)


def request(**more):
    model = load_model()
    tokens = encode(prompt("prose"))[:12]
    return pair.Request(model=model, prompt="prose", tokens=tokens, stage="D", layers=(1,), threads=1, **more)


def device_of(monkeypatch, runtime):
    """Every device that is opened is `runtime`."""
    monkeypatch.setattr(device_kernels, "open_device", lambda name: (runtime, 0))


def test_one_variant_on_two_devices_is_equal_bit_for_bit(monkeypatch):
    device_of(monkeypatch, CpuRuntime(threads=1))
    verdict = pair.compare_variants(request(a="w11", b="w11", device_b="cuda:0"))
    assert verdict.status == PASS and verdict.engaged == {"a": True, "b": True}
    assert (verdict.a, verdict.b) == ("w11 on cpu", "w11 on cuda:0")
    assert "equal bit for bit" in verdict.totals["notes"][0]
    assert verdict.environment["devices"]["b"]["name"] and verdict.environment["devices"]["a"]["device"] == "cpu"


def test_a_bit_that_differs_between_devices_is_told(monkeypatch):
    class Changed(CpuRuntime):
        def launch(self, kernel, blocks, threads, args, **options):
            super().launch(kernel, blocks, threads, args, **options)
            if kernel.startswith("e0_rows"):
                rows = next(a for a in reversed(args[:-4]) if hasattr(a, "pointer")).array(np.uint32)
                rows[0] ^= 1

    device_of(monkeypatch, Changed(threads=1))
    verdict = pair.compare_variants(request(a="w11", b="w11", device_b="cuda:0"))
    assert "elements differ in their bits" in verdict.totals["notes"][0]
    assert verdict.totals["equal"] < verdict.totals["n"]


@pytest.mark.parametrize(("code", "status", "says"), [(700, FAIL, "the kernel failed"), (2, INCONCLUSIVE, "the device refused")])
def test_a_failing_launch_gives_no_number(monkeypatch, code, status, says):
    device_of(monkeypatch, Failing(code, "e0_rows_w11"))
    verdict = pair.compare_variants(request(a="mmvq", b="w11", device_a="cuda:0", device_b="cuda:0"))
    assert verdict.status == status and not verdict.layers and not verdict.totals["n"]
    assert says in verdict.reasons[0] and "b: w11, layer 1" in verdict.reasons[0] and len(verdict.reasons) == 1


def test_an_absent_device_is_said_before_the_reference_pass(monkeypatch):
    def absent(name):
        raise Absent(f"{name}: cudaGetDeviceCount: no device")

    monkeypatch.setattr(device_kernels, "open_device", absent)
    monkeypatch.setattr(pair, "capture", lambda *a, **k: pytest.fail("the reference pass ran"))
    verdict = pair.compare_variants(request(a="w11", b="w11", device_b="cuda:0"))
    assert verdict.status == INCONCLUSIVE and "no device" in verdict.reasons[0]


def test_what_proves_nothing_and_what_is_a_fault():
    assert settled(Absent("cuda:0: no device"))[0] == INCONCLUSIVE
    assert settled(DeviceError("cuModuleLoadData", 209, "CUDA_ERROR_NO_BINARY_FOR_GPU"))[0] == INCONCLUSIVE
    for code in (700, 702, 716, 719):
        assert settled(DeviceError("synchronise", code, "x"))[0] == FAIL


def test_kernel_on_a_device(monkeypatch):
    device_of(monkeypatch, CpuRuntime(threads=1))
    report = kernel.verify(kernel.Request(stage="D", variant="w11", seed=5, shape=Shape(64, 3, 96, 1, 1), device="cuda:0"))
    assert report.verdict.status == PASS and report.verdict.engaged["a"]
    assert report.verdict.environment["devices"]["a"]["device"] == "cpu:0"      # what stands in for it


def test_kernel_that_writes_before_its_output(monkeypatch):
    device_of(monkeypatch, Wrong("e0_rows_w11"))
    report = kernel.verify(kernel.Request(stage="D", variant="w11", seed=5, shape=Shape(64, 3, 96, 1, 1), device="cuda:0"))
    assert report.verdict.status == FAIL and "guard bytes" in " ".join(report.verdict.reasons)


def test_kernel_that_faults(monkeypatch):
    device_of(monkeypatch, Failing(700, "e0_rows_w11"))
    report = kernel.verify(kernel.Request(stage="D", variant="w11", seed=5, shape=Shape(64, 3, 96, 1, 1), device="cuda:0"))
    assert report.verdict.status == FAIL and not report.cases and not report.verdict.layers
    assert "w11 on cuda:0, D" in report.verdict.reasons[0]


def test_inputs_lie_between_nans():
    kernels = DeviceKernels(CpuRuntime(threads=1), guarded=True)
    kernels.__class__ = GuardedDeviceKernels
    assert isinstance(kernels.ops, DeviceOps)
    there = kernels.ops.upload(np.ones(8, np.float32))
    beside = np.frombuffer((ctypes.c_char * 48).from_address(there.pointer - 8), np.float32)
    assert np.isnan(beside[:2]).all() and (beside[2:10] == 1).all() and np.isnan(beside[10:]).all()


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "--stage", "D", "--a", "w11", "--b", "w11", "--device", "cpu", "--device-b", "cuda:0"],
        ["compare", "--stage", "D", "--a", "w11", "--b", "mmq", "--device", "cuda:0", "--split", "0-5@sim:0"],
        ["compare", "--stage", "D", "--a", "w11", "--b", "mmq", "--device", "nvidia"],
        ["compare", "--stage", "D", "--a", "w11", "--b", "mmq", "--cascade", "--device-b", "sim:0"],
        ["compare", "a.h5", "b.h5", "--device-a", "sim:0"],
        ["kernel", "--stage", "D", "--variant", "w11", "--device", "sim:0", "--isa", "phase"],
        ["run", "--device", "sim:0", "--split", "0-5@sim:0", "-o", "x.h5"],
        ["drift", "--over", "runs", "--stage", "D", "--engine", "true {out}", "--device", "sim:0"],
    ],
)
def test_options_that_contradict(arguments, capsys):
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "--stage", "D", "--a", "w11", "--b", "w11", "--device-b", "hip:7"],
        ["kernel", "--stage", "D", "--variant", "w11", "--device", "hip:7"],
        ["drift", "--over", "batch", "--stage", "D", "--variant", "w11", "--device", "hip:7"],
        ["run", "--prompt", "prose", "--device", "hip:7", "-o", "never.h5"],
    ],
)
def test_absent_hardware_exits_3_with_the_reason(arguments, capsys):
    assert main(arguments) == 3
    said = capsys.readouterr()
    assert "INCONCLUSIVE" in said.out + said.err and "hip:7" in said.out + said.err
