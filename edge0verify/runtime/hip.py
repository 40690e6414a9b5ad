"""HIP through hip-python, kernels compiled by hipRTC or loaded as code objects built by clang."""

from __future__ import annotations

import ctypes
import importlib.util
from typing import Any

from edge0verify.runtime.gpu import GpuRuntime, Handle, answer, pcie_link
from edge0verify.runtime.image_cache import cached
from edge0verify.runtime.protocol import Buffer, Detected, Device, DeviceError
from edge0verify.runtime.sources import kernel_folder

PORTABLE = '#include "portable/all.h"\n'
OPTIONS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fhip-fp32-correctly-rounded-divide-sqrt", "-mcumode")


def detect() -> Detected:
    """The runtime if a driver and a device are here.  hip-python imports without ROCm; its first call raises then."""
    if importlib.util.find_spec("hip") is None:
        return Detected("hip", None, "hip-python is not installed (pip install edge0verify[hip])")
    try:
        from hip import hip

        code, count = hip.hipGetDeviceCount()
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        return Detected("hip", None, f"hip-python finds no ROCm: {error}")
    if int(code) != 0:
        return Detected("hip", None, f"hipGetDeviceCount: {code.name} ({int(code)})")
    if not count:
        return Detected("hip", None, "hipGetDeviceCount: no device")
    return Detected("hip", HipRuntime())


def compile_source(arch: str, source: str) -> bytes:
    """A code object for `arch` ('gfx1100') by hipRTC.  Raises DeviceError with the compiler's log."""
    from hip import hiprtc

    def check(name: str, *args: Any) -> Any:
        result = answer(hiprtc, name, *args)
        if int(result[0]) != 0:
            raise DeviceError(name, int(result[0]), result[0].name)
        return result[1] if len(result) == 2 else None

    program = check("hiprtcCreateProgram", source.encode(), b"edge0verify.hip", 0, [], [])
    flags = [f"--offload-arch={arch}", f"-I{kernel_folder()}", *OPTIONS]
    (code,) = hiprtc.hiprtcCompileProgram(program, len(flags), [f.encode() for f in flags])
    if int(code) != 0:
        log = bytearray(int(check("hiprtcGetProgramLogSize", program)))
        hiprtc.hiprtcGetProgramLog(program, log)
        raise DeviceError("hiprtcCompileProgram", int(code), code.name, log.decode(errors="replace").strip(" \0\n"))
    image = bytearray(int(check("hiprtcGetCodeSize", program)))
    check("hiprtcGetCode", program, image)
    hiprtc.hiprtcDestroyProgram(program.createRef())
    return bytes(image)


def hiprtc_version() -> str | None:
    """Version of the compiler that is loaded; None where it does not say, and then nothing it makes is kept."""
    from hip import hiprtc

    try:
        code, *version = hiprtc.hiprtcVersion()
    except (RuntimeError, OSError):
        return None
    return ".".join(str(part) for part in version) if int(code) == 0 else None


class HipRuntime(GpuRuntime):
    """AMD devices.  Made by detect(), which knows that a driver answers."""

    name = "hip"
    prefix = "hip"
    _host_alloc, _host_free = "HostMalloc", "HostFree"

    def __init__(self, table: Any = None) -> None:
        if table is None:
            from hip import hip as table
        super().__init__(table)

    def _null_stream(self) -> Any:
        return None

    def _describe(self, index: int) -> Device:
        got = self._call("GetDeviceProperties", index)
        version = int(self._call("DriverGetVersion"))
        text = [v.decode() if isinstance(v, bytes) else str(v) for v in (got.name, got.gcnArchName)]
        pci = f"{got.pciDomainID:04x}:{got.pciBusID:02x}:{got.pciDeviceID:02x}.0"
        return Device(
            self.name,
            index,
            text[0],
            text[1].split(":")[0],
            int(got.totalGlobalMem),
            f"HIP {version}",
            int(got.multiProcessorCount),
            pci,
            pcie_link(pci),
        )

    def _copy_kind(self, kind: int) -> Any:
        return self._table.hipMemcpyKind(kind)

    def _capture_mode(self) -> Any:
        return self._table.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal

    def _attribute(self, name: str, device: int) -> int:
        return int(self._call("DeviceGetAttribute", getattr(self._table.hipDeviceAttribute_t, f"hipDeviceAttribute{name}"), device))

    def _memset(self, buffer: Buffer, value: int, width: int, stream: Any) -> None:
        signed = value - (1 << 32) if width == 4 and value >> 31 else value
        self._call(
            {1: "MemsetD8Async", 2: "MemsetD16Async", 4: "MemsetD32Async"}[width],
            buffer.pointer,
            signed,
            buffer.nbytes // width,
            stream,
        )

    def compile(self, arch: str, source: str | None = None) -> bytes:
        text = PORTABLE if source is None else source
        version = hiprtc_version()
        if version is None:
            return compile_source(arch, text)
        return cached(lambda: compile_source(arch, text), "hiprtc", version, arch, *OPTIONS, text)

    def _load(self, image: bytes) -> Any:
        return self._call("ModuleLoadData", image)

    def kernel(self, module: Handle, name: str) -> Handle:
        return Handle(self._call("ModuleGetFunction", module.value, name.encode()), module.device, name)

    def _launch(self, kernel: Handle, blocks: int, threads: int, args: list, shared: int, stream: Any) -> None:
        addresses = (ctypes.c_void_p * len(args))(*[ctypes.addressof(a) for a in args])
        where = ctypes.addressof(addresses)
        self._call("ModuleLaunchKernel", kernel.value, blocks, 1, 1, threads, 1, 1, shared, stream, where, None)

    def _instantiate(self, graph: Any) -> Any:
        return self._call("GraphInstantiateWithFlags", graph, 0)
