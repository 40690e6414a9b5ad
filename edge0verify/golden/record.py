"""Recording and accepting: what is decided before anything is put into the store."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from edge0verify.dump.levels import REDUCED
from edge0verify.dump.reader import Dump, open_dump
from edge0verify.golden.drift import drift
from edge0verify.golden.making import RunAsked, check_prompt, describe, level_for, make, model_of, reduce, stored
from edge0verify.golden.store import Store
from edge0verify.golden.types import Accepted, Golden, Inputs, Recorded, Rules
from edge0verify.golden.whole import refusals
from edge0verify.model import Model
from edge0verify.records.errors import InputError
from edge0verify.variants.kernels import Kernels

Origin = tuple[str | None, bool | None]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A golden that is not there yet. inputs_named: the user named the prompt, so with `dump` it is that dump's."""

    name: str
    model: Model
    prompt: str
    tokens: np.ndarray
    variants: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str | None] = field(default_factory=dict)
    device: str = "cpu"
    level: str | None = None
    rules: Rules = field(default_factory=Rules)
    dump: Path | None = None
    inputs_named: bool = False
    threads: int = 1
    kernels: Kernels | None = None


def record_new(store: Store, wanted: Wanted, *, origin: Origin = (None, None)) -> Recorded:
    """Run (or take the dump), judge it by its contracts, put it into the store. Raises Absent where the device is not here."""
    if store.has(wanted.name):
        raise InputError(f"golden {wanted.name}: expected a new name, found it in {store.folder}: accept a new run of it instead")
    with tempfile.TemporaryDirectory(prefix="edge0verify-") as name:
        folder = Path(name)
        whole = wanted.dump or folder / "run.h5"
        if wanted.dump is None:
            level = "full" if wanted.level == "full" else "replay" if wanted.level in (None, *REDUCED) else wanted.level
            make(_asked(wanted, origin), whole, level)
        with open_dump(whole) as dump:
            dump.verify()
            tokens, inputs = _inputs(wanted, dump)
            model = wanted.model if inputs.model_sha256 == wanted.model.sha256 else None
            run = describe(dump, model=model, inputs=inputs, rules=wanted.rules, threads=wanted.threads)
            kept = _reduced(dump, folder, wanted.level or level_for(dump))
        return store.record(wanted.name, stored(run, kept), dump=kept, tokens=tokens)


def record_again(
    store: Store,
    name: str,
    *,
    model: Model | None = None,
    device: str | None = None,
    dump: Path | None = None,
    rules: Rules | None = None,
    threads: int = 1,
    kernels: Kernels | None = None,
    origin: Origin = (None, None),
) -> Recorded:
    """A further run of a golden, on its own inputs and at its own level. InputError where a dump is not of them."""
    golden = store.open(name)
    last = golden.current or golden.recorded[-1]
    loaded, refused = model_of(last.inputs, model)
    if refused:
        raise InputError(f"golden {name}: {refused}")
    if last.inputs.tokens is None and dump is None:
        raise InputError(f"golden {name}: expected --dump: it is of a run that cannot be repeated here")
    tokens = None if last.inputs.tokens is None else store.tokens(golden, last)
    inputs = replace(last.inputs, device=_kind(device) if device else last.inputs.device)
    with tempfile.TemporaryDirectory(prefix="edge0verify-") as temporary:
        folder = Path(temporary)
        whole = dump or folder / "run.h5"
        if dump is None:
            asked = RunAsked(
                model=loaded,
                tokens=tokens,
                variants=dict(inputs.variants),
                flags=dict(inputs.flags),
                device=device or inputs.device,
                kernels=kernels,
                threads=threads,
                commit=origin[0],
                dirty=origin[1],
            )
            make(asked, whole, "replay" if last.level in REDUCED else last.level)
        with open_dump(whole) as fresh:
            fresh.verify()
            run = describe(fresh, model=loaded, inputs=inputs, rules=rules or last.rules, threads=threads)
            kept = _reduced(fresh, folder, last.level)
        with open_dump(kept) as fresh, store.dump(golden, last) as path, open_dump(path) as was:
            unlike = refusals(fresh, was)
        if unlike:
            raise InputError(f"golden {name}: {unlike[0]}")
        return store.record(name, stored(run, kept), dump=kept, tokens=tokens)


