"""Two builds of the same kernels: what got worse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edge0verify.runtime.isa.types import IsaReport, KernelIsa

SPILLS = ("scratch", "vgpr_spills", "sgpr_spills", "local_ops")
"""Any more of these is worse: each is traffic to memory that registers should have saved."""
OCCUPANCY = ("vgpr", "lds")
"""More of these leaves room for fewer waves."""
OTHER = ("sgpr", "code_bytes")
"""Shown, and no regression: they limit nothing by themselves."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One figure of one kernel that differs."""

    kernel: str
    what: str
    before: float | None
    after: float | None
    worse: bool

    def __str__(self) -> str:
        def say(value: float | None) -> str:
            return "-" if value is None else f"{value:.4g}"

        return f"{self.kernel}: {self.what} {say(self.before)} -> {say(self.after)}{'  WORSE' if self.worse else ''}"


@dataclass(frozen=True, kw_only=True)
class IsaDiff:
    """`compared` counts figures that both files tell; 0 means that nothing was proven."""

    changes: tuple[Change, ...]
    compared: int
    notes: tuple[str, ...]

    @property
    def worse(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.worse)


def diff(before: IsaReport, after: IsaReport) -> IsaDiff:
    """Every figure that both tell, kernel by kernel.  A kernel that is gone is worse, a new one is a note."""
    changes: list[Change] = []
    notes: list[str] = []
    compared = 0
    for old in before.kernels:
        new = after.kernel(old.name)
        if new is None:
            changes.append(Change(kernel=old.name, what="kernels", before=1, after=0, worse=True))
            continue
        for what, was, now, worse in _figures(old, new):
            if was is None and now is None:
                continue
            if was is None or now is None:
                notes.append(f"{old.name}: {what} is told by one file alone")
                continue
            compared += 1
            if was != now:
                changes.append(Change(kernel=old.name, what=what, before=was, after=now, worse=worse(was, now)))
    fresh = [k.name for k in after.kernels if before.kernel(k.name) is None]
    notes += [f"new: {', '.join(fresh)}"] if fresh else []
    notes += [f"{before.arch} beside {after.arch}"] if before.arch != after.arch else []
    return IsaDiff(changes=tuple(changes), compared=compared, notes=tuple(notes))


Figure = tuple[str, float | None, float | None, Callable[[float, float], bool]]


def _figures(old: KernelIsa, new: KernelIsa) -> Iterator[Figure]:
    def more(was: float, now: float) -> bool:
        return now > was

    def never(was: float, now: float) -> bool:
        return False

    for names, worse in ((SPILLS, more), (OCCUPANCY, more), (OTHER, never)):
        for name in names:
            yield name, getattr(old, name), getattr(new, name), worse
    a, b = old.loop, new.loop
    if a is None or b is None:
        if a is not b:
            yield "loop", int(a is not None), int(b is not None), never
        return
    yield "matrix operations in the loop", a.matrix, b.matrix, lambda was, now: now == 0
    if a.matrix and b.matrix:
        yield "instructions per matrix operation", a.per_matrix, b.per_matrix, more
        for name in ("valu", "loads", "waits"):
            yield f"{name} per matrix operation", getattr(a, name) / a.matrix, getattr(b, name) / b.matrix, never
    else:
        yield "instructions in the loop", a.instructions, b.instructions, more
        yield "waits in the loop", a.waits, b.waits, never
