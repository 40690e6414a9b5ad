"""Which runtimes this machine has, and devices by name ('cpu', 'cuda:0', 'hip:1', 'gfx11emu')."""

from __future__ import annotations

from collections.abc import Callable

from edge0verify.records.errors import InputError
from edge0verify.runtime import cpu, cuda, gfx11emu, hip, sim
from edge0verify.runtime.protocol import Detected, Runtime

MOST_SIMULATED = 63

DETECTORS: dict[str, Callable[[], Detected]] = {
    "cpu": cpu.detect,
    "cuda": cuda.detect,
    "hip": hip.detect,
    "gfx11emu": gfx11emu.detect,
    "sim": sim.detect,
}


class Absent(RuntimeError):
    """A runtime or device that this machine does not have: nothing can be proven, and the message says why."""


def detect_all() -> tuple[Detected, ...]:
    """Every runtime, present or with the reason it is not."""
    return tuple(find() for find in DETECTORS.values())


def parse(name: str, option: str = "--device") -> tuple[str, int]:
    """('cuda', 0) from 'cuda:0' or 'cuda'.  Raises InputError, which begins with `option`, for a name that no runtime has."""
    runtime, colon, index = name.partition(":")
    if runtime not in DETECTORS or (colon and not (index.isascii() and index.isdigit())):
        raise InputError(f"{option} {name}: expected one of {', '.join(DETECTORS)}, with :N for device N")
    if runtime == "sim" and int(index or 0) >= MOST_SIMULATED:
        raise InputError(f"{option} {name}: expected a simulated device from sim:0 to sim:{MOST_SIMULATED - 1}")
    return runtime, int(index or 0)


def open_device(name: str) -> tuple[Runtime, int]:
    """The runtime and device number of 'cuda:0'.  Raises Absent with the reason, InputError for an unknown name."""
    runtime, index = parse(name)
    # Simulated devices are made to order, so the number asked for is there.
    found = sim.detect(max(index + 1, sim.DEFAULT_COUNT)) if runtime == "sim" else DETECTORS[runtime]()
    if found.runtime is None:
        raise Absent(f"{name}: {found.reason}")
    count = len(found.runtime.devices())
    if index >= count:
        raise Absent(f"{name}: {runtime} has {count} device{'s' if count != 1 else ''}")
    return found.runtime, index
