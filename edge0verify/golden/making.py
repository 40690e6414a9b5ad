"""Makes what a golden consists of: a run on committed inputs, its reduction to a sketch, and what it shows of itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from edge0verify.dump.levels import KEYS, REDUCED
from edge0verify.dump.reader import Dump, open_dump
from edge0verify.dump.writer import DumpWriter
from edge0verify.golden.alone import judge_alone
from edge0verify.golden.types import Inputs, Recorded, Rules
from edge0verify.model import DEFAULT_Q4_PROJECTION, Model, load_model
from edge0verify.records.errors import InputError
from edge0verify.records.manifest import DeviceInfo, Manifest
from edge0verify.records.status import PASS
from edge0verify.study.dumping import RunRequest, prompt_sha256, run
from edge0verify.variants.kernels import Kernels

SMALL_BYTES = 4 << 20
"""A dump of at most this size is kept whole unless another level is asked for."""


@dataclass(frozen=True, kw_only=True)
class RunAsked:
    """One run of the engine. level: of the dump that is written, not of what is kept."""

    model: Model
    tokens: np.ndarray
    variants: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str | None] = field(default_factory=dict)
    device: str = "cpu"
    kernels: Kernels | None = None
    """Other kernels than the device's own: tests plant faults with them."""
    threads: int = 1
    commit: str | None = None
    dirty: bool | None = None


def make(asked: RunAsked, out: Path, level: str) -> Manifest:
    """Run the engine into a dump. Raises `runtime.detect.Absent` where the device is not here."""
    kernels, device = asked.kernels, None
    if kernels is None and asked.device != "cpu":
        kernels, device = _on(asked.device)
    request = RunRequest(
        model=asked.model,
        tokens=asked.tokens,
        out=out,
        level=level,
        variants=asked.variants,
        flags=asked.flags,
        threads=asked.threads,
        commit=asked.commit,
        dirty=asked.dirty,
        device=device,
    )
    return run(request, kernels=kernels).manifest


def _on(device: str) -> tuple[Kernels, DeviceInfo]:
    from edge0verify.variants.device_kernels import kernels_on

    kernels = kernels_on(device)
    found = kernels.runtime.devices()[kernels.device]
    return kernels, DeviceInfo(name=f"{kernels.runtime.name}: {found.name}", arch=found.arch, driver=found.driver, link=found.link)


def reduce(dump: Dump, out: Path, level: str) -> None:
    """Write a dump of whole tensors again at level `sketch` or `hash`."""
    from edge0verify.dump.levels import captured

    with DumpWriter(out, manifest=replace(dump.manifest, level=level)) as writer:
        keys = dump.rows()
        if keys is not None:
            writer.rows(keys)
        for layer in dump.layers():
            pairs = dump.pairs(layer)
            if pairs is not None:
                writer.pairs(layer, pairs)
            for tensor in dump.tensors(layer):
                if tensor not in KEYS and captured(tensor, level):
                    for _, piece in dump.iterate(layer, tensor):
                        writer.write(layer, tensor, piece)
        for tensor in dump.tensors("head"):
            writer.write("head", tensor, dump.read("head", tensor))


def top8(dump: Dump) -> dict[str, list] | None:
    """{ids, logprobs} of a dump that holds them whole."""
    if dump.level in REDUCED or not (dump.has("head", "top8-ids") and dump.has("head", "top8-logprobs")):
        return None
    return {"ids": dump.read("head", "top8-ids").tolist(), "logprobs": dump.read("head", "top8-logprobs").astype(float).tolist()}


def level_for(dump: Dump) -> str:
    """How much of a dump is kept where nobody says: all of a small one, else a sketch."""
    return dump.level if sum(info.nbytes for info in dump.arrays.values()) <= SMALL_BYTES else "sketch"


def describe(dump: Dump, *, model: Model | None, inputs: Inputs, rules: Rules, threads: int) -> Recorded:
    """What a dump of whole tensors shows of itself, ready for the store (which fills in the rest)."""
    conforming, complaints = None, []
    if model is not None and dump.level not in REDUCED:
        results = [r for r in judge_alone(dump, model, threads=threads) if r.n]
        judged = [r for r in results if r.conforming["a"] is not None]
        complaints = [reason for r in results if r.status != PASS for reason in r.reasons]
        conforming = None if not judged else all(r.conforming["a"] == r.n for r in judged) and not complaints
    return Recorded(
        n=0,
        time="",
        dump="",
        bytes=0,
        whole_bytes=sum(info.nbytes for info in dump.arrays.values()),
        inputs=inputs,
        manifest=dump.manifest,
        rules=rules,
        top8=top8(dump),
        conforming=conforming,
        complaints=tuple(complaints[:8]),
    )


def stored(run: Recorded, kept: Path) -> Recorded:
    """The same, of the dump that is put into the store in its place."""
    with open_dump(kept) as dump:
        return replace(run, manifest=dump.manifest)


def model_of(inputs: Inputs, given: Model | None) -> tuple[Model | None, str]:
    """The model of a golden, or None and why: the one given, else the embedded one, with the projection that was recorded."""
    if given is not None:
        model = given
    elif inputs.projection == DEFAULT_Q4_PROJECTION.name:
        model = load_model(None, DEFAULT_Q4_PROJECTION)
    else:
        model = load_model()
    if inputs.model_sha256 in (None, model.sha256):
        return model, ""
    what = f"{inputs.model_file or 'a model'} with sha256 {inputs.model_sha256[:16]}"
    return None, f"unlike runs: model: the golden is of {what}, the one at hand is {model.path.name} with {model.sha256[:16]}"


def check_prompt(inputs_sha256: str | None, tokens: np.ndarray, where: str) -> None:
    """InputError where token ids are not those of a dump."""
    if inputs_sha256 is not None and prompt_sha256(tokens) != inputs_sha256:
        raise InputError(
            f"{where}: expected the prompt of the dump (sha256 {inputs_sha256[:16]}), found another of {len(tokens)} tokens"
        )
