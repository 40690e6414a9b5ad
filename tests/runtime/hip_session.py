"""A whole session on the hip runtime, run once per failing call in forked children: `python -m tests.runtime.hip_session CALL...`.

Prints one line per call: its name, and what came out of the session with that call failing ('ok' for the name 'none').
"""

import os
import sys
import time

import numpy as np

from edge0verify.runtime.hip import detect
from edge0verify.runtime.ops import DeviceOps
from edge0verify.runtime.protocol import DeviceError
from tests.runtime.cases import RowsCase, differing
from tests.runtime.phase import Phase


def session() -> str:
    found = detect()
    if found.runtime is None:
        return f"absent: {found.reason}"
    runtime = found.runtime
    device = runtime.devices()[0]
    case = RowsCase("IQ4_NL", 33, 5, 96)
    raw, x, _ = case.build()
    ops = DeviceOps(runtime, 0, image=b"a code object")
    weights = ops.weights(case.fmt, raw, rows=case.m)
    operand = ops.quantise("mmvq", ops.upload(x), *x.shape, key="quantise")
    rows = ops.download(ops.rows("w11", weights, operand, key="rows"), np.float32, (case.n, case.m))
    phase = Phase(1)
    codes, d, _ = phase.quantise("mmvq", x)
    if differing(rows, phase.rows("w11", case.fmt, raw, codes, d, None, m=case.m, n=case.n)):
        return "other bits"
    if ops.launches() != {"quantise": 1, "rows": 1}:
        return f"launches {ops.launches()}"
    stream, first, last = runtime.stream(0), runtime.event(0), runtime.event(0)
    runtime.record(first, stream)
    mapped = runtime.allocate_mapped(0, 64)
    runtime.memset(mapped, 0xFFFF1234, 4, stream)
    there = runtime.allocate(0, 64)
    runtime.copy(there, mapped, stream)
    runtime.record(last, stream)
    runtime.wait(last, stream)
    runtime.synchronise(0, stream)
    if runtime.elapsed(first, last) != 1.5 or runtime.can_access_peer(0, 0):
        return "events or peers"
    back = np.zeros(16, np.uint32)
    runtime.copy(back, there)
    if (back != 0xFFFF1234).any() or (mapped.array(np.uint32) != 0xFFFF1234).any():
        return "memset or copy"
    runtime.free(mapped)
    runtime.free(there)
    return "ok" if device.arch == "gfx1100" and device.memory == 24 << 30 else f"described as {device}"


def in_child(call: str) -> str:
    """session() in a forked child with that call failing; a crash or a hang is an answer too."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        if call != "none":
            os.environ["FAKE_HIP_FAIL"] = call
        try:
            answer = session()
        except DeviceError as error:
            answer = f"error: {error}"
        except BaseException as error:
            answer = f"escaped: {type(error).__name__}: {error}"
        os.write(write, answer.encode()[:4000])
        os._exit(0)
    os.close(write)
    give_up = time.monotonic() + 20
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > give_up:
            os.kill(child, 9)
            os.waitpid(child, 0)
            return "hung"
        time.sleep(0.01)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read().decode() or "crashed"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, in_child(name), flush=True)
