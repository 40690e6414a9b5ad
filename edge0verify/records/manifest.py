"""What a dump says about the run that wrote it (schema `edge0verify.dump/1`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from edge0verify.records.errors import InputError
from edge0verify.records.schema import MANIFEST, check

SCHEMA = "edge0verify.dump/1"
LEVELS = ("outputs", "replay", "full", "sketch", "hash")


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """The program that made the numbers; a foreign engine's unknown parts are None."""

    name: str
    commit: str | None = None
    dirty: bool | None = None
    """Built from a tree with uncommitted changes."""
    binary_sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class PromptInfo:
    sha256: str | None = None
    tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceInfo:
    name: str
    arch: str | None = None
    driver: str | None = None
    link: str | None = None


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What was captured: two dumps can only be compared where these meet."""

    tensors: tuple[str, ...]
    layers: tuple[int | str, ...]
    rows: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One run: who computed what, on which machine, with which kernels launched."""

    engine: EngineInfo
    device: DeviceInfo
    prompt: PromptInfo
    signature: Signature
    level: str
    time: str
    """ISO 8601, UTC."""
    kernel_source_sha256: str | None = None
    model_sha256: str | None = None
    variants: Mapping[str, str] = field(default_factory=dict)
    """Variant asked for per stage: {'D': 'w11'}."""
    flags: Mapping[str, str | None] = field(default_factory=dict)
    """Engine flags that set variants or change output; None for one that was looked up and not set."""
    split: tuple[tuple[int | str, ...], ...] = ()
    """Layers per device, in device order."""
    launches: Mapping[str, int] | None = None
    """Per counter key; None for a foreign dump, which counted none."""
    seed: int | None = None

    @property
    def foreign(self) -> bool:
        """Whether the engine that wrote the dump counted no launches."""
        return self.launches is None

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["split"] = [list(layers) for layers in self.split]
        data["signature"] = {key: list(v) if isinstance(v, tuple) else v for key, v in data["signature"].items()}
        for name in ("variants", "flags"):
            data[name] = dict(data[name])
        return {"schema": SCHEMA, **data}

    def dumps(self) -> str:
        """One line of JSON, keys sorted: the text stored in a dump."""
        return json.dumps(self.to_json(), sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, data: Any, *, source: str = "manifest") -> Manifest:
        """Read a manifest; InputError names `source` and the field that is wrong. An unknown field is refused: a
        misspelt one would otherwise vanish without a word."""
        check(data, MANIFEST, source)
        known = {key: value for key, value in data.items() if key != "schema"}
        signature = data["signature"]
        known |= {
            "engine": EngineInfo(**data["engine"]),
            "device": DeviceInfo(**data["device"]),
            "prompt": PromptInfo(**data["prompt"]),
            "signature": Signature(
                tensors=tuple(signature["tensors"]), layers=tuple(signature["layers"]), rows=signature["rows"]
            ),
            "split": tuple(tuple(layers) for layers in data["split"]),
        }
        return cls(**known)

    @classmethod
    def loads(cls, text: str | bytes, *, source: str = "manifest") -> Manifest:
        try:
            data = json.loads(text)
        except ValueError as wrong:
            raise InputError(f"{source}: expected JSON, found {wrong}") from None
        return cls.from_json(data, source=source)
