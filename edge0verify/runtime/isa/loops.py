"""The hot loop of a kernel: the body of a backward branch with most matrix steps, and what stands in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge0verify.runtime.isa.types import Instruction, Loop

KINDS = ("matrix", "dot", "valu", "scalar", "loads", "stores", "waits", "other")
Classify = Callable[[str], str]


def hot_body(code: Sequence[Instruction], classify: Classify) -> Sequence[Instruction] | None:
    """From the target of a backward branch to the branch: the one with most matrix steps, then dots, then instructions; or None.

    A loop that only stages operands can be longer than the one that multiplies. A branch to itself, as stands behind a
    kernel's end, is no loop.
    """
    at = {instruction.address: i for i, instruction in enumerate(code)}
    kinds = [classify(c.name) for c in code]
    bodies = []
    for i, c in enumerate(code):
        first = at.get(c.target) if c.target is not None else None
        if first is not None and first < i:
            body = kinds[first : i + 1]
            bodies.append((body.count("matrix"), body.count("dot"), len(body), first, i))
    if not bodies:
        return None
    *_, first, last = max(bodies)
    return code[first : last + 1]


def hot_loop(code: Sequence[Instruction], classify: Classify) -> Loop | None:
    """That loop with its instructions counted by kind."""
    body = hot_body(code, classify)
    if body is None:
        return None
    counts = dict.fromkeys(KINDS, 0)
    for instruction in body:
        counts[classify(instruction.name)] += 1
    return Loop(instructions=len(body), **counts)


def amd_kind(name: str) -> str:
    """Kind of an AMD instruction by its mnemonic."""
    word = name.lower()
    if word.startswith(("v_wmma", "v_swmmac", "v_mfma", "v_smfmac")):
        return "matrix"
    if word.startswith(("v_dot4", "v_dot8")):
        return "dot"
    if word.startswith("v_"):
        return "valu"
    if word.startswith(("global_load", "buffer_load", "flat_load", "ds_load", "ds_read", "scratch_load", "image_load")):
        return "loads"
    if word.startswith(("global_store", "buffer_store", "flat_store", "ds_store", "ds_write", "scratch_store", "image_store")):
        return "stores"
    if word.startswith(("s_waitcnt", "s_wait_", "s_barrier")):
        return "waits"
    if word.startswith(("s_nop", "s_delay_alu", "s_clause", "s_code_end", "s_sendmsg", "s_endpgm")):
        return "other"
    return "scalar" if word.startswith("s_") else "other"


_SASS_LOADS = ("LDG", "LDS", "LDSM", "LDL", "LD", "LDGSTS", "UBLKCP", "UTMALDG", "UTMACCTL", "LDTM")
_SASS_STORES = ("STG", "STS", "STL", "ST", "STSM", "UTMASTG", "RED", "REDG", "ATOM", "ATOMG", "ATOMS")
_SASS_WAITS = ("BAR", "DEPBAR", "LDGDEPBAR", "SYNCS", "WARPSYNC", "WARPGROUP", "NANOSLEEP", "FENCE", "MEMBAR", "CCTL", "ARRIVES")
_SASS_OTHER = (
    "BRA", "BRX", "BSSY", "BSYNC", "BREAK", "CALL", "RET", "EXIT", "NOP", "YIELD", "ELECT", "JMP", "BPT", "KILL", "BMOV",
)  # fmt: skip
_SASS_SCALAR = ("R2UR", "S2UR", "S2R", "CS2R", "LDC", "VOTEU")


def sass_kind(name: str) -> str:
    """Kind of an NVIDIA instruction by its mnemonic."""
    word = name.split(".")[0]
    if word.endswith(("MMA",)) and word[:-3] in ("I", "H", "D", "Q", "B", "O", "HG", "IG", "QG", "BG", "UTCI", "UTCH", "UTCQ"):
        return "matrix"
    if word == "IDP":
        return "dot"
    for names, kind in ((_SASS_LOADS, "loads"), (_SASS_STORES, "stores"), (_SASS_WAITS, "waits"), (_SASS_OTHER, "other")):
        if word in names:
            return kind
    return "scalar" if word in _SASS_SCALAR or word.startswith("U") else "valu"
