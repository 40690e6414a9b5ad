"""The protocol on the CPU runtime, and what detection says on a machine that lacks a driver."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest

from edge0verify.records.errors import InputError
from edge0verify.runtime import cuda, gfx11emu
from edge0verify.runtime.cpu import LIBRARY, CpuRuntime
from edge0verify.runtime.detect import DETECTORS, Absent, detect_all, open_device, parse
from edge0verify.runtime.ops import DeviceOps
from edge0verify.runtime.protocol import DeviceError, Runtime


@pytest.fixture
def cpu():
    if not LIBRARY.is_file():
        pytest.fail(f"{LIBRARY.name} was not built")
    return CpuRuntime(threads=1)


def test_compiled_parts_are_found_where_an_editable_install_puts_them(tmp_path):
    """A clean clone has no compiled part in its tree: the build leaves them in site-packages and tells the importer."""
    elsewhere = tmp_path / "_phase.so"
    told = f"""
import importlib.machinery, importlib.util, sys
class Redirecting:
    def find_spec(self, name, path=None, target=None):
        if name == "edge0verify.runtime._phase":
            return importlib.util.spec_from_file_location(name, {str(elsewhere)!r})
sys.meta_path.insert(0, Redirecting())
from edge0verify.runtime import cpu, sources
print(cpu.LIBRARY)
assert str(sources.native_file("_phase")) == str(cpu.LIBRARY)
"""
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.strip() == str(elsewhere)


def test_every_runtime_is_there_or_says_why_not():
    for found in detect_all():
        assert (found.runtime is None) == bool(found.reason), found
        assert found.runtime is None or isinstance(found.runtime, Runtime)


def test_an_absent_runtime_is_not_a_usage_error(monkeypatch):
    monkeypatch.setitem(DETECTORS, "cuda", lambda: cuda.Detected("cuda", None, "no driver"))
    with pytest.raises(Absent, match="cuda:0: no driver"):
        open_device("cuda:0")


@pytest.mark.parametrize("name", ["tpu:0", "cuda:x", "cuda:-1", ""])
def test_an_unknown_device_is_a_usage_error(name):
    with pytest.raises(InputError):
        parse(name)


def test_the_emulator_needs_a_checkout(monkeypatch, tmp_path):
    monkeypatch.delenv(gfx11emu.VARIABLE, raising=False)
    assert gfx11emu.VARIABLE in gfx11emu.detect().reason
    assert "emu.py" in gfx11emu.detect(str(tmp_path)).reason


def test_memory(cpu):
    buffer = cpu.allocate(0, 64)
    cpu.memset(buffer, 0x7FC0E0E0, 4)
    host = np.zeros(16, np.uint32)
    cpu.copy(host, buffer)
    assert (host == 0x7FC0E0E0).all()
    host[:] = np.arange(16)
    cpu.copy(buffer.at(32), host[:8])
    assert buffer.array(np.uint32)[8:].tolist() == list(range(8))
    assert cpu.attributes(buffer.pointer + 5).device == 0
    assert cpu.attributes(1).kind == "unregistered"
    cpu.free(buffer)
    with pytest.raises(ValueError, match="twice"):
        cpu.free(buffer)
    with pytest.raises(ValueError, match="into"):
        cpu.copy(np.zeros(1, np.uint8), host)
    with pytest.raises(ValueError):
        buffer.at(60, 8)


def test_a_launch_that_cannot_be_is_named(cpu):
    with pytest.raises(DeviceError, match="no such kernel"):
        cpu.launch("e0_none", 1, 1, [])
    with pytest.raises(DeviceError, match="number of arguments"):
        cpu.launch("e0_exp", 1, 256, [ctypes.c_int(1)])
    with pytest.raises(DeviceError, match="invalid device"):
        cpu.allocate(1, 4)


def test_an_output_that_no_kernel_wrote_is_poison(cpu):
    ops = DeviceOps(cpu)
    out = ops.blocks_like("mmvq", 2, 64)
    assert (ops.download(out.codes, np.int8, (2, 64)) == -128).all()
    assert (ops.download(out.d, np.uint16, (2, 2)) == 0x7EE0).all()
    assert (ops.download(ops._poisoned(4, "f32"), np.uint32, (4,)) == 0x7FC0E0E0).all()


def test_memory_is_found_again_and_counters_can_be_reset(cpu):
    ops = DeviceOps(cpu)
    first = ops.upload(np.ones(100, np.float32)).pointer
    ops.release()
    assert ops.upload(np.ones(90, np.float32)).pointer == first
    ops.quantise("mmq", ops.upload(np.ones((1, 32), np.float32)), 1, 32, key="k")
    assert ops.launches() == {"k": 1}
    ops.reset_launches()
    assert ops.launches() == {}
