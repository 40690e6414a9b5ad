"""Cubins: registers, shared and local memory from the ELF sections, loops from nvdisasm or cuobjdump."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from edge0verify.runtime.isa.elf import Elf
from edge0verify.runtime.isa.loops import hot_loop, sass_kind
from edge0verify.runtime.isa.tools import NoTool, nvidia_tool, run_tool
from edge0verify.runtime.isa.types import Instruction, IsaReport, KernelIsa

REGCOUNT, FRAME_SIZE = 0x2F, 0x11  # attributes of .nv.info: a symbol's registers, bytes of its stack frame
BY_SIZE = 4  # format of an attribute whose value has a length of its own
INSTALL = "pip install nvidia-cuda-nvdisasm, or triton, which carries cuobjdump"
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)|^\.text\.([^:\s]+):$|^\s*Function : (\S+)")
_LABEL = re.compile(r"^(\.L_\S+):\s*$")
_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+\{?\s*(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*?);?\s*(?:/\*.*)?$")
_BY_LABEL = re.compile(r"`\((\.L_\w+)\)")
_BY_ADDRESS = re.compile(r"\b0x([0-9a-f]+)\b")
_LOCAL = ("LDL", "STL")


def read(path: Path, elf: Elf) -> IsaReport:
    """Every kernel of a cubin."""
    missing: list[str] = []
    texts = {s.name.removeprefix(".text."): s for s in elf.sections if s.name.startswith(".text.")}
    symbols = elf.symbols()
    registers, frames = _attributes(elf, [s.name for s in symbols])
    shared = {s.name.removeprefix(".nv.shared."): s.size for s in elf.sections if s.name.startswith(".nv.shared.")}
    code, tool = _code(path, missing)
    kernels = []
    for name, section in texts.items():
        lines = code.get(name)
        if code and not lines:
            missing.append(f"{name}: nothing in the disassembly")
        count = registers.get(name)
        if count is None and elf.abi < 8:
            count = section.info >> 24 or None  # where older files have it
        kernels.append(
            KernelIsa(
                name=name,
                vgpr=count,
                lds=shared.get(name, 0),
                scratch=frames.get(name),
                local_ops=None if lines is None else sum(line.name.split(".")[0] in _LOCAL for line in lines),
                code_bytes=section.size,
                loop=hot_loop(lines, sass_kind) if lines else None,
            )
        )
    if texts and not registers:
        missing.append("registers: no attribute in .nv.info")
    arch = f"sm_{elf.flags >> 8 & 0xFF if elf.abi >= 8 else elf.flags & 0xFF}"
    rest = {"kernels": tuple(kernels), "disassembler": tool, "not_extracted": tuple(missing)}
    return IsaReport(path=str(path), kind="cuda", arch=arch, **rest)


def _attributes(elf: Elf, names: Sequence[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Registers and bytes of stack frame by symbol."""
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    section = elf.section(".nv.info")
    for attribute, value in _info(elf.content(section)) if section else ():
        if attribute in (REGCOUNT, FRAME_SIZE) and len(value) >= 8:
            index, number = struct.unpack_from("<II", value)
            if index < len(names):
                (registers if attribute == REGCOUNT else frames)[names[index]] = number
    return registers, frames


def _info(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        if form == BY_SIZE:
            yield attribute, data[at + 4 : at + 4 + size]
            at += 4 + size
        else:
            yield attribute, data[at + 2 : at + 4]
            at += 4


def _code(path: Path, missing: list[str]) -> tuple[dict[str, list[Instruction]], str | None]:
    said = []
    for name, option in (("nvdisasm", "-c"), ("cuobjdump", "-sass")):
        tool = nvidia_tool(name)
        if tool is None:
            continue
        try:
            return parse(run_tool([tool, option, str(path)])), name
        except NoTool as error:
            said.append(str(error))
    missing.append(f"loops: {'; '.join(said) or f'no nvdisasm or cuobjdump ({INSTALL})'}")
    return {}, None


def parse(text: str) -> dict[str, list[Instruction]]:
    """Instructions by kernel from what `nvdisasm -c` or `cuobjdump -sass` prints."""
    found: dict[str, list[Instruction]] = {}
    labels: dict[str, int] = {}
    waiting: list[str] = []
    jumps: list[tuple[str, int, str]] = []
    current = ""
    for line in text.splitlines():
        head = _SECTION.match(line)
        if head:
            current = next(group for group in head.groups() if group)
            found.setdefault(current, [])
            continue
        label = _LABEL.match(line)
        if label:
            waiting.append(label[1])
            continue
        match = _LINE.match(line)
        if match is None or not current:
            continue
        address, name, rest = int(match[1], 16), match[2], match[3]
        for each in waiting:
            labels[each] = address
        waiting.clear()
        target = None
        if name.split(".")[0] in ("BRA", "BRX", "JMP"):
            by_label, by_address = _BY_LABEL.search(rest), _BY_ADDRESS.findall(rest)
            if by_label:
                jumps.append((current, len(found[current]), by_label[1]))
            elif by_address:
                target = int(by_address[-1], 16)
        found[current].append(Instruction(address=address, name=name, target=target))
    for kernel, index, label in jumps:
        if label in labels:
            old = found[kernel][index]
            found[kernel][index] = Instruction(address=old.address, name=old.name, target=labels[label])
    return found
