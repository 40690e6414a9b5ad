"""What a run was made on: kept in every verdict, so that a number can be traced to its machine."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import numpy as np

from edge0verify import __version__
from edge0verify.variants.kernels import Kernels


def processor() -> str:
    """The processor's name as the kernel gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def environment(kernels: Kernels, threads: int) -> dict:
    """Facts of this run as plain values; nothing here decides anything."""
    return {
        "edge0verify": __version__,
        "kernels_sha256": kernels.source_sha256(),
        "binary_sha256": kernels.binary_sha256(),
        "device": "cpu",
        "isa": kernels.isa,
        "threads": threads,
        "machine": platform.machine(),
        "processor": processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": metadata.version("h5py"),
    }
