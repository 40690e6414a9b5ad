"""Device code read without a GPU: real objects, doctored ones, files that are none, and what happens without a disassembler."""

import json
import shutil
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from edge0verify.cli.main import run as main
from edge0verify.records.errors import InputError
from edge0verify.runtime.gfx11emu import FLAGS, find_clang
from edge0verify.runtime.isa import nvidia, tools
from edge0verify.runtime.isa.diff import diff
from edge0verify.runtime.isa.elf import EM_AMDGPU
from edge0verify.runtime.isa.loops import amd_kind, hot_body, hot_loop, sass_kind
from edge0verify.runtime.isa.msgpack import unpack
from edge0verify.runtime.isa.read import BUNDLE, read_isa
from edge0verify.runtime.isa.types import Instruction
from edge0verify.runtime.sources import kernel_folder

DATA = Path(__file__).resolve().parents[1] / "data" / "isa"
DOTS, WORSE, CUBIN = DATA / "dots.co", DATA / "worse.co", DATA / "dots.cubin"
needs_llvm = pytest.mark.skipif(tools.llvm_objdump() is None, reason="not run: no llvm-objdump")


@pytest.fixture
def no_tools(monkeypatch):
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    monkeypatch.setattr(tools, "WHEELS", ())
    monkeypatch.setattr(tools.os, "access", lambda *a: False)


