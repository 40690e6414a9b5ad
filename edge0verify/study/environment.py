"""What a run was made on: kept in every verdict, so that a number can be traced to its machine."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from edge0verify import __version__
from edge0verify.variants.device_kernels import DeviceKernels
from edge0verify.variants.kernels import Kernels

CPU = "cpu"


def processor() -> str:
    """The processor's name as the kernel gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe_kernels(kernels: Kernels) -> dict[str, Any]:
    """Name, architecture and driver of what the kernels run on; on CUDA also which products had no tuned form here."""
    if not isinstance(kernels, DeviceKernels):
        system = f"{platform.system()} {platform.release()}"
        return {"device": CPU, "name": processor(), "arch": f"{platform.machine()} {kernels.isa}", "driver": system}
    device = kernels.here                              # asked once: a device that failed answers no more
    found = {"device": str(device), "name": device.name, "arch": device.arch, "driver": device.driver, "link": device.link}
    if kernels.tuned:
        found["portable_forms"] = dict(sorted(kernels.ops.fell_back.items()))
    return found


def environment(kernels: Kernels, threads: int) -> dict:
    """Facts of this run as plain values; nothing here decides anything."""
    device = describe_kernels(kernels)
    return {
        "edge0verify": __version__,
        "kernels_sha256": kernels.source_sha256(),
        "binary_sha256": kernels.binary_sha256(),
        "device": device["device"],
        **({} if device["device"] == CPU else {"devices": {"kernels": device}}),
        "isa": kernels.isa,
        "threads": threads,
        "machine": platform.machine(),
        "processor": processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": metadata.version("h5py"),
    }
