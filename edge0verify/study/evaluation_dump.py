"""The first token's candidates as a dump that holds nothing else: `compare` reads it like any other."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from edge0verify.dump.foreign import foreign_manifest
from edge0verify.dump.writer import DumpWriter
from edge0verify.records.errors import InputError
from edge0verify.records.manifest import EngineInfo, Manifest, PromptInfo, Signature
from edge0verify.study.dumping import ENGINE
from edge0verify.study.evaluation import first_tokens
from edge0verify.study.evaluation_record import SideResult
from edge0verify.study.evaluation_sides import EndpointSide, LocalSide
from edge0verify.study.on_device import device_info
from edge0verify.variants.kernels import Kernels


def write_first_tokens(
    path: Path, side: LocalSide | EndpointSide, result: SideResult, *, commit: str | None = None, dirty: bool | None = None,
    overwrite: bool = False,
) -> Manifest:
    """A dump with head/top8-ids and head/top8-logprobs [questions, k]. InputError where a question has no candidates."""
    first = first_tokens(result.answers)
    if first is None:
        without = next((a.question.prompt for a in result.answers if not len(a.ids)), "")
        raise InputError(f"{path}: expected log-probs of the first token for every question, found none for {without[:60]!r}")
    manifest = replace(_manifest(side, result, commit, dirty), prompt=PromptInfo(sha256=_questions_sha256(result)))
    with DumpWriter(path, manifest=manifest, overwrite=overwrite) as writer:
        writer.head(first.ids, first.logprobs)
        return writer.close()


def _manifest(side: LocalSide | EndpointSide, result: SideResult, commit: str | None, dirty: bool | None) -> Manifest:
    if isinstance(side, EndpointSide):
        return foreign_manifest(engine=f"endpoint: {side.endpoint.model}")
    kernels = side.kernels or Kernels(threads=side.threads)
    variants = {**dict.fromkeys(("D", "A1", "A2", "U"), "mmvq"), **side.variants} if side.model.quantised else {}
    return Manifest(
        engine=EngineInfo(name=ENGINE, commit=commit, dirty=dirty, binary_sha256=kernels.binary_sha256()),
        kernel_source_sha256=kernels.source_sha256(),
        model_sha256=side.model.sha256,
        prompt=PromptInfo(),
        variants=variants,
        flags=dict(side.flags),
        device=device_info(kernels),
        signature=Signature(tensors=(), layers=(), rows=0),
        level="outputs",
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
        launches=dict(result.launches or {}),
    )


def _questions_sha256(result: SideResult) -> str:
    """Identity of the questions in their order: dumps of other questions are unlike runs."""
    return hashlib.sha256("\n".join(answer.item for answer in result.answers).encode()).hexdigest()