@pytest.fixture
def nvdisasm(tmp_path, monkeypatch):
    """A program of that name that prints what the real one printed."""
    fake = tmp_path / "nvdisasm"
    fake.write_text(f"#!/bin/sh\ncat '{DATA / 'dots.nvdisasm.txt'}'\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(nvidia, "nvidia_tool", lambda name: str(fake) if name == "nvdisasm" else None)


# ---- what the files say -------------------------------------------------------------------------------------------------------
def test_registers_of_a_code_object(no_tools):
    found = read_isa(DOTS)
    dots = found.kernel("dots")
    assert (found.kind, found.arch, [k.name for k in found.kernels]) == ("amdgpu", "gfx1100", ["dots", "gone"])
    assert (dots.vgpr, dots.sgpr, dots.lds, dots.scratch, dots.vgpr_spills, dots.sgpr_spills) == (40, 12, 4096, 0, 0, 0)
    assert dots.loop is None and "no llvm-objdump" in found.not_extracted[0]


def test_registers_of_a_cubin(no_tools):
    found = read_isa(CUBIN)
    dots, spills = found.kernel("dots"), found.kernel("spills")
    assert (found.kind, found.arch) == ("cuda", "sm_90")
    assert (dots.vgpr, dots.lds, dots.scratch, dots.sgpr) == (32, 1024 + 512, 0, None)   # 1 KiB is the system's
    assert (spills.vgpr, spills.scratch) == (32, 384)
    assert "no nvdisasm or cuobjdump" in found.not_extracted[0]


@needs_llvm
def test_the_hot_loop_of_a_code_object():
    loop = read_isa(DOTS).kernel("dots").loop
    assert (loop.matrix, loop.loads, loop.stores, loop.dot) == (1, 3, 1, 0)      # a, b and the tile; the tile
    assert loop.per_matrix == loop.instructions and loop.valu >= 16 and loop.waits >= 2
    assert read_isa(DOTS).kernel("gone").loop is None


@needs_llvm
def test_spills_show_in_registers_and_code():
    dots = read_isa(WORSE).kernel("dots")
    assert dots.scratch > 0 and dots.vgpr_spills > 0 and dots.local_ops > 0 and dots.vgpr <= 32


def test_the_hot_loop_of_a_cubin(nvdisasm):
    found = read_isa(CUBIN)
    loop = found.kernel("dots").loop
    assert found.disassembler == "nvdisasm" and found.kernel("dots").local_ops == 0
    assert loop.matrix == 4 and loop.per_matrix == loop.instructions / 4                # unrolled four times
    assert (loop.loads, loop.stores, loop.waits) == (16, 4, 4)
    assert "spills: nothing in the disassembly" in found.not_extracted


def test_both_nvidia_tools_give_the_same_loop():
    by = [nvidia.parse((DATA / f"dots.{name}.txt").read_text())["dots"] for name in ("nvdisasm", "cuobjdump")]
    assert hot_loop(by[0], sass_kind) == hot_loop(by[1], sass_kind)


@pytest.mark.skipif(find_clang() is None, reason="not run: no clang-19 or newer")
@needs_llvm
def test_the_projects_own_kernels(tmp_path):
    out = tmp_path / "kernels.co"
    source = kernel_folder() / "hip" / "kernels.hip"
    command = [find_clang(), *FLAGS, "--offload-arch=gfx1100", f"-I{kernel_folder()}", "-o", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    found = read_isa(out)
    tiles = [k for k in found.kernels if k.name.startswith(("e0_rows_w11", "e0_rows_mmq"))]
    assert len(tiles) == 6 and not found.not_extracted
    for kernel in tiles:
        assert kernel.loop.matrix == 32 and kernel.scratch == 0 and kernel.vgpr < 256
    assert found.kernel("e0_rows_mmvq_q8_0").loop.dot == 8


# ---- loops --------------------------------------------------------------------------------------------------------------------
def lines(*pairs):
    return [Instruction(address=i, name=name, target=target) for i, (name, target) in enumerate(pairs)]


def test_the_longest_body_of_a_backward_branch():
    code = lines(("a", None), ("b", None), ("br", 1), ("c", None), ("br", 0), ("d", None), ("br", 8), ("e", None), ("br", 8))
    assert [c.name for c in hot_body(code, amd_kind)] == ["a", "b", "br", "c", "br"]


def test_a_longer_loop_that_multiplies_nothing_is_not_the_hot_one():
    stage = [("ds_store_b32", None)] * 9 + [("s_cbranch_scc1", 0)]
    code = lines(*stage, ("v_wmma_i32_16x16x16_iu8", None), ("s_cbranch_scc1", 10))
    assert [c.name for c in hot_body(code, amd_kind)] == ["v_wmma_i32_16x16x16_iu8", "s_cbranch_scc1"]


def test_a_branch_to_itself_or_forward_is_no_loop():
    assert hot_body(lines(("a", None), ("br", 2), ("br", 2)), amd_kind) is None
    assert hot_body([], amd_kind) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [("v_wmma_i32_16x16x16_iu8", "matrix"), ("v_dot4_i32_iu8", "dot"), ("v_fma_f32", "valu"), ("v_dual_mul_f32", "valu"),
     ("global_load_b128", "loads"), ("ds_load_b32", "loads"), ("ds_store_b32", "stores"), ("s_waitcnt", "waits"),
     ("s_barrier", "waits"), ("s_add_i32", "scalar"), ("s_load_b64", "scalar"), ("s_delay_alu", "other")],
)  # fmt: skip
def test_kinds_of_amd_instructions(name, kind):
    assert amd_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [("IMMA.16832.S8.S8", "matrix"), ("HGMMA.64x256x16.F32", "matrix"), ("IDP.4A.S8.S8", "dot"), ("FFMA", "valu"), ("IMAD", "valu"),
     ("LDG.E.128", "loads"), ("LDSM.16.M88.4", "loads"), ("UBLKCP", "loads"), ("STS.64", "stores"), ("BAR.SYNC", "waits"),
     ("SYNCS.PHASECHK", "waits"), ("UIADD3", "scalar"), ("BRA", "other")],
)  # fmt: skip
def test_kinds_of_nvidia_instructions(name, kind):
    assert sass_kind(name) == kind


# ---- two builds ---------------------------------------------------------------------------------------------------------------
def test_the_same_file_twice_has_no_change(no_tools):
    found = diff(read_isa(DOTS), read_isa(DOTS))
    assert not found.changes and found.compared >= 12


def test_worse_is_told_by_what(no_tools):
    found = diff(read_isa(DOTS), read_isa(WORSE))
    worse = {(c.kernel, c.what) for c in found.worse}
    assert worse >= {("dots", "scratch"), ("dots", "vgpr_spills"), ("gone", "kernels")}
    better = diff(read_isa(WORSE), read_isa(DOTS))
    assert [c.what for c in better.worse] == ["vgpr"] and "new: gone" in better.notes   # fewer spills cost registers


@needs_llvm
def test_more_instructions_per_matrix_step_are_worse():
    worse = {c.what for c in diff(read_isa(DOTS), read_isa(WORSE)).worse}
    assert "instructions per matrix operation" in worse


@pytest.mark.parametrize(
    ("arguments", "code"),
    [([str(DOTS)], 0), ([str(CUBIN)], 0), ([str(DOTS), "--diff", str(DOTS)], 0), ([str(WORSE), "--diff", str(DOTS)], 1),
     ([str(DOTS), "--diff", str(CUBIN)], 2), ([str(DATA / "dots.hip")], 2), ([str(DATA / "absent.co")], 2)],
)  # fmt: skip
def test_exit_codes(arguments, code, capsys):
    assert main(["isa", *arguments]) == code
    said = capsys.readouterr()
    assert said.out.strip() if code < 2 else len(said.err.strip().splitlines()) == 1


