"""How simulated devices behave: the rules that real machines break, each a knob.

    peer=on|off|corrupt   peer access works, is not offered, or flips bytes on the way without an error
    memset=ordered|early  early: a memset issued with another device current returns before the owner sees the bytes
    copy=right|wrong      wrong: the copy engine reports success and has flipped bytes
    link=x16|x1           x1: a sixteenth of the bandwidth
    doorbell=kept|lost    lost: after some submissions one never starts, and whoever waits for it hangs
    capture=strict|lax    lax: one operation that a graph capture forbids is accepted and left out of the graph

Which pair, size, submission or operation is hit is drawn from the seed, so no two seeds look alike.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

from edge0verify.records.errors import InputError

CHOICES = {
    "peer": ("on", "off", "corrupt"),
    "memset": ("ordered", "early"),
    "copy": ("right", "wrong"),
    "link": ("x16", "x1"),
    "doorbell": ("kept", "lost"),
    "capture": ("strict", "lax"),
}
FORBIDDEN = ("copy without a stream", "memset without a stream", "synchronise the stream", "synchronise the device", "allocate")
"""Operations that a capture forbids; `capture=lax` accepts one of them."""


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """One choice per rule; the first of each is a healthy machine."""

    peer: str = "on"
    memset: str = "ordered"
    copy: str = "right"
    link: str = "x16"
    doorbell: str = "kept"
    capture: str = "strict"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value not in CHOICES[field.name]:
                raise InputError(f"knob {field.name}: expected {' or '.join(CHOICES[field.name])}, found {value!r}")

    def __str__(self) -> str:
        changed = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default]
        return ",".join(changed) or "healthy"


def parse_knobs(text: str | None) -> Knobs:
    """'peer=off,link=x1' as Knobs; None and '' are a healthy machine.  InputError for anything else."""
    chosen: dict[str, str] = {}
    for word in filter(None, (text or "").split(",")):
        name, equals, value = word.strip().partition("=")
        if not equals or name not in CHOICES or name in chosen:
            raise InputError(f"knobs {text!r}: expected NAME=VALUE once for some of {', '.join(CHOICES)}, found {word!r}")
        chosen[name] = value
    return Knobs(**chosen)


@dataclass(frozen=True)
class Plan:
    """What the seed decides: the ordered pair (reader, owner) and the sizes and counts that a fault hits."""

    pair: tuple[int, int] | None
    flip_from: int
    lost_device: int
    lost_after: int
    lax: str

    @classmethod
    def draw(cls, count: int, rng: random.Random) -> Plan:
        pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
        return cls(
            rng.choice(pairs) if pairs else None,
            1 << rng.randrange(2, 17),
            rng.randrange(count),
            rng.randrange(1, 4),
            rng.choice(FORBIDDEN),
        )
