"""One instrumented run of the engine, streamed into a dump: rows go to the file as the engine makes them, chunk by chunk.

Keys of the prompt's rows are known at once. Whether a row of a verify window was accepted is known only after the window, so the
keys of generated rows are written at the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from edge0verify.dump import levels
from edge0verify.dump.writer import DumpWriter
from edge0verify.engine import Engine, Generation, Step, generate
from edge0verify.engine.quant_ops import variant_names
from edge0verify.engine.route_flags import RouteFlags
from edge0verify.engine.split_engine import SplitEngine
from edge0verify.engine.step import row_keys
from edge0verify.model import Model
from edge0verify.numerics.blocks import Blocks
from edge0verify.records.errors import InputError
from edge0verify.records.manifest import DeviceInfo, EngineInfo, Manifest, PromptInfo, Signature
from edge0verify.study.evidence import pair_keys
from edge0verify.study.on_device import device_info
from edge0verify.variants.kernels import Kernels

ENGINE = "edge0verify"


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What to run and where to put it. `variants` per stage as Engine takes them; `flags` as `variants.flags.read_flags` gives."""

    model: Model
    tokens: np.ndarray
    out: Path
    level: str = "replay"
    variants: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str | None] = field(default_factory=dict)
    generate: int = 0
    """Tokens to generate after the prompt."""
    drafter: bool = True
    """Run the drafter layer too, and let it propose tokens where there is something to generate."""
    threads: int = 1
    compression: str | None = None
    overwrite: bool = False
    commit: str | None = None
    """Commit that the program was built from, and whether the tree had further changes."""
    dirty: bool | None = None
    device: DeviceInfo | None = None
    """Of the kernels that are handed in; None: this machine's processor."""


@dataclass(frozen=True)
class RunResult:
    """The finished dump's manifest, the prompt's step, and the generation where there was one."""

    manifest: Manifest
    step: Step
    generation: Generation | None


def run(
    request: RunRequest,
    *,
    kernels: Kernels | None = None,
    progress: Callable[[int, int], None] | None = None,
    split: SplitEngine | None = None,
) -> RunResult:
    """Run the engine over the prompt and write the dump. progress(done, total) counts token rows of the main layers.

    `split`: an engine over several devices, made with the request's variants; it runs instead of one made here.
    InputError for a file that cannot be written, an unknown variant or level, variants for a model with float weights.
    """
    model, tokens = request.model, request.tokens
    kernels = split.launched if split is not None else kernels or Kernels(threads=request.threads)
    if not model.quantised and request.variants:
        raise InputError(f"{model.path}: expected quantised weights for variants, found float ones; run it without variants")
    named = variant_names(request.variants) if model.quantised else {}
    engine = split or Engine(
        model, kernels=kernels, variants=named or None, float_mode=not model.quantised, threads=request.threads,
        route=RouteFlags.of(request.flags, model.config),
    )
    if model.quantised:
        named = {stage: choice.asked.name for stage, choice in engine.ops.choices.items()}
    drafter = request.drafter and model.config.mtp_layers > 0
    before = kernels.launches()
    with DumpWriter(
        request.out,
        manifest=_manifest(request, named, kernels, split),
        compression=request.compression,
        overwrite=request.overwrite,
    ) as writer:
        tap = DumpTap(writer, len(tokens), progress, total=len(tokens) + request.generate)
        generation = None
        if request.generate:
            generation = generate(
                engine, tokens, max_tokens=request.generate, drafter=drafter, tap=tap, names=tap.names(request.level)
            )
            step = generation.first
            tap.finish(generation.rows, generation.mtp_rows)
        else:
            step = engine.prefill(tokens, tap=tap, names=tap.names(request.level), mtp=drafter)
        writer.head(step.top8_ids, step.top8_logprobs)
        writer.write("head", "logits", step.logits_last[None])
        manifest = writer.close(replace(writer.manifest, launches=moved(before, kernels.launches())))
    return RunResult(manifest, step, generation)


