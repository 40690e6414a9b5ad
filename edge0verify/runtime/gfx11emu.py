"""AMD gfx11 code objects without an AMD card, in the RDNA3 emulator of a tinygrad checkout that the user names.

    EDGE0VERIFY_TINYGRAD=~/tinygrad edge0verify list devices

The checkout (MIT licence, https://github.com/tinygrad/tinygrad) holds the emulator under test/mockgpu/amd; nothing of it is part of
this project.  It executes instructions one wave after another: results are checked, races and timing are not.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edge0verify.runtime.cpu import HostMemory
from edge0verify.runtime.protocol import Argument, Buffer, Detected, Device, DeviceError
from edge0verify.runtime.sources import kernel_folder

VARIABLE = "EDGE0VERIFY_TINYGRAD"
FLAGS = (
    "-x",
    "hip",
    "--cuda-device-only",
    "--no-gpu-bundle-output",
    "-nogpuinc",
    "-nogpulib",
    "-O3",
    "-std=c++17",
    "-ffp-contract=off",
    "-fhip-fp32-correctly-rounded-divide-sqrt",
    "-mcumode",
    "-w",
)


def detect(checkout: str | None = None) -> Detected:
    """The runtime if the option or variable names a checkout with the emulator and a clang that builds gfx1100 is here."""
    named = checkout or os.environ.get(VARIABLE)
    if not named:
        return Detected("gfx11emu", None, f"{VARIABLE} names no tinygrad checkout")
    if not (Path(named) / "test" / "mockgpu" / "amd" / "emu.py").is_file():
        return Detected("gfx11emu", None, f"{named}: no test/mockgpu/amd/emu.py")
    if not find_clang():
        return Detected("gfx11emu", None, "no clang-19 (apt-get install -y --no-install-recommends clang-19 lld-19 llvm-19)")
    return Detected("gfx11emu", Gfx11Emulator(Path(named)))


def find_clang() -> str | None:
    """clang 19 or newer under its versioned name; plain `clang` would make the emulator flush subnormals."""
    return next((found for v in range(30, 18, -1) if (found := shutil.which(f"clang-{v}"))), None)


class CodeObject:
    """A loaded AMDGPU ELF file: its segments in executable order, and the kernel descriptors."""

    def __init__(self, image: bytes) -> None:
        if image[:4] != b"\x7fELF" or struct.unpack_from("<H", image, 18)[0] != 224:
            raise DeviceError("load", 209, "no binary for this device", "not an AMDGPU code object")
        self._image = image
        segments = [s for s in self._segments() if s[0] == 1]
        end = max(address + memory for _, _, address, _, memory in segments)
        self._memory = ctypes.create_string_buffer(end + 8192)
        self.base = (ctypes.addressof(self._memory) + 4095) & ~4095
        for _, offset, address, size, _ in segments:
            ctypes.memmove(self.base + address, image[offset : offset + size], size)
        self.symbols = dict(self._symbols())

    def _segments(self):
        (start,) = struct.unpack_from("<Q", self._image, 32)
        size, count = struct.unpack_from("<HH", self._image, 54)
        for i in range(count):
            kind, _, offset, address, _, in_file, in_memory, _ = struct.unpack_from("<IIQQQQQQ", self._image, start + i * size)
            yield kind, offset, address, in_file, in_memory

    def _symbols(self):
        (start,) = struct.unpack_from("<Q", self._image, 40)
        size, count = struct.unpack_from("<HH", self._image, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", self._image, start + i * size) for i in range(count)]
        for header in headers:
            if header[1] != 11:  # dynamic symbols
                continue
            strings = headers[header[6]][4]
            for at in range(header[4], header[4] + header[5], 24):
                name, _, _, _, value, length = struct.unpack_from("<IBBHQQ", self._image, at)
                begin = strings + name
                yield self._image[begin : self._image.index(b"\0", begin)].decode(), (value, length)

    def descriptor(self, kernel: str) -> tuple[int, int, int, int, int, int]:
        """Address of the code, its size, LDS, scratch and argument bytes, and the RSRC2 word with the LDS size set."""
        if kernel + ".kd" not in self.symbols:
            raise DeviceError("get kernel", 500, "not found", kernel)
        at = self.base + self.symbols[kernel + ".kd"][0]
        raw = ctypes.string_at(at, 64)
        lds, scratch, arguments = struct.unpack_from("<III", raw, 0)
        (entry,) = struct.unpack_from("<q", raw, 16)
        rsrc2, properties = struct.unpack_from("<IH", raw, 52)
        if properties & 0x77:  # anything but the pointer to the arguments
            raise DeviceError("get kernel", 801, "not supported", f"{kernel} needs user registers {properties:#x}")
        return at + entry, self.symbols[kernel][1], lds, scratch, arguments, rsrc2 | ((lds + 511) // 512) << 15


class Gfx11Emulator(HostMemory):
    """One emulated gfx1100 over host memory."""

    name = "gfx11emu"

    def __init__(self, checkout: Path) -> None:
        super().__init__()
        self._checkout = checkout
        self._emulator: Any = None

    def devices(self) -> tuple[Device, ...]:
        return (Device(self.name, 0, "emulated RDNA3", "gfx1100", None, f"emulator in {self._checkout}"),)

    def _load_emulator(self) -> Any:
        if self._emulator is None:
            os.environ.setdefault("DEV", "CPU")
            os.environ.setdefault("CC", str(find_clang()))
            for name in [n for n in sys.modules if n == "test" or n.startswith("test.")]:
                del sys.modules[name]  # the standard library has a package of that name too
            sys.path.insert(0, str(self._checkout))
            try:
                self._emulator = importlib.import_module("test.mockgpu.amd.emu")
            except ImportError as error:
                raise DeviceError("load emulator", 1, "import failed", str(error)) from error
            finally:
                sys.path.remove(str(self._checkout))
        return self._emulator

    def load(self, device: int, source: str | bytes | None = None) -> CodeObject:
        self._check(device)
        return CodeObject(source if isinstance(source, bytes) else self.compile("gfx1100", source))

    def compile(self, arch: str, source: str | None = None) -> bytes:
        """A code object by clang; the project's kernels where source is None."""
        with tempfile.TemporaryDirectory() as folder:
            text, out = Path(folder) / "kernels.hip", Path(folder) / "kernels.co"
            text.write_text('#include "portable/all.h"\n' if source is None else source)
            done = subprocess.run(
                [str(find_clang()), *FLAGS, f"--offload-arch={arch}", f"-I{kernel_folder()}", "-o", str(out), str(text)],
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise DeviceError("compile", done.returncode, "compiler error", done.stderr.strip())
            return out.read_bytes()

    def kernel(self, module: CodeObject, name: str) -> tuple[CodeObject, str]:
        module.descriptor(name)
        return module, name

    def launch(
        self,
        kernel: tuple[CodeObject, str],
        blocks: int,
        threads: int,
        args: Sequence[Argument],
        *,
        shared: int = 0,
        stream: Any = None,
    ) -> None:
        module, name = kernel
        code, size, _, scratch, arguments, rsrc2 = module.descriptor(name)
        packed = ctypes.create_string_buffer(max(arguments, 64))
        at = 0
        for a in args:
            value = ctypes.c_void_p(a.pointer if isinstance(a, Buffer) else None) if a is None or isinstance(a, Buffer) else a
            width = ctypes.sizeof(value)
            at = (at + width - 1) // width * width
            ctypes.memmove(ctypes.addressof(packed) + at, ctypes.addressof(value), width)
            at += width
        if at > max(arguments, 64):
            raise DeviceError(f"launch {name}", -2, "wrong number of arguments", f"{at} bytes for {arguments}")
        result = self._load_emulator().run_asm(
            code, size, blocks, 1, 1, threads, 1, 1, ctypes.addressof(packed), rsrc2=rsrc2, scratch_size=scratch, arch="rdna3"
        )
        if result:
            raise DeviceError(f"launch {name}", int(result), "emulator error")
