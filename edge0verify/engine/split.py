"""Which device runs which layers, and which pointers that hands to whom: types and the pure part of a layer split."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from edge0verify.records.errors import InputError
from edge0verify.runtime.detect import parse
from edge0verify.runtime.protocol import Runtime

MISTAKES = ("pair", "embedding")
"""Mistakes that can be planted: one process-wide pointer to the D/U pair; the embedding table in memory of the first device."""


@dataclass(frozen=True)
class Part:
    """Layers first..last on one device of the split's runtime."""

    first: int
    last: int
    device: int


@dataclass(frozen=True)
class Split:
    """A model's layers in order over devices of one runtime; head and drafter are on the last."""

    runtime: str
    parts: tuple[Part, ...]

    def device_of(self, layer: int | str) -> int:
        """The device that runs a layer ('mtp': the drafter)."""
        if layer == "mtp":
            return self.parts[-1].device
        return next(part.device for part in self.parts if part.first <= layer <= part.last)

    @property
    def devices(self) -> tuple[int, ...]:
        """Each device once, in the order in which rows pass them."""
        return tuple(dict.fromkeys(part.device for part in self.parts))

    @property
    def layers_by_device(self) -> tuple[tuple[int | str, ...], ...]:
        """Layers per device, in that order, as a dump's manifest holds them."""
        by_device: dict[int, list[int | str]] = {}
        for part in self.parts:
            by_device.setdefault(part.device, []).extend(range(part.first, part.last + 1))
        by_device[self.parts[-1].device].append("mtp")
        return tuple(tuple(layers) for layers in by_device.values())

    def __str__(self) -> str:
        return ",".join(f"{p.first}-{p.last}@{self.runtime}:{p.device}" for p in self.parts)


def parse_split(text: str, layers: int | None) -> Split:
    """'0-2@sim:0,3-5@sim:1' for a model of `layers` layers (None: however many the text names).

    InputError where a layer is missing, named twice or out of order, or where the devices are not all of one runtime.
    """
    parts, runtimes, expected = [], set(), 0
    for word in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?@([a-z0-9]+(?::\d+)?)\s*", word, re.ASCII)
        if not found:
            raise InputError(f"--split {text}: expected FIRST-LAST@RUNTIME:DEVICE, found {word!r}")
        first, last = int(found[1]), int(found[2] or found[1])
        if first != expected or last < first:
            raise InputError(f"--split {text}: expected layers from {expected} on, found {word.strip()!r}")
        runtime, device = parse(found[3], f"--split {text}:")
        runtimes.add(runtime)
        parts.append(Part(first, last, device))
        expected = last + 1
    if layers is not None and expected != layers:
        raise InputError(f"--split {text}: expected layers 0 to {layers - 1}, found 0 to {expected - 1}")
    if len(runtimes) != 1:
        raise InputError(f"--split {text}: expected devices of one runtime, found {', '.join(sorted(runtimes))}")
    return Split(runtimes.pop(), tuple(parts))


@dataclass(frozen=True)
class Use:
    """One pointer that a stage is given: the tensor it stands for, and the device whose kernels read it."""

    layer: int | str
    stage: str
    tensor: str
    pointer: int
    nbytes: int
    reader: int


@dataclass(frozen=True)
class Violation:
    """A pointer that the device which gets it may not read."""

    use: Use
    owner: int | None
    kind: str

    def __str__(self) -> str:
        where = f"memory of device {self.owner}" if self.owner is not None else f"{self.kind} memory"
        use = self.use
        return f"layer {use.layer}, stage {use.stage}: {use.tensor} lies in {where} and is read by device {use.reader}"


def check_uses(runtime: Runtime, uses: Iterable[Use], *, peers: frozenset[tuple[int, int]] = frozenset()) -> list[Violation]:
    """Every pointer against the device that reads it.  peers: (reader, owner) pairs that have peer access."""
    wrong = []
    for use in uses:
        found = runtime.attributes(use.pointer)
        if found.kind == "device" and found.device != use.reader and (use.reader, found.device) not in peers:
            wrong.append(Violation(use, found.device, found.kind))
        elif found.kind == "unregistered" and not runtime.pageable_access(use.reader):
            wrong.append(Violation(use, None, found.kind))
    return wrong


class SplitFault(RuntimeError):
    """A device failed during a forward; the message names tensor, owner and reader where they are known."""

    def __init__(self, where: str, device: str, error: Exception, violations: list[Violation]) -> None:
        named = "; ".join(dict.fromkeys(str(v) for v in violations)) or "every pointer it was given is one it may read"
        super().__init__(f"{where} on {device}: {error}; {named}")
        self.where, self.device, self.error = where, device, error
        self.violations = tuple(violations)
