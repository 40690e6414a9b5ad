"""What a golden is made of: what was recorded, what was accepted and why, and the rules it is held to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from edge0verify.compare import DEFAULT, Policy
from edge0verify.compare.policy import read_policy
from edge0verify.records.errors import InputError
from edge0verify.records.manifest import Manifest

SCHEMA = "edge0verify.golden/1"
EXACT, CONFORM = "exact", "conform"
MODES = (EXACT, CONFORM)
DRIFT_L2 = 1e-3
"""Largest rel-L2 from the anchor of what a stage of the first layer writes, where the anchor's own inputs still come in. Another
order of the same sum makes 1e-7, another operand quantiser 1e-2: a step of that size should be seen, and small ones must not add up
to it."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a later run may show and still pass.

    mode: `exact`, no bit may change; `conform`, a change is judged as between two variants, by the contracts or by `text`, the TOML
    of a comparison policy. top8: largest movement of the top-8 log-probs from the anchor, l2: largest rel-L2 from it in the first
    layer; None to only show them.
    """

    mode: str = EXACT
    text: str | None = None
    top8: float | None = None
    l2: float | None = DRIFT_L2
    values: Mapping[str, Any] | None = None
    """The plain values of such a file, instead of its text."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError(f"policy: expected {' or '.join(MODES)} or a TOML file, found {self.mode!r}")
        for name in ("top8", "l2"):
            limit = getattr(self, name)
            if limit is not None and not (math.isfinite(limit) and limit >= 0):
                raise InputError(f"drift limit {name}: expected a number of at least 0, found {limit!r}")
        self.policy("policy")

    def policy(self, source: str) -> Policy:
        """The comparison policy that differences are judged by."""
        if self.values is not None:
            return read_policy(self.values, source=source)
        if self.text is None:
            return DEFAULT
        import tomllib

        try:
            return read_policy(tomllib.loads(self.text), source=source)
        except tomllib.TOMLDecodeError as wrong:
            raise InputError(f"{source}: expected TOML, found: {wrong}") from None


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run is repeated from. Without `tokens` nothing can be: other runs are then held against the golden as dumps."""

    model_sha256: str | None = None
    model_file: str | None = None
    projection: str | None = None
    """File name of the projection that was laid over the model."""
    prompt: str | None = None
    tokens: str | None = None
    """Object with the token ids, int32 little endian."""
    count: int | None = None
    variants: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str | None] = field(default_factory=dict)
    """Engine flags that were given instead of variants; they may change the routes too."""
    device: str = "cpu"
    """Where it ran: 'cpu', or a runtime's name ('cuda')."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One run that was put into the store; a golden once it is accepted."""

    n: int
    time: str
    dump: str
    """Object with the dump, gzip."""
    bytes: int
    """Size of that object."""
    whole_bytes: int
    """Bytes of the arrays that it stands for: of a sketch, those of the whole tensors."""
    inputs: Inputs
    manifest: Manifest
    rules: Rules
    top8: Mapping[str, list] | None
    """{ids, logprobs} of the first generated token."""
    conforming: bool | None
    """Whether every element kept its contract when it was recorded; None where nothing could judge it."""
    complaints: tuple[str, ...] = ()
    """What did not."""

    @property
    def level(self) -> str:
        return self.manifest.level

    def to_json(self) -> dict[str, Any]:
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        data |= {
            "inputs": {**asdict(self.inputs), "variants": dict(self.inputs.variants), "flags": dict(self.inputs.flags)},
            "rules": asdict(self.rules),
        }
        return {"kind": "recorded", **data, "manifest": self.manifest.to_json(), "complaints": list(self.complaints)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], source: str) -> Recorded:
        known = {key: value for key, value in data.items() if key != "kind"}
        known["manifest"] = Manifest.from_json(known["manifest"], source=f"{source}: manifest")
        known["inputs"], known["rules"] = Inputs(**known["inputs"]), Rules(**known["rules"])
        return cls(**{**known, "complaints": tuple(known["complaints"])})


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A recorded run became the golden. anchor: it also became the frozen anchor."""

    n: int
    time: str
    recorded: int
    reason: str
    anchor: bool
    commit: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"kind": "accepted", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """Other kernel sources were seen to give the golden's bits, so it is no longer stale."""

    n: int
    time: str
    recorded: int
    kernel_source_sha256: str
    reason: str
    commit: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"kind": "confirmed", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """Objects that were removed to make room; what was recorded of them stays in the log."""

    n: int
    time: str
    objects: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"kind": "pruned", **asdict(self), "objects": list(self.objects)}


Event = Recorded | Accepted | Confirmed | Pruned


@dataclass(frozen=True, kw_only=True)
class Golden:
    """One golden as its log tells it."""

    name: str
    folder: Path
    events: tuple[Event, ...]

    @property
    def recorded(self) -> tuple[Recorded, ...]:
        return tuple(e for e in self.events if isinstance(e, Recorded))

    @property
    def accepted(self) -> tuple[Accepted, ...]:
        return tuple(e for e in self.events if isinstance(e, Accepted))

    def run(self, n: int) -> Recorded:
        """The recorded run of that number."""
        return next(r for r in self.recorded if r.n == n)

    @property
    def current(self) -> Recorded | None:
        """The run that was accepted last."""
        return self.run(self.accepted[-1].recorded) if self.accepted else None

    @property
    def anchor(self) -> Recorded | None:
        """The frozen one."""
        frozen = [a for a in self.accepted if a.anchor]
        return self.run(frozen[-1].recorded) if frozen else None

    @property
    def source(self) -> str | None:
        """sha256 of the kernel sources that last gave the golden's bits: those it was recorded from, or confirmed with since."""
        run = self.current
        if run is None:
            return None
        later = [e for e in self.events if isinstance(e, Confirmed) and e.recorded == run.n]
        return later[-1].kernel_source_sha256 if later else run.manifest.kernel_source_sha256

    @property
    def since_anchor(self) -> int:
        """How often another run was accepted since the anchor was set."""
        frozen = [i for i, a in enumerate(self.accepted) if a.anchor]
        return len(self.accepted) - 1 - frozen[-1] if frozen else 0

    @property
    def candidate(self) -> Recorded | None:
        """The newest run, where it was recorded after the last that was accepted."""
        last = self.recorded[-1] if self.recorded else None
        return None if last is None or (self.accepted and last.n < self.accepted[-1].n) else last
