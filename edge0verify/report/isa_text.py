"""What kernels are made of, as a table, and two builds beside each other."""

from __future__ import annotations

from tabulate import tabulate

from edge0verify.runtime.isa.diff import IsaDiff
from edge0verify.runtime.isa.types import IsaReport, KernelIsa

_HEADERS = ("kernel", "VGPR", "SGPR", "LDS", "scratch", "spills", "loop", "matrix", "dots", "VALU", "loads", "stores", "waits",
            "per\nmatrix")


def isa_text(found: IsaReport) -> str:
    """A line per kernel, and what was not extracted.  Ends without a newline."""
    by = f", loops by {found.disassembler}" if found.disassembler else ""
    parts = [f"{found.path}: {found.arch}, {len(found.kernels)} kernels{by}"]
    if found.kernels:
        lines = [_line(kernel, found.kind) for kernel in found.kernels]
        align = ["left", *["right"] * (len(_HEADERS) - 1)]
        parts.append(tabulate(lines, _HEADERS, tablefmt="simple", disable_numparse=True, colalign=align))
    if found.not_extracted:
        parts.append("\n".join(f"not extracted: {text}" for text in found.not_extracted))
    return "\n\n".join(parts)


def _line(k: KernelIsa, kind: str) -> list[str]:
    spills = _spills(k, kind)
    line = [k.name, _say(k.vgpr), _say(k.sgpr), _say(k.lds), _say(k.scratch), spills]
    if k.loop is None:
        return line + ["-"] * 8
    loop = k.loop
    counts = [loop.instructions, loop.matrix, loop.dot, loop.valu, loop.loads, loop.stores, loop.waits]
    return line + [str(n) for n in counts] + ["-" if loop.per_matrix is None else f"{loop.per_matrix:.1f}"]


def _spills(k: KernelIsa, kind: str) -> str:
    """On AMD vector + scalar registers; on NVIDIA the instructions that touch private memory."""
    if kind == "cuda":
        return _say(k.local_ops)
    if k.vgpr_spills is None and k.sgpr_spills is None:
        return "-"
    return f"{_say(k.vgpr_spills)}+{_say(k.sgpr_spills)}"


def _say(value: int | None) -> str:
    return "-" if value is None else str(value)


def diff_text(before: IsaReport, after: IsaReport, found: IsaDiff) -> str:
    """Every change, those for the worse first."""
    title = f"{before.path} ({before.arch}) -> {after.path} ({after.arch}): {found.compared} figures compared"
    lines = [str(change) for change in sorted(found.changes, key=lambda change: not change.worse)]
    closing = "nothing could be compared" if not found.compared and not found.changes else f"{len(found.worse)} for the worse"
    return "\n".join([title, *(lines or ["no change"]), *found.notes, closing])
