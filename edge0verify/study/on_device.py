"""Where the kernels under study run: this machine's processor, or a device that is opened before anything is measured."""

from __future__ import annotations

from edge0verify.records.manifest import DeviceInfo
from edge0verify.records.status import FAIL, INCONCLUSIVE
from edge0verify.runtime.detect import Absent, parse
from edge0verify.runtime.protocol import DeviceError
from edge0verify.study.environment import CPU, describe_kernels
from edge0verify.variants.device_kernels import kernels_on
from edge0verify.variants.kernels import Kernels

__all__ = ["CPU", "Refused", "check_name", "close_kernels", "describe_kernels", "device_info", "open_kernels", "settled"]

Refused = (Absent, DeviceError)
"""What a device that does not do its part raises."""
FAULTS = (700, 702, 710, *range(714, 720))
"""Codes, the same in CUDA and HIP, of a kernel that ran and went wrong: addresses, alignment, instructions, time, assertions.
Any other (no memory, no image for the card, a launch that is refused) leaves the kernel unproven."""


def check_name(name: str) -> str:
    """The device's name as given; InputError for one that no runtime has."""
    parse(name)
    return name


def open_kernels(name: str, *, threads: int = 1, isa: str | None = None) -> Kernels:
    """The kernels of 'cpu', 'cuda:0', 'sim:1'.  Raises Absent, or DeviceError where its kernels do not load."""
    return Kernels(isa=isa, threads=threads) if name == CPU else kernels_on(name)


def close_kernels(kernels: Kernels) -> None:
    """Ends the processes of simulated devices; a driver's memory is given back with the process."""
    close = getattr(getattr(kernels, "runtime", None), "close", None)
    if close is not None:
        close()


def settled(error: Exception, who: str = "") -> tuple[str, str]:
    """(status, reason) where a device raised `error`: a fault of the kernel is a FAIL, anything else proves nothing."""
    lead = f"{who}: " if who else ""
    if isinstance(error, DeviceError) and (error.code in FAULTS or error.name == "emulator error"):
        return FAIL, f"{lead}the kernel failed on the device: {error}"
    return INCONCLUSIVE, str(error) if isinstance(error, Absent) else f"{lead}the device refused: {error}"


def device_info(kernels: Kernels) -> DeviceInfo:
    """The same for a dump's manifest."""
    found = describe_kernels(kernels)
    name = f"{found['device']}: {found['name']}"
    return DeviceInfo(name=name, arch=found["arch"], driver=found["driver"], link=found.get("link"))