def test_json(capsys):
    assert main(["isa", str(DOTS), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "edge0verify.isa/1" and found["kernels"][0]["vgpr"] == 40
    assert main(["isa", str(WORSE), "--diff", str(DOTS), "--json", "-"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert any(change["worse"] for change in found["changes"]) and found["after"]["path"].endswith("worse.co")


# ---- files that are none, or damaged ------------------------------------------------------------------------------------------
def doctored(tmp_path, change):
    data = bytearray(DOTS.read_bytes())
    change(data)
    path = tmp_path / "doctored.co"
    path.write_bytes(bytes(data))
    return path


def test_code_of_the_host_is_refused():
    with pytest.raises(InputError, match="machine"):
        read_isa(Path(shutil.which("sh")).resolve())


def test_every_cut_is_an_input_error_or_a_report(tmp_path):
    whole = DOTS.read_bytes()
    for size in range(0, len(whole), 97):
        path = tmp_path / "cut.co"
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"cut\.co"):
            read_isa(path)


def test_any_changed_byte_is_an_input_error_or_a_report(tmp_path, no_tools):
    whole = DOTS.read_bytes()
    for at in range(0, len(whole), 11):
        path = tmp_path / "changed.co"
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            read_isa(path)
        except InputError as error:
            assert "changed.co" in str(error)


def test_without_metadata_and_disassembler_nothing_is_extracted(tmp_path, no_tools, capsys):
    def strip(data):
        at = data.find(b"AMDGPU\0")
        data[at : at + 6] = b"NOBODY"

    path = doctored(tmp_path, strip)
    found = read_isa(path)
    assert "no metadata note" in found.not_extracted[0]
    assert all(k.vgpr is None for k in found.kernels)


def test_nothing_at_all_exits_3(tmp_path, capsys):
    header = bytearray(64)
    header[:8] = b"\x7fELF\x02\x01\x01\x40"
    struct.pack_into("<H", header, 18, EM_AMDGPU)
    path = tmp_path / "empty.co"
    path.write_bytes(bytes(header))
    assert main(["isa", str(path)]) == 3
    assert "not extracted" in capsys.readouterr().out
    assert main(["isa", str(path), "--diff", str(path)]) == 3


def test_a_bundle_of_one_device_is_opened(tmp_path, no_tools):
    code, name = DOTS.read_bytes(), b"hip-amdgcn-amd-amdhsa--gfx1100"
    entry = struct.pack("<QQQ", 4096, len(code), len(name)) + name
    head = BUNDLE + struct.pack("<Q", 1) + entry
    path = tmp_path / "bundle.hsaco"
    path.write_bytes(head.ljust(4096, b"\0") + code)
    found = read_isa(path)
    assert found.kernel("dots").vgpr == 40 and found.path == str(path)
    two = BUNDLE + struct.pack("<Q", 2) + entry + entry.replace(b"gfx1100", b"gfx1151")
    path.write_bytes(two.ljust(4096, b"\0") + code)
    with pytest.raises(InputError, match="gfx1100, gfx1151"):
        read_isa(path)


def test_metadata_types():
    assert unpack(b"\x82\xa1a\x01\xa1b\x93\xc3\xc0\xff") == {"a": 1, "b": [True, None, -1]}
    assert unpack(b"\xcd\x01\x00") == 256 and unpack(b"\xd9\x02hi") == "hi" and unpack(b"\xcb" + struct.pack(">d", 1.5)) == 1.5
    for wrong in (b"", b"\xa5ab", b"\xc1", b"\x91" * 100, b"\x81\x90\x01"):
        with pytest.raises(ValueError):
            unpack(wrong)


def test_a_tool_that_fails_is_a_reason(tmp_path, monkeypatch):
    fake = tmp_path / "nvdisasm"
    fake.write_text("#!/bin/sh\necho 'nvdisasm fatal: unknown architecture' >&2\nexit 255\n")
    fake.chmod(0o755)
    monkeypatch.setattr(nvidia, "nvidia_tool", lambda name: str(fake) if name == "nvdisasm" else None)
    found = read_isa(CUBIN)
    assert found.kernel("dots").vgpr == 32 and "unknown architecture" in found.not_extracted[0]
