"""What is read from one file of device code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = "edge0verify.isa/1"


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One line of a disassembly; `target` is where a branch goes."""

    address: int
    name: str
    target: int | None = None


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A loop's body: how many instructions of each kind stand in it, each counted once however often it runs."""

    instructions: int
    matrix: int
    """Matrix steps: WMMA, MFMA, IMMA, HGMMA and their like."""
    dot: int
    """Dots of four bytes: v_dot4, IDP."""
    valu: int
    """Other vector arithmetic, moves and conversions."""
    scalar: int
    loads: int
    """From memory of any kind but scalar and constant, asynchronous copies included."""
    stores: int
    waits: int
    """For counters and barriers; an instruction that only names a delay is among `other`."""
    other: int

    @property
    def per_matrix(self) -> float | None:
        """Instructions of a matrix step; None without one."""
        return self.instructions / self.matrix if self.matrix else None


@dataclass(frozen=True, kw_only=True)
class KernelIsa:
    """One kernel.  A field that the file or the tools here do not tell is None."""

    name: str
    vgpr: int | None = None
    """Vector registers of a lane; on NVIDIA its registers."""
    sgpr: int | None = None
    lds: int | None = None
    """Bytes of shared memory that the kernel declares; what a launch adds is not in the file."""
    scratch: int | None = None
    """Bytes of private memory of a lane (a stack frame, spills)."""
    vgpr_spills: int | None = None
    sgpr_spills: int | None = None
    local_ops: int | None = None
    """Loads and stores of private memory in the code."""
    code_bytes: int | None = None
    loop: Loop | None = None
    """The body of a backward branch with most matrix steps, then dots, then instructions."""

    @property
    def told(self) -> bool:
        """Whether anything but the name was extracted."""
        return any(value is not None for key, value in asdict(self).items() if key != "name")


@dataclass(frozen=True, kw_only=True)
class IsaReport:
    """One file."""

    path: str
    kind: str
    """'amdgpu' or 'cuda'."""
    arch: str
    kernels: tuple[KernelIsa, ...]
    disassembler: str | None
    """The tool that the loops come from."""
    not_extracted: tuple[str, ...] = ()
    """What is missing, and why."""

    def kernel(self, name: str) -> KernelIsa | None:
        return next((k for k in self.kernels if k.name == name), None)

    def to_json(self) -> dict[str, Any]:
        data = {"schema": SCHEMA, **asdict(self)}
        for kernel, out in zip(self.kernels, data["kernels"]):
            if kernel.loop is not None:
                out["loop"]["per_matrix"] = kernel.loop.per_matrix
        return data

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"
