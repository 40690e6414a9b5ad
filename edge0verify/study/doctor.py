"""What is built and found on this machine, and what each absence means.

Drivers are asked in a process of their own with a time limit: a broken one may hang or take its process with it.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata

from edge0verify import __version__

TIMEOUT_S = 20.0

@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked for."""

    group: str
    name: str
    found: bool
    detail: str
    """What was found, or why nothing was."""
    means: str
    """What its absence means."""
    required: bool = False


def findings(*, timeout_s: float = TIMEOUT_S) -> Iterator[Finding]:
    """Everything, in the order it is printed."""
    yield from _native_modules()
    yield from _runtimes(timeout_s)
    yield from _tools()
    yield from _packages()


_NATIVE = (
    ("edge0verify.variants._kernels", "kernels of the stages", "no variant can run: reinstall, with g++ at hand"),
    ("edge0verify.engine._native", "engine", "no prompt can run: reinstall, with g++ at hand"),
    ("edge0verify.study._oracle", "own oracles", "nothing can be judged: reinstall, with g++ at hand"),
    ("edge0verify.dump._onepass", "one-pass comparison", "large dumps cannot be compared in one pass: reinstall, with g++ at hand"),
    ("edge0verify.variants._mutants", "kernels with planted faults", "selftest cannot plant compiled faults"),
)


def _native_modules() -> Iterator[Finding]:
    for module, what, means in _NATIVE:
        try:
            found = importlib.import_module(module)
        except ImportError as error:
            needed = not module.endswith("_mutants")
            yield Finding(group="built", name=what, found=False, detail=str(error), means=means, required=needed)
            continue
        yield Finding(group="built", name=what, found=True, detail=_instruction_sets(found), means=means)


def _instruction_sets(module) -> str:
    """'baseline, avx2, avx512; uses avx512', or those that this processor cannot run."""
    built = list(module.isas()) if hasattr(module, "isas") else []
    usable = list(module.usable_isas()) if hasattr(module, "usable_isas") else built
    text = ", ".join(built) or "present"
    idle = [name for name in built if name not in usable]
    if idle:
        text += f"; not on this processor: {', '.join(idle)}"
    return text + (f"; uses {module.isa()}" if hasattr(module, "isa") else "")


_MEANS = {
    "cpu": "kernels cannot be launched through the device protocol",
    "cuda": "CUDA kernels are not run: comparisons on cuda:N are INCONCLUSIVE",
    "hip": "HIP kernels are not run: comparisons on hip:N are INCONCLUSIVE",
    "gfx11emu": "AMD code objects are not executed here; the same sources still run on the CPU",
}


def _runtimes(timeout_s: float) -> Iterator[Finding]:
    from edge0verify.runtime.detect import DETECTORS
    from edge0verify.runtime.survey import survey

    for name in DETECTORS:
        found = survey(name, timeout_s=timeout_s)
        text = "; ".join(f"{d} {d.name} ({d.arch}, {d.driver})" for d in found.devices)
        means = _MEANS.get(name, f"comparisons on {name} are INCONCLUSIVE")
        yield Finding(group="devices", name=name, found=bool(found.devices), detail=text or str(found.reason), means=means)


def _clang() -> str | None:
    from edge0verify.runtime.gfx11emu import find_clang

    return find_clang()


def _nvrtc() -> str | None:
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return None
    code = "from cuda.bindings import nvrtc; r = nvrtc.nvrtcVersion(); print('NVRTC %d.%d' % r[1:]) if not int(r[0]) else exit(1)"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _which(*names: str) -> Callable[[], str | None]:
    return lambda: next((found for name in names if (found := shutil.which(name))), None)


_TOOLS: tuple[tuple[str, str, Callable[[], str | None], str], ...] = (
    ("compilers", "g++", _which("g++", "c++"), "the package cannot be rebuilt, nor a user's kernel"),
    ("compilers", "NVRTC", _nvrtc, "no CUDA kernel can be compiled (pip install edge0verify[cuda])"),
    ("compilers", "nvcc", _which("nvcc"), "nothing: NVRTC compiles the CUDA kernels"),
    ("compilers", "hipcc", _which("hipcc"), "nothing: hipRTC or clang compiles the HIP kernels"),
    ("compilers", "clang 19+", _clang, "no AMD code object can be built here (apt-get install clang-19 lld-19 llvm-19)"),
    ("compilers", "arm64 g++", _which("aarch64-linux-gnu-g++"), "the arm64 build is not checked on this machine"),
    ("emulators", "qemu arm64", _which("qemu-aarch64-static", "qemu-aarch64"), "arm64 results are not compared with those here"),
    ("tools", "git", _which("git"), "dumps carry no commit, gate records cannot be covered"),
    ("tools", "h5dump", _which("h5dump"), "nothing: `show` prints what a dump holds"),
    ("tools", "nvidia-smi", _which("nvidia-smi"), "NVIDIA clocks and throttling are not recorded"),
    ("tools", "rocm-smi", _which("rocm-smi"), "AMD clocks and throttling are not recorded"),
)


def _tools() -> Iterator[Finding]:
    for group, name, look, means in _TOOLS:
        where = look()
        yield Finding(group=group, name=name, found=where is not None, detail=where or "not found", means=means)


_PACKAGES = (
    ("numpy", "nothing works", True),
    ("h5py", "no dump can be read or written", True),
    ("cuda-bindings", "no NVIDIA device is used (pip install edge0verify[cuda])", False),
    ("hip-python", "no AMD device is used (pip install edge0verify[hip])", False),
    ("torch", "dumps from PyTorch hooks and tensors in memory are not taken (pip install edge0verify[torch])", False),
    ("libggml-python", "benchmarks beside ggml are not run (pip install edge0verify[bench])", False),
)


def _packages() -> Iterator[Finding]:
    yield Finding(group="packages", name="edge0verify", found=True, detail=__version__, means="")
    for name, means, required in _PACKAGES:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = None
        detail = version or "not installed"
        yield Finding(group="packages", name=name, found=version is not None, detail=detail, means=means, required=required)
