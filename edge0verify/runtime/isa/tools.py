"""Disassemblers that are here: LLVM's for AMD, nvdisasm or cuobjdump for NVIDIA."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

TIMEOUT_S = 120.0
LLVM = ("llvm-objdump", *(f"llvm-objdump-{version}" for version in range(30, 16, -1)))
WHEELS = (
    "nvidia/cu13/bin",
    "nvidia/cuda_nvcc/bin",
    "nvidia/cuda_nvdisasm/bin",
    "nvidia/cuda_cuobjdump/bin",
    "triton/backends/nvidia/bin",
)
"""Where Python packages put NVIDIA's tools, below site-packages."""


class NoTool(RuntimeError):
    """No disassembler that reads the file; the message names what was looked for, or what the tool said."""


def llvm_objdump() -> str | None:
    """The newest llvm-objdump with a version in its name, then the plain one."""
    return next((found for name in (*LLVM[1:], LLVM[0]) if (found := shutil.which(name))), None)


def nvidia_tool(name: str) -> str | None:
    """nvdisasm or cuobjdump: on PATH, below CUDA_HOME, or in a Python package."""
    return next(_places(name), None)


def _places(name: str) -> Iterator[str]:
    found = shutil.which(name)
    if found:
        yield found
    folders = [Path(base) / "bin" for base in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if base]
    folders += [Path(sysconfig.get_path("purelib")) / wheel for wheel in WHEELS]
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            yield str(folder / name)


def run_tool(argv: Sequence[str]) -> str:
    """What the tool prints.  Raises NoTool with its own words where it fails or does not end."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoTool(f"{Path(argv[0]).name}: {error}") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NoTool(f"{Path(argv[0]).name} exited with {done.returncode}{': ' + lines[0] if lines else ''}")
    return done.stdout
