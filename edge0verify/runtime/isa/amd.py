"""AMD code objects: registers and memory from the metadata note, loops from llvm-objdump."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edge0verify.runtime.isa.elf import Elf
from edge0verify.runtime.isa.loops import amd_kind, hot_loop
from edge0verify.runtime.isa.msgpack import unpack
from edge0verify.runtime.isa.tools import NoTool, llvm_objdump, run_tool
from edge0verify.runtime.isa.types import Instruction, IsaReport, KernelIsa

METADATA = 32  # type of the note AMDGPU
INSTALL = "apt-get install -y --no-install-recommends llvm-19"
_SYMBOL = re.compile(r"^([0-9a-f]{8,16}) <([^>]+)>:$")
_LINE = re.compile(r"^\s+([a-z]\w*)\b.*?//\s*([0-9A-F]{8,16}):.*?(?:<([^>+]+)(?:\+0x([0-9a-f]+))?>)?$")
_BRANCH = ("s_branch", "s_cbranch")


def read(path: Path, elf: Elf) -> IsaReport:
    """Every kernel of a code object."""
    missing: list[str] = []
    metadata = _metadata(elf, missing)
    symbols = {s.name: s for s in elf.symbols() if s.name}
    described = {str(k.get(".name")): k for k in metadata.get("amdhsa.kernels", []) if isinstance(k, Mapping)}
    names = list(described) or [name.removesuffix(".kd") for name in symbols if name.endswith(".kd")]
    code, tool = _code(path, missing)
    kernels = []
    for name in names:
        own, symbol = described.get(name, {}), symbols.get(name)
        lines = code.get(name)
        if code and not lines:
            missing.append(f"{name}: nothing in the disassembly")
        kernels.append(
            KernelIsa(
                name=name,
                vgpr=_number(own, ".vgpr_count"),
                sgpr=_number(own, ".sgpr_count"),
                lds=_number(own, ".group_segment_fixed_size"),
                scratch=_number(own, ".private_segment_fixed_size"),
                vgpr_spills=_number(own, ".vgpr_spill_count"),
                sgpr_spills=_number(own, ".sgpr_spill_count"),
                local_ops=None if lines is None else sum(line.name.startswith("scratch_") for line in lines),
                code_bytes=symbol.size if symbol else None,
                loop=hot_loop(lines, amd_kind) if lines else None,
            )
        )
    target = str(metadata.get("amdhsa.target", ""))
    arch = target.rsplit("-", 1)[-1] or "unknown"
    rest = {"kernels": tuple(kernels), "disassembler": tool, "not_extracted": tuple(missing)}
    return IsaReport(path=str(path), kind="amdgpu", arch=arch, **rest)


def _metadata(elf: Elf, missing: list[str]) -> dict[str, Any]:
    for owner, kind, data in elf.notes():
        if owner == "AMDGPU" and kind == METADATA:
            try:
                found = unpack(data)
            except ValueError as error:
                missing.append(f"registers, LDS, scratch, spills: {error}")
                return {}
            if isinstance(found, dict):
                return found
    missing.append("registers, LDS, scratch, spills: no metadata note")
    return {}


def _number(kernel: Mapping[str, Any], key: str) -> int | None:
    value = kernel.get(key)
    return value if isinstance(value, int) else None


def _code(path: Path, missing: list[str]) -> tuple[dict[str, Sequence[Instruction]], str | None]:
    tool = llvm_objdump()
    if tool is None:
        missing.append(f"loops: no llvm-objdump ({INSTALL})")
        return {}, None
    try:
        return parse(run_tool([tool, "-d", str(path)])), Path(tool).name
    except NoTool as error:
        missing.append(f"loops: {error}")
        return {}, None


def parse(text: str) -> dict[str, list[Instruction]]:
    """Instructions by symbol from what `llvm-objdump -d` prints."""
    starts: dict[str, int] = {}
    found: dict[str, list[Instruction]] = {}
    current: list[Instruction] | None = None
    for line in text.splitlines():
        head = _SYMBOL.match(line)
        if head:
            starts[head[2]] = int(head[1], 16)
            current = found.setdefault(head[2], [])
            continue
        match = _LINE.match(line)
        if match is None or current is None:
            continue
        target = None
        if match[1].startswith(_BRANCH) and match[3] in starts:
            target = starts[match[3]] + int(match[4] or "0", 16)
        current.append(Instruction(address=int(match[2], 16), name=match[1], target=target))
    return found
