"""What a dump says ran, and whether its launches show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edge0verify.dump.reader import Dump
from edge0verify.model import Model
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Engagement
from edge0verify.variants.flags import by_design, variants_of
from edge0verify.variants.registry import find

PARTS = ("D", "A1", "A2", "U")
_WEIGHTS = {"D": "latent_down.weight", "U": "latent_up.weight", "A1": "ffn_gate_exps", "A2": "ffn_down_exps"}


@dataclass(frozen=True)
class Claim:
    """variants per part, by the registry's names; the launches that were counted; where user and manifest disagree."""

    variants: Mapping[str, str]
    launches: Mapping[str, int] | None
    by_design: tuple[str, ...]
    contradictions: tuple[str, ...]


def claim(dump: Dump, declared: Mapping[str, str]) -> Claim:
    """What `dump` claims. `declared` (per part) is what the user says; where the manifest says otherwise, both are named."""
    manifest = dump.manifest
    written: dict[str, str] = {}
    for stage, name in manifest.variants.items():
        for part in ("A1", "A2") if stage == "A" else (stage,):
            try:
                written[part] = find(part, name).name
            except InputError as wrong:
                raise InputError(f"{dump.path}: manifest: {wrong}") from None
    if not written and manifest.flags:
        written = variants_of(manifest.flags)
    contradictions = tuple(
        f"its manifest says {part} {written[part]}, it was given as {name}"
        for part, name in declared.items()
        if part in written and written[part] != name
    )
    return Claim({**written, **declared}, manifest.launches, by_design(manifest.flags), contradictions)


def label(claim: Claim, stage: str | None) -> str:
    """The variant of one stage, or all: 'w11', 'D=w11,A=mmq,U=mmvq', or 'unknown'; flags that declare another output follow."""
    return " ".join((_variants(claim, stage), *claim.by_design))


def _variants(claim: Claim, stage: str | None) -> str:
    parts = {"D": "D", "A": "A1", "U": "U"}
    if stage is not None:
        return claim.variants.get(parts[stage], "unknown")
    known = [f"{name}={claim.variants[part]}" for name, part in parts.items() if part in claim.variants]
    return ",".join(known) or "unknown"


def engagement(claim: Claim, parts: Sequence[str], model: Model | None, *, asked: str) -> Engagement:
    """Whether the kernels that the dump claims for `parts` were launched in its run; asked: the claim in words."""
    wanted = tuple(_key(claim, part, model) for part in parts if part in claim.variants)
    return Engagement(asked=asked, wanted=wanted, launches=claim.launches)


def _key(claim: Claim, part: str, model: Model | None) -> str:
    """Counter key of the claimed kernel; without a model, the weights' format as the launches have it."""
    start = f"{part}/{claim.variants[part]}/"
    if model is not None:
        tensor = model.tensor(_WEIGHTS[part]) if part in ("D", "U") else model.layer(0, _WEIGHTS[part])
        return start + tensor.fmt
    return next((key for key in claim.launches or {} if key.startswith(start)), start + "any")
