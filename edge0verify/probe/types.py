"""What a memory probe is asked and what it answers; all of it goes through JSON between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

CONTROL = "host-staged"
OWN_MEMSET = "memset by owner"
NO_HOST_ATOMICS = "no atomics on host memory"
OPERATIONS = {
    "device": (CONTROL, "copy", "peer copy", OWN_MEMSET, "event wait", "memset", "atomics", "kernel write", "kernel read"),
    "mapped host": ("copy", "event wait", "atomics", "kernel write", "kernel read"),
    "managed": ("copy", "event wait", "atomics", "kernel write", "kernel read"),
    "pageable": ("copy", "copy back", "kernel read"),
}
"""Per kind of memory, from harmless to what may lose the device."""
KINDS = tuple(OPERATIONS)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Which runtime a probe's process opens.  devices: how many; knobs and seed: of simulated ones."""

    runtime: str
    devices: int
    knobs: str = ""
    seed: int = 0
    patience_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One ordered pair of devices and one kind of memory: `reader` uses memory of `owner`.

    peer: whether the reader has peer access; None where it does not matter.
    """

    reader: int
    owner: int
    memory: str
    peer: bool | None = None

    def __str__(self) -> str:
        peer = "" if self.peer is None else f", peer access {'on' if self.peer else 'off'}"
        return f"{self.reader} on {self.memory} memory of {self.owner}{peer}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """The answer to one operation of one cell.

    answer: PASS, FAIL or INCONCLUSIVE.  cause: a short name of what is wrong.  by_rule: a FAIL that the driver's own rules demand
    (a kernel without peer access must be refused), which is no fault of the machine.
    """

    cell: Cell
    operation: str
    answer: str
    cause: str | None = None
    why: str = ""
    by_rule: bool = False
    sizes: int = 0
    smallest_bad: int | None = None
    error: Mapping[str, Any] | None = None
    bandwidth: float | None = None
    """Bytes a second of the largest transfer."""
    limit: float | None = None
    """Bytes a second that the link can carry, where it is known."""
    latency: float | None = None
    """Seconds of the smallest transfer."""

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        cell = data.pop("cell")
        return {**cell, **data}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        rest = dict(data)
        cell = Cell(**{name: rest.pop(name) for name in ("reader", "owner", "memory", "peer")})
        return cls(cell=cell, **rest)


@dataclass(frozen=True, kw_only=True)
class Order:
    """What one process is to do."""

    machine: Machine
    cell: Cell
    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Order:
        return cls(
            machine=Machine(**data["machine"]),
            cell=Cell(**data["cell"]),
            operations=tuple(data["operations"]),
            sizes=tuple(data["sizes"]),
            seed=data["seed"],
        )


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something to act on: a cause with the rows that show it; `decides`: it makes the probe FAIL."""

    cause: str
    text: str
    decides: bool
    rows: tuple[int, ...] = field(default=())
