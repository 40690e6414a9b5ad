"""Opens a file of device code, whichever it is."""

from __future__ import annotations

import struct
import tempfile
from dataclasses import replace
from pathlib import Path

from edge0verify.records.errors import InputError
from edge0verify.runtime.isa import amd, nvidia
from edge0verify.runtime.isa.elf import EM_AMDGPU, EM_CUDA, MAGIC, Damaged, Elf
from edge0verify.runtime.isa.types import IsaReport

BUNDLE, COMPRESSED = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
EXPECTED = "an AMD code object or a cubin"


def read_isa(path: Path) -> IsaReport:
    """What the file's kernels are made of.  InputError for a file that is no device code, or is damaged."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: expected {EXPECTED}, found: {error.strerror}") from None
    if data.startswith(BUNDLE):
        return _from_bundle(path, data)
    return _read(path, data, path)


def _read(path: Path, data: bytes, shown: Path) -> IsaReport:
    if data.startswith(COMPRESSED):
        raise InputError(f"{shown}: expected {EXPECTED}, found a compressed bundle (clang: --no-offload-compress)")
    if data[:4] != MAGIC:
        raise InputError(f"{shown}: expected {EXPECTED}, found no ELF file")
    try:
        elf = Elf(data)
        if elf.machine not in (EM_AMDGPU, EM_CUDA):
            raise InputError(f"{shown}: expected {EXPECTED}, found ELF of machine {elf.machine} (code of the host?)")
        found = (amd if elf.machine == EM_AMDGPU else nvidia).read(path, elf)
    except (Damaged, struct.error) as error:
        raise InputError(f"{shown}: expected {EXPECTED}, found a damaged one: {error}") from None
    return replace(found, path=str(shown))


def _from_bundle(path: Path, data: bytes) -> IsaReport:
    """The one device's code of a bundle by clang."""
    found = {}
    try:
        (count,) = struct.unpack_from("<Q", data, len(BUNDLE))
        at = len(BUNDLE) + 8
        for _ in range(min(count, 1000)):
            offset, size, length = struct.unpack_from("<QQQ", data, at)
            name = data[at + 24 : at + 24 + length].decode("utf-8", "replace")
            at += 24 + length
            if size and not name.startswith("host"):
                found[name.rsplit("-", 1)[-1]] = data[offset : offset + size]
    except struct.error as error:
        raise InputError(f"{path}: expected {EXPECTED}, found a damaged bundle: {error}") from None
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise InputError(f"{path}: expected a bundle with the code of one device, found {names} (clang: --no-gpu-bundle-output)")
    (code,) = found.values()
    with tempfile.NamedTemporaryFile(prefix="edge0verify-", suffix=".co") as file:
        file.write(code)
        file.flush()
        return _read(Path(file.name), code, path)
