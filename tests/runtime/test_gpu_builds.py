"""GPU builds without a GPU, where the compilers are: every kernel is in them, and on AMD none spills to scratch memory."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from edge0verify.runtime.gfx11emu import FLAGS, CodeObject, find_clang
from edge0verify.runtime.protocol import DeviceError
from edge0verify.runtime.sources import kernel_folder

KERNELS = [
    "e0_exp",
    "e0_group_pairs",
    *(f"e0_{a}_{b}" for a in ("quantise", "swiglu") for b in ("mmvq", "mmq")),
    *(f"e0_sum_{o}" for o in ("route", "expert", "f64")),
    *(f"e0_rows_{v}_{f}" for v in ("ref", "mmvq", "mmq", "w11") for f in ("q8_0", "iq4_nl", "q3_k")),
    "e0_rows_ref_q4_0",
    "e0_rows_mmvq_q4_0",
]


@pytest.mark.skipif(find_clang() is None, reason="not run: no clang-19 or newer")
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1151"])
def test_code_object(tmp_path, arch):
    source, out = kernel_folder() / "hip" / "kernels.hip", tmp_path / "kernels.co"
    command = [find_clang(), *FLAGS, f"--offload-arch={arch}", f"-I{kernel_folder()}", "-o", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    loaded = CodeObject(out.read_bytes())
    for name in KERNELS:
        _, size, lds, scratch, arguments, _ = loaded.descriptor(name)
        assert size and arguments and scratch == 0 and lds <= 64 << 10, name
    with pytest.raises(DeviceError, match="not found"):
        loaded.descriptor("e0_no_such_kernel")


def test_a_file_that_is_no_code_object_is_refused():
    with pytest.raises(DeviceError, match="not an AMDGPU code object"):
        CodeObject(Path(shutil.which("python3") or __file__).read_bytes())


@pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None or importlib.util.find_spec("nvidia") is None,
    reason="not run: cuda-bindings and nvidia-cuda-nvrtc are not installed",
)
def test_cubin():
    from edge0verify.runtime.cuda import compile_source
    from edge0verify.runtime.tuned import TUNED

    image = compile_source("sm_90", TUNED)
    wanted = [*KERNELS, "e0_tile_w11", "e0_tile_w11_super", "e0_narrow_w11", "e0_row_mmvq_q8_0_1", "e0_row_mmvq_q3_k_8"]
    assert [n for n in wanted if n.encode() not in image] == []


@pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None or importlib.util.find_spec("nvidia") is None,
    reason="not run: cuda-bindings and nvidia-cuda-nvrtc are not installed",
)
def test_a_compiler_error_carries_the_log():
    from edge0verify.runtime.cuda import compile_source

    with pytest.raises(DeviceError, match="no_such_name"):
        compile_source("sm_90", "__global__ void k() { no_such_name(); }")
