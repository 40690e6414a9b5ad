"""CUDA through cuda.bindings: runtime and driver API, kernels compiled by NVRTC."""

from __future__ import annotations

import ctypes
import importlib.util
from typing import Any

from edge0verify.runtime.gpu import GpuRuntime, Handle, answer, pcie_link
from edge0verify.runtime.image_cache import cached
from edge0verify.runtime.protocol import Buffer, Detected, Device, DeviceError
from edge0verify.runtime.sources import kernel_folder

# Each float operation is one IEEE rounding: no contraction, true division, subnormals kept.
IEEE = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false")
PORTABLE = '#include "portable/all.h"\n'


def detect() -> Detected:
    """The runtime if a driver and a device are here.  The count is asked first: without a driver later calls can hang."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return Detected("cuda", None, "cuda.bindings is not installed (pip install edge0verify[cuda])")
    try:
        from cuda.bindings import runtime

        code, count = runtime.cudaGetDeviceCount()
    except (ImportError, RuntimeError, OSError) as error:
        return Detected("cuda", None, f"cuda.bindings does not load: {error}")
    if int(code) != 0:
        return Detected("cuda", None, f"cudaGetDeviceCount: {code.name} ({int(code)})")
    if not count:
        return Detected("cuda", None, "cudaGetDeviceCount: no device")
    return Detected("cuda", CudaRuntime())


def compile_source(arch: str, source: str, *, options: tuple[str, ...] = ()) -> bytes:
    """A cubin for `arch` ('sm_90') from CUDA C++; needs NVRTC, no GPU.  Raises DeviceError with the compiler's log."""
    from cuda.bindings import nvrtc

    def check(name: str, *args: Any) -> Any:
        result = answer(nvrtc, name, *args)
        if int(result[0]) != 0:
            raise DeviceError(name, int(result[0]), result[0].name)
        return result[1] if len(result) == 2 else None

    program = check("nvrtcCreateProgram", source.encode(), b"edge0verify.cu", 0, [], [])
    flags = [f"--gpu-architecture={arch}", "--std=c++17", f"-I{kernel_folder()}", *IEEE, *options]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(flags), [f.encode() for f in flags])
    if int(code) != 0:
        log = b" " * check("nvrtcGetProgramLogSize", program)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise DeviceError("nvrtcCompileProgram", int(code), code.name, log.decode(errors="replace").strip(" \0\n"))
    image = b" " * check("nvrtcGetCUBINSize", program)
    check("nvrtcGetCUBIN", program, image)
    nvrtc.nvrtcDestroyProgram(program)
    return image


def nvrtc_version() -> str:
    """'13.0' of the compiler that is loaded."""
    from cuda.bindings import nvrtc

    return ".".join(str(part) for part in answer(nvrtc, "nvrtcVersion")[1:])


class CudaRuntime(GpuRuntime):
    """NVIDIA devices.  Made by detect(), which knows that a driver answers."""

    name = "cuda"
    prefix = "cuda"
    _host_alloc, _host_free = "HostAlloc", "FreeHost"

    def __init__(self, table: Any = None) -> None:
        from cuda.bindings import driver, runtime

        super().__init__(table or runtime)
        self._driver = driver
        self._runtime = runtime

    def _describe(self, index: int) -> Device:
        got = self._call("GetDeviceProperties", index)
        version = int(self._call("DriverGetVersion"))
        pci = self._call("DeviceGetPCIBusId", 32, index)
        pci = (pci if isinstance(pci, str) else bytes(pci).split(b"\0")[0].decode()).lower()
        name = got.name if isinstance(got.name, str) else bytes(got.name).split(b"\0")[0].decode()
        return Device(
            self.name,
            index,
            name,
            f"sm_{got.major}{got.minor}",
            int(got.totalGlobalMem),
            f"CUDA {version // 1000}.{version % 1000 // 10}",
            int(got.multiProcessorCount),
            pci,
            pcie_link(pci),
        )

    def _copy_kind(self, kind: int) -> Any:
        return self._runtime.cudaMemcpyKind(kind)

    def _capture_mode(self) -> Any:
        return self._runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal

    def _attribute(self, name: str, device: int) -> int:
        return int(self._call("DeviceGetAttribute", getattr(self._runtime.cudaDeviceAttr, f"cudaDevAttr{name}"), device))

    def _memset(self, buffer: Buffer, value: int, width: int, stream: Any) -> None:
        name = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}[width]
        self._run(self._driver, name, buffer.pointer, value, buffer.nbytes // width, int(stream))

    def compile(self, arch: str, source: str | None = None, *, options: tuple[str, ...] = ()) -> bytes:
        text = PORTABLE if source is None else source
        facts = ("nvrtc", nvrtc_version(), arch, *IEEE, *options, text)
        return cached(lambda: compile_source(arch, text, options=options), *facts)

    def _load(self, image: bytes) -> Any:
        self._call("Free", 0)  # makes the device's primary context the current one
        return self._run(self._driver, "cuModuleLoadData", image)

    def kernel(self, module: Handle, name: str) -> Handle:
        return Handle(self._run(self._driver, "cuModuleGetFunction", module.value, name.encode()), module.device, name)

    def reserve_shared(self, kernel: Handle, nbytes: int) -> None:
        """Allows the kernel that much dynamic shared memory (more than 48 KB must be asked for)."""
        attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._run(self._driver, "cuFuncSetAttribute", kernel.value, attribute, nbytes)

    def _launch(self, kernel: Handle, blocks: int, threads: int, args: list, shared: int, stream: Any) -> None:
        addresses = (ctypes.c_void_p * len(args))(*[ctypes.addressof(a) for a in args])
        self._run(
            self._driver,
            "cuLaunchKernel",
            kernel.value,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            shared,
            int(stream),
            ctypes.addressof(addresses),
            0,
        )