def accept_candidate(
    store: Store, name: str, *, reason: str, reanchor: bool = False, anyway: bool = False, commit: str | None = None
) -> tuple[Golden, Accepted]:
    """Make the newest recorded run the golden. InputError where there is none to accept, where it breaks a contract, or where it
    stands further from the anchor than the golden's limit."""
    golden = store.open(name)
    run = golden.candidate
    if run is None:
        raise InputError(f"golden {name}: expected a run that was recorded since the last acceptance, found none: record one first")
    if run.conforming is False and not anyway:
        first = run.complaints[0] if run.complaints else "its elements do not all conform"
        raise InputError(f"golden {name}: run {run.n} breaks its contract: {first}; expected --anyway to accept that")
    if golden.anchor is not None and not reanchor:
        too_far = _too_far(store, golden, run)
        if too_far:
            raise InputError(f"golden {name}: run {run.n}: {too_far}; expected --reanchor to leave the anchor behind")
    done = store.accept(name, run, reason=reason, anchor=reanchor, commit=commit)
    return store.open(name), done


def _too_far(store: Store, golden: Golden, run: Recorded) -> str | None:
    anchor = golden.anchor
    with store.dump(golden, run) as now, store.dump(golden, anchor) as was, open_dump(now) as fresh, open_dump(was) as frozen:
        moved = drift(golden, fresh, frozen, run=anchor, top8=dict(run.top8) if run.top8 else None)
    limits = {"top8": run.rules.top8, "l2": run.rules.l2}
    return replace(moved, limits=limits, accepted=moved.accepted + 1).too_far


def _asked(wanted: Wanted, origin: Origin) -> RunAsked:
    return RunAsked(
        model=wanted.model,
        tokens=wanted.tokens,
        variants=dict(wanted.variants),
        flags=dict(wanted.flags),
        device=wanted.device,
        kernels=wanted.kernels,
        threads=wanted.threads,
        commit=origin[0],
        dirty=origin[1],
    )


def _inputs(wanted: Wanted, dump: Dump) -> tuple[np.ndarray | None, Inputs]:
    """The committed inputs: those of the run, or of a dump whose prompt was named; a dump alone has none."""
    manifest, tokens = dump.manifest, wanted.tokens
    if wanted.dump is not None and not wanted.inputs_named:
        return None, Inputs(
            model_sha256=manifest.model_sha256, variants=dict(manifest.variants), flags=dict(manifest.flags), device=_device(dump)
        )
    check_prompt(manifest.prompt.sha256, tokens, f"golden {wanted.name}")
    if manifest.model_sha256 not in (None, wanted.model.sha256):
        raise InputError(
            f"golden {wanted.name}: expected the model of the dump (sha256 {manifest.model_sha256[:16]}), found "
            f"{wanted.model.path.name} with {wanted.model.sha256[:16]}"
        )
    projection = wanted.model.projection
    return tokens, Inputs(
        model_sha256=wanted.model.sha256,
        model_file=wanted.model.path.name,
        projection=projection and projection.name,
        prompt=wanted.prompt,
        variants=dict(manifest.variants),
        flags=dict(manifest.flags),
        device=_device(dump) if wanted.dump else _kind(wanted.device),
    )


def _device(dump: Dump) -> str:
    name = dump.manifest.device.name.partition(":")[0]
    return name if name in ("cpu", "cuda", "hip", "sim", "gfx11emu") else "cpu"


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _reduced(dump: Dump, folder: Path, level: str) -> Path:
    """The dump itself, or its reduction in `folder`."""
    if level == dump.level:
        return dump.path
    if level not in REDUCED or dump.level in REDUCED:
        raise InputError(f"{dump.path}: level: expected {level}, found {dump.level}")
    out = folder / f"{level}.h5"
    reduce(dump, out, level)
    return out
