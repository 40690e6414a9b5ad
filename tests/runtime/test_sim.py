"""Simulated devices: real faults, sticky, with the rules of real drivers; nothing is left behind."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from edge0verify.records.errors import InputError
from edge0verify.runtime.detect import open_device
from edge0verify.runtime.ops import DeviceOps
from edge0verify.runtime.protocol import DeviceError, Runtime
from edge0verify.runtime.sim import SimRuntime
from edge0verify.runtime.sim_knobs import Knobs, parse_knobs
from tests.runtime.device_bits import all_outcomes
from tests.runtime.phase import Phase

ROOT = Path(__file__).parents[2]
BYTES = 4000


@pytest.fixture
def sim():
    runtime = SimRuntime(2, seed=11)
    yield runtime
    runtime.close()


def move(runtime, device, source, to, stream=None):
    kernel = runtime.kernel(runtime.load(device), "e0_move_bytes")
    runtime.launch(kernel, -(-source.nbytes // 4096), 256, [source, to, ctypes.c_int64(source.nbytes)], stream=stream)


def code_of(call, *args, **named):
    with pytest.raises(DeviceError) as error:
        call(*args, **named)
    return error.value.code


class TestKernels:
    def test_bits_are_those_of_the_cpu(self, sim):
        ops = DeviceOps(sim, 1)
        seen = 0
        for outcome in all_outcomes(ops, Phase(1), small=True, only="mmvq"):
            assert outcome.differ == 0, outcome
            seen += 1
        assert seen > 10

    def test_it_is_a_runtime_like_the_others(self, sim):
        assert isinstance(sim, Runtime)
        runtime, index = open_device("sim:2")
        assert (runtime.name, index, len(runtime.devices())) == ("sim", 2, 3)

    def test_a_name_that_no_kernel_has_is_said(self, sim):
        sim.launch(sim.kernel(sim.load(0), "e0_none"), 1, 256, [])
        assert code_of(sim.synchronise, 0) == 500


class TestFaults:
    def test_touching_foreign_memory_is_a_real_fault_and_sticky(self, sim):
        mine, theirs = sim.allocate(1, BYTES), sim.allocate(0, BYTES)
        sim.copy(theirs, np.arange(BYTES, dtype=np.uint8))
        move(sim, 1, theirs, mine)
        assert code_of(sim.synchronise, 1) == 700
        assert sim._processes[1].process.returncode == -signal.SIGSEGV
        assert theirs.pointer <= sim.faults[1] < theirs.pointer + BYTES
        for call in (sim.synchronise, sim.stream, sim.event):
            assert code_of(call, 1) == 700
        assert code_of(sim.allocate, 1, 4) == 700
        out = np.empty(BYTES, np.uint8)
        sim.copy(out, theirs)
        assert np.array_equal(out, np.arange(BYTES, dtype=np.uint8))

    def test_with_peer_access_it_is_right(self, sim):
        mine, theirs = sim.allocate(1, BYTES), sim.allocate(0, BYTES)
        data = np.random.default_rng(1).integers(0, 256, BYTES, np.uint8)
        sim.copy(theirs, data)
        sim.enable_peer(1, 0)
        move(sim, 1, theirs, mine)
        sim.synchronise(1)
        out = np.empty(BYTES, np.uint8)
        sim.copy(out, mine)
        assert np.array_equal(out, data)

    def test_ordinary_host_memory_is_out_of_reach(self, sim):
        from edge0verify.runtime.protocol import Buffer

        host = np.zeros(BYTES, np.uint8)
        move(sim, 0, Buffer(host.ctypes.data, BYTES, 0, "host"), sim.allocate(0, BYTES))
        assert code_of(sim.synchronise, 0) == 700

    def test_mapped_memory_is_the_same_for_all(self, sim):
        mapped, first = sim.allocate_mapped(0, BYTES), sim.allocate(0, BYTES)
        mapped.array()[:] = 7
        move(sim, 0, mapped, first)
        sim.synchronise(0)
        mapped.array()[:] = 0
        move(sim, 0, first, mapped)
        sim.synchronise(0)
        assert np.all(mapped.array() == 7)

    def test_a_hang_is_ended_where_there_is_patience(self):
        runtime = SimRuntime(2, knobs=Knobs(doorbell="lost"), patience_s=0.05)
        runtime.enable_peer(1, 0)
        mine, theirs = runtime.allocate(1, BYTES), runtime.allocate(0, BYTES)
        for _ in range(runtime.plan.lost_after):
            move(runtime, 1, theirs, mine)
        assert code_of(runtime.synchronise, 1) == 702
        runtime.close()


class TestRules:
    """The answers that two H200s gave."""

    def test_peer_access_is_enabled_and_disabled_once(self, sim):
        sim.enable_peer(0, 1)
        assert code_of(sim.enable_peer, 0, 1) == 704
        sim.disable_peer(0, 1)
        assert code_of(sim.disable_peer, 0, 1) == 705

    def test_memset_from_the_other_device_without_peer_access_writes_nothing(self, sim):
        buffer = sim.allocate(0, BYTES)
        sim.memset(buffer, 1)
        assert code_of(sim.memset, buffer, 2, device=1) == 1
        out = np.empty(BYTES, np.uint8)
        sim.copy(out, buffer)
        assert np.all(out == 1)

    def test_an_event_belongs_to_its_device(self, sim):
        assert code_of(sim.record, sim.event(0), sim.stream(1)) == 400

    def test_a_stream_does_not_wait_for_the_null_stream(self, sim):
        buffer, copy, stream = sim.allocate(0, BYTES), sim.allocate(0, BYTES), sim.stream(0)
        sim.memset(buffer, 1)
        sim.synchronise(0)
        sim.memset(buffer, 2)
        move(sim, 0, buffer, copy, stream)
        sim.synchronise(0, stream)
        out = np.empty(BYTES, np.uint8)
        sim.copy(out, copy)
        assert np.all(out == 1)

    def test_pointer_attributes_name_the_owner_of_interior_pointers_too(self, sim):
        device, mapped = sim.allocate(1, BYTES), sim.allocate_mapped(0, BYTES)
        assert (sim.attributes(device.pointer + 999).kind, sim.attributes(device.pointer + 999).device) == ("device", 1)
        assert sim.attributes(mapped.pointer + 1).kind == "mapped"
        assert sim.attributes(0x1234).kind == "unregistered"

    def test_memory_runs_out_and_is_used_again(self):
        runtime = SimRuntime(1, memory=1 << 22)
        kept = [runtime.allocate(0, 1 << 20) for _ in range(3)]
        assert code_of(runtime.allocate, 0, 1 << 21) == 2
        for buffer in kept:
            runtime.free(buffer)
        runtime.free(runtime.allocate(0, 3 << 20))
        with pytest.raises(ValueError):
            runtime.free(kept[0])


class TestVariation:
    def test_addresses_and_lines_differ_from_seed_to_seed(self):
        seen = []
        for seed in range(8):
            runtime = SimRuntime(2, seed=seed)
            move(runtime, 1, runtime.allocate(0, BYTES), runtime.allocate(1, BYTES))
            assert code_of(runtime.synchronise, 1) == 700
            seen.append((runtime.faults[1], tuple(runtime.log.engine), tuple(runtime.log.kernel)))
            assert any(f"{runtime.faults[1]:x}" in line for line in runtime.log.engine)
            assert runtime.log.kernel
            runtime.close()
        assert all(len({part[i] for part in seen}) == len(seen) for i in range(3))

    def test_one_seed_repeats_itself(self):
        pair = [SimRuntime(2, seed=5) for _ in range(2)]
        assert pair[0].plan == pair[1].plan
        assert pair[0].allocate(0, 4).pointer == pair[1].allocate(0, 4).pointer

    @pytest.mark.parametrize("text", ["peer", "peer=maybe", "speed=1", "peer=on,peer=off", "=on"])
    def test_a_wrong_knob_is_refused(self, text):
        with pytest.raises(InputError):
            parse_knobs(text)

    def test_a_knob_set_to_its_healthy_value_is_healthy(self):
        assert parse_knobs("peer=on,link=x16") == parse_knobs("") == parse_knobs(None)


def children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


class TestNothingLeftBehind:
    def test_processes_and_memory_are_gone_after_close(self):
        gc.collect()  # what earlier tests forgot goes first
        files = len(os.listdir("/proc/self/fd"))
        runtime = SimRuntime(2)
        runtime.copy(runtime.allocate(0, 4), np.zeros(4, np.uint8))
        runtime.copy(runtime.allocate(1, 4), np.zeros(4, np.uint8))
        started = [p.process.pid for p in runtime._processes.values()]
        assert len(started) == 2
        runtime.close()
        gc.collect()
        assert not any(alive(pid) for pid in started)
        assert len(os.listdir("/proc/self/fd")) == files
        assert "edge0verify-sim" not in Path("/proc/self/maps").read_text()

    def test_forgetting_the_runtime_is_enough(self):
        runtime = SimRuntime(1)
        runtime.copy(runtime.allocate(0, 4), np.zeros(4, np.uint8))
        pid = runtime._processes[0].process.pid
        del runtime
        gc.collect()
        assert not alive(pid)

    @pytest.mark.parametrize("knobs", ["", "doorbell=lost"])
    def test_killing_the_program_ends_its_devices_even_in_a_hang(self, knobs):
        code = (
            "import ctypes, sys, numpy as np\n"
            "from edge0verify.runtime.sim import SimRuntime\nfrom edge0verify.runtime.sim_knobs import parse_knobs\n"
            f"r = SimRuntime(2, knobs=parse_knobs({knobs!r}))\n"
            "r.enable_peer(1, 0)\na, b = r.allocate(0, 64), r.allocate(1, 64)\nr.copy(a, np.zeros(64, np.uint8))\n"
            "print(*[p.process.pid for p in r._processes.values()], flush=True)\n"
            "k = r.kernel(r.load(1), 'e0_move_bytes')\n"
            "while True:\n    r.launch(k, 1, 256, [a, b, ctypes.c_int64(64)])\n    r.synchronise(1)\n"
        )
        tool = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        pids = [int(word) for word in tool.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        time.sleep(0.1)
        tool.kill()
        tool.wait(10)
        tool.stdout.close()
        until = time.monotonic() + 5
        while any(alive(pid) for pid in pids) and time.monotonic() < until:
            time.sleep(0.02)
        assert not any(alive(pid) for pid in pids)