class DumpTap:
    """Takes what the engine shows and hands it to the writer, with the keys of each row."""

    def __init__(
        self, writer: DumpWriter, prompt: int, progress: Callable[[int, int], None] | None = None, total: int | None = None
    ) -> None:
        self._writer, self._prompt = writer, prompt
        self._progress, self._total = progress, total or prompt
        self._seen: dict[int | str, int] = {}
        self._later: dict[int | str, list[np.ndarray]] = {}

    @staticmethod
    def names(level: str) -> frozenset[str]:
        """What the engine has to show for a dump of `level`: its tensors, and the route, of which the pairs' keys are made."""
        return frozenset(spec.name for spec in levels.tensors_of(level)) | {"route-ids"}

    def __call__(self, layer: int | str, name: str, first: int, value: np.ndarray | Blocks) -> None:
        if name == "route-ids":
            self._route(layer, first, value)
        spec = levels.find(name)
        if spec is not None and (spec.kind == "q8_1") != isinstance(value, Blocks):
            return                                        # the float mode has an a-h that was never quantised
        self._writer.write(layer, name, value)

    def _route(self, layer: int | str, first: int, ids: np.ndarray) -> None:
        seen = self._seen.get(layer, 0)
        if seen < (self._prompt - 1 if layer == "mtp" else self._prompt):
            keys = row_keys(0, first, len(ids))
            if layer == 0:
                self._writer.rows(keys)
            self._writer.pairs(layer, pair_keys(keys, ids))
        else:
            self._later.setdefault(layer, []).append(ids)
        self._seen[layer] = seen + len(ids)
        if layer == 0 and self._progress is not None:
            self._progress(min(self._seen[layer], self._total), self._total)

    def finish(self, rows: np.ndarray, mtp_rows: np.ndarray) -> None:
        """Write the keys of what came after the prompt; rows and mtp_rows as in Generation, the prompt's included."""
        self._writer.rows(rows[self._prompt :])
        for layer, ids in self._later.items():
            keys = mtp_rows[self._prompt - 1 :] if layer == "mtp" else rows[self._prompt :]
            self._writer.pairs(layer, pair_keys(keys, np.concatenate(ids)))


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Launches per counter between two readings."""
    return {key: n - before.get(key, 0) for key, n in sorted(after.items()) if n > before.get(key, 0)}


def prompt_sha256(tokens: np.ndarray) -> str:
    """Identity of a prompt: sha256 over its token ids as little-endian int32."""
    return hashlib.sha256(np.ascontiguousarray(tokens, "<i4").tobytes()).hexdigest()


def _manifest(request: RunRequest, variants: Mapping[str, str], kernels: Kernels, split: SplitEngine | None) -> Manifest:
    return Manifest(
        engine=EngineInfo(name=ENGINE, commit=request.commit, dirty=request.dirty, binary_sha256=kernels.binary_sha256()),
        kernel_source_sha256=kernels.source_sha256(),
        model_sha256=request.model.sha256,
        prompt=PromptInfo(sha256=prompt_sha256(request.tokens), tokens=len(request.tokens)),
        variants=dict(variants),
        flags=dict(request.flags),
        device=request.device or _device(kernels, split),
        split=split.split.layers_by_device if split is not None else (),
        signature=Signature(tensors=(), layers=(), rows=0),
        level=levels.check_level(request.level),
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
        launches={},
    )


def _device(kernels: Kernels, split: SplitEngine | None) -> DeviceInfo:
    """Where the stages ran."""
    if split is None:
        return device_info(kernels)
    used = [split.runtime.devices()[index] for index in split.split.devices]
    names, archs, links = ("; ".join(dict.fromkeys(words)) for words in zip(*((str(d), d.arch, d.link or "") for d in used)))
    return DeviceInfo(name=f"{split.split} ({names}: {used[0].name})", arch=archs, driver=used[0].driver, link=links or None)
