"""Every call of the HIP adapter against the fake library; run as a program with that library first on LD_LIBRARY_PATH.

Prints JSON: the results of a clean pass, and per failing call what came out.
"""

from __future__ import annotations

import ctypes
import json

import numpy as np
from hip import hip

from edge0verify.runtime import hip as adapter
from edge0verify.runtime.protocol import DeviceError

CALLS = (
    "GetDeviceCount", "GetDeviceProperties", "DriverGetVersion", "SetDevice", "DeviceCanAccessPeer", "DeviceEnablePeerAccess",
    "DeviceDisablePeerAccess", "DeviceGetAttribute", "Malloc", "MallocManaged", "HostMalloc", "Memcpy", "MemcpyAsync", "MemcpyPeer",
    "MemcpyPeerAsync", "Memset", "MemsetD8Async", "MemsetD16Async", "MemsetD32Async", "DeviceSynchronize", "StreamSynchronize",
    "StreamCreateWithFlags", "EventCreateWithFlags", "EventRecord", "StreamWaitEvent", "EventSynchronize", "EventElapsedTime",
    "PointerGetAttributes", "StreamBeginCapture", "StreamEndCapture", "GraphInstantiateWithFlags", "GraphLaunch", "ModuleLoadData",
    "ModuleGetFunction", "ModuleLaunchKernel", "Free", "HostFree",
)  # fmt: skip
N = 96


def scenario() -> dict:
    """One use of every part of the protocol; what came out."""
    found = adapter.detect()
    if found.runtime is None:
        return {"absent": found.reason}
    runtime, seen = found.runtime, {}
    seen["devices"] = [[d.name, d.arch, d.memory, d.units, d.pci] for d in runtime.devices()]
    seen["peer"] = runtime.can_access_peer(0, 1)
    runtime.enable_peer(1, 0)
    runtime.disable_peer(1, 0)
    seen["managed safe"] = runtime.managed_safe(0) and runtime.pageable_access(1)
    data = np.arange(N, dtype=np.uint8)
    first, second, mapped, managed = (
        runtime.allocate(0, N),
        runtime.allocate(1, N),
        runtime.allocate_mapped(0, N),
        runtime.allocate_managed(0, N),
    )
    runtime.copy(first, data)
    stream = runtime.stream(1)
    runtime.copy_peer(second, first)
    runtime.copy_peer(second, first, stream)
    runtime.copy(mapped, second, stream)
    seen["copied"] = bool(np.array_equal(mapped.array(), data))
    for width, value in ((1, 7), (2, 0x0102), (4, 0x87654321)):
        runtime.memset(second, value, width)
        out = np.empty(N, np.uint8)
        runtime.copy(out, second)
        seen[f"memset {width}"] = hex(int(out.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[width])[-1]))
    runtime.memset(first, 9, device=1)
    seen["attributes"] = [
        list(map(str, (a.kind, a.device))) for a in (runtime.attributes(b.pointer + 5) for b in (first, second, mapped, managed))
    ]
    module = runtime.load(1, b"FAKE image")
    runtime.launch(runtime.kernel(module, "move"), 1, 64, [first, second, ctypes.c_int64(N)], stream=stream)
    runtime.synchronise(1, stream)
    runtime.synchronise(0)
    out = np.empty(N, np.uint8)
    runtime.copy(out, second)
    seen["kernel"] = bool(np.all(out == 9))
    start, end = runtime.event(1), runtime.event(1)
    runtime.record(start, stream)
    runtime.record(end, stream)
    runtime.wait(end, stream)
    seen["elapsed"] = runtime.elapsed(start, end) >= 0
    runtime.begin_capture(stream)
    runtime.launch_graph(runtime.end_capture(stream), stream)
    for buffer in (first, second, mapped, managed):
        runtime.free(buffer)
    return seen


def main() -> None:
    fake = ctypes.CDLL("libamdhip64.so")
    properties = hip.hipDeviceProp_t()
    properties.totalGlobalMem, properties.multiProcessorCount, properties.pciBusID = 24 << 30, 96, 3
    # Its texts cannot be set, so the place of the architecture's is found by looking.
    raw = (ctypes.c_ubyte * properties.c_sizeof()).from_address(properties.as_c_void_p().value)
    raw[:11] = b"Fake Radeon"
    for at in range(256, len(raw), 4):
        kept, raw[at] = raw[at], ord("g")
        if properties.gcnArchName:
            raw[at : at + 16] = b"gfx1100:sramecc-"
            break
        raw[at] = kept
    fake.e0_fake_properties(properties.as_c_void_p(), ctypes.c_size_t(properties.c_sizeof()))
    result = {"clean": scenario(), "live": fake.e0_fake_live(), "failing": {}}
    for call in CALLS:
        fake.e0_fake_fail(f"hip{call}".encode(), 719)
        try:
            came = scenario()
            result["failing"][call] = came.get("absent") or "no error"
        except DeviceError as error:
            result["failing"][call] = [error.call, error.code, error.name]
        called = fake.e0_fake_calls(f"hip{call}".encode())
        fake.e0_fake_reset()
        if not called:
            result["failing"][call] = "never called"
        if int(hip.hipGetLastError()[0]) != 0 and call != "GetDeviceCount":  # there is no runtime then
            result["failing"][call] = "the error was left for the next call"
    print(json.dumps(result))


if __name__ == "__main__":
    main()
