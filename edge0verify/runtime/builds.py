"""What a build was made for: architectures inside binaries, and the options of a CMake build that matter to numbers and cards."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ELF, EM_AMDGPU, EM_CUDA = b"\x7fELF", 224, 190
_AMD = re.compile(rb"amdgcn-amd-amdhsa-(?:-|unknown-)?-?(gfx[0-9a-f]{3,4})")
_CUDA = re.compile(rb"(?:-arch[ =]|\.target )(sm_\d{2,3}a?)\b")
OPTIONS = re.compile(
    r"^(CMAKE_BUILD_TYPE|CMAKE_HIP_ARCHITECTURES|CMAKE_CUDA_ARCHITECTURES|GPU_TARGETS|AMDGPU_TARGETS|\w*(?:HIP|CUDA|ROCM|FLAGS)\w*)"
    r":\w+=(.+)$"
)
UNSAFE = (
    "-ffast-math",
    "-Ofast",
    "--use_fast_math",
    "-use_fast_math",
    "-ffp-contract=fast",
    "-funsafe-math-optimizations",
    "--fmad=true",
)
MOST_FILES = 4000


@dataclass(frozen=True)
class Binary:
    """A file with code for cards, and the architectures in it."""

    path: Path
    archs: tuple[str, ...]


def architectures(path: Path) -> tuple[str, ...]:
    """Architectures of a code object, a cubin, or a library with such inside; () where there are none."""
    try:
        if path.stat().st_size < 64:
            return ()
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] == ELF and struct.unpack_from("<H", data, 18)[0] == EM_CUDA:
                (flags,) = struct.unpack_from("<I", data, 48)
                # ABI 8 and later hold the number in the second byte, older ones in the first.
                return (f"sm_{flags >> 8 & 0xFF if data[8] >= 8 else flags & 0xFF}",)
            found = {m[1].decode() for m in _AMD.finditer(data)} | {m[1].decode() for m in _CUDA.finditer(data)}
    except (OSError, ValueError):
        return ()
    return tuple(sorted(found))


def binaries(folder: Path) -> Iterator[Binary]:
    """Files of a folder (or the one file) with code for cards."""
    files = [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if p.is_file())[:MOST_FILES]
    for path in files:
        if path.suffix in (".so", ".co", ".hsaco", ".cubin", ".fatbin", "") or ".so." in path.name:
            archs = architectures(path)
            if archs:
                yield Binary(path, archs)


def build_options(folder: Path) -> dict[str, str]:
    """Options of CMakeCache.txt in a folder or its build/, those about cards and floating point."""
    for cache in (folder / "CMakeCache.txt", folder / "build" / "CMakeCache.txt"):
        if cache.is_file():
            found = (OPTIONS.match(line) for line in cache.read_text(errors="replace").splitlines())
            return {m[1]: m[2] for m in found if m and m[2].strip()}
    return {}


def unsafe_options(options: dict[str, str]) -> list[str]:
    """'NAME: -ffast-math' for every option that lets the compiler change results."""
    return [f"{name}: {flag}" for name, text in options.items() for flag in UNSAFE if flag in text.split()]
