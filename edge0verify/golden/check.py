"""Hold what runs now against a golden: repeated on its committed inputs, or another dump of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge0verify.compare import judge
from edge0verify.dump.levels import REDUCED
from edge0verify.dump.reader import Dump, open_dump
from edge0verify.golden.alone import judge_alone
from edge0verify.golden.arrays import compare_arrays, is_arrays
from edge0verify.golden.drift import Drift, drift
from edge0verify.golden.making import RunAsked, make, model_of, reduce, top8
from edge0verify.golden.sketched import compare_sketched
from edge0verify.golden.store import Store
from edge0verify.golden.tiles import changes
from edge0verify.golden.types import EXACT, Golden, Recorded, Rules
from edge0verify.golden.whole import compare_whole, equal_results, frame, refusals, same_bits, unlike_verdict
from edge0verify.model import Model
from edge0verify.records import status as statuses
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import Verdict
from edge0verify.runtime.detect import Absent
from edge0verify.variants.kernels import Kernels

SCHEMA = "edge0verify.golden-check/1"


class Runs:
    """Runs of one sitting by what they were made of, as files in a folder; a context manager that removes it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="edge0verify-")
        self._known: dict[tuple, Path] = {}

    def get(self, key: tuple, make: Callable[[Path], object]) -> Path:
        """The file for `key`, made by `make(path)` the first time."""
        if key not in self._known:
            path = Path(self._folder.name) / f"{len(self._known)}.h5"
            make(path)
            self._known[key] = path
        return self._known[key]

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *exc) -> None:
        self._folder.cleanup()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to hold against the golden.

    dump: a dump that was made elsewhere, instead of a run here. device: where to run, default where the golden ran, or the
    processor where that is not here (the contracts give the same bits). kernels: others than the device's own; tests plant faults
    with them. keep: a folder that gets the dump of the run where it does not pass.
    """

    model: Model | None = None
    dump: Path | None = None
    device: str | None = None
    kernels: Kernels | None = None
    threads: int = 1
    keep: Path | None = None
    shared: Runs | None = None
    """Runs made for other goldens of the same inputs: one run answers for all of them."""
    rules: Rules | None = None
    """Others than the golden's own."""
    commit: str | None = None
    dirty: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The answer for one golden. `remarks` is what a reader should know and what does not decide, such as that it is stale."""

    name: str
    status: str
    reasons: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    stale: bool = False
    verdict: Verdict | None = None
    drift: Drift | None = None
    kept: Path | None = None

    @property
    def exit_code(self) -> int:
        return statuses.exit_code(self.status)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "name": self.name,
            "status": self.status,
            "reasons": list(self.reasons),
            "remarks": list(self.remarks),
            "stale": self.stale,
            "drift": None if self.drift is None else self.drift.to_json(),
            "kept": None if self.kept is None else str(self.kept),
            "verdict": None if self.verdict is None else self.verdict.to_json(),
        }


def check(store: Store, name: str, asked: Asked) -> Checked:
    """The answer. InputError for a golden that is not there or damaged, and for a dump that is not whole."""
    golden = store.open(name)
    run = golden.current
    if run is None:
        return _unproven(name, f"golden {name}: recorded and not yet accepted: nothing to hold a run against")
    model, refused = model_of(run.inputs, asked.model)
    if refused:
        return _unproven(name, refused)
    remarks: list[str] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edge0verify-")))
        was = stack.enter_context(store.dump(golden, run))
        try:
            source = _Source(store, golden, run, model, asked, folder, remarks)
            now = source.at(run.level)
        except Absent as absent:
            return _unproven(name, str(absent))
        with open_dump(now) as fresh, open_dump(was) as kept:
            if not source.repeated:
                fresh.verify()
            verdict, whole = _compare(source, fresh, kept, run, asked)
            stale = _stale(fresh, golden)
            moved = None
            if verdict.status != INCONCLUSIVE or verdict.layers:
                moved = _drift(store, golden, fresh, source.top8(fresh))
        status, reasons = verdict.status, [*verdict.reasons]
        if moved is not None and moved.too_far:
            status, reasons = (FAIL if status != INCONCLUSIVE else status), [moved.too_far, *reasons]
        if stale:
            remarks.append(f"stale: the kernels' source changed since it was recorded ({stale})")
        saved = None
        if status != PASS and asked.keep is not None:
            asked.keep.mkdir(parents=True, exist_ok=True)
            saved = asked.keep / f"{name}.h5"
            shutil.copyfile(whole or now, saved)
    return Checked(
        name=name,
        status=status,
        reasons=tuple(reasons),
        remarks=tuple(remarks),
        stale=bool(stale),
        verdict=replace(verdict, status=status, reasons=tuple(reasons)),
        drift=moved,
        kept=saved,
    )


class _Source:
    """Where the run comes from: made here on the golden's inputs, or a dump that was given; at the level that is asked for."""

    def __init__(
        self, store: Store, golden: Golden, run: Recorded, model: Model | None, asked: Asked, folder: Path, remarks: list[str]
    ) -> None:
        self.model, self.folder, self.asked, self.run = model, folder, asked, run
        self.repeated = asked.dump is None
        self._top8: dict[str, list] | None = None
        if self.repeated:
            self._tokens = store.tokens(golden, run)
            self._device = asked.device or self._device_of(run, remarks)

    def _device_of(self, run: Recorded, remarks: list[str]) -> str:
        device = run.inputs.device
        if device == "cpu" or self.asked.kernels is not None:
            return "cpu"
        from edge0verify.runtime.detect import open_device

        try:
            open_device(device)
        except Absent as absent:
            remarks.append(f"recorded on {run.manifest.device.name}; {absent}, so the processor's bits were held against it")
            return "cpu"
        return device

    def at(self, level: str) -> Path:
        """The run as a dump of `level`."""
        out = self.folder / f"now-{level}.h5"
        if out.exists():
            return out
        if self.repeated:
            made = RunAsked(
                model=self.model,
                tokens=self._tokens,
                variants=dict(self.run.inputs.variants),
                flags=dict(self.run.inputs.flags),
                device=self._device,
                kernels=self.asked.kernels,
                threads=self.asked.threads,
                commit=self.asked.commit,
                dirty=self.asked.dirty,
            )
            if self.asked.shared is None or self.asked.kernels is not None or level != "sketch":
                make(made, out, level)
                return out
            inputs = self.run.inputs
            key = (
                self.model.sha256,
                inputs.tokens,
                *(tuple(sorted(d.items())) for d in (inputs.variants, inputs.flags)),
                self._device,
            )
            return self.asked.shared.get(key, lambda path: make(made, path, level))
        with open_dump(self.asked.dump) as dump:
            if level in REDUCED and dump.level not in REDUCED:
                dump.verify()
                reduce(dump, out, level)
                return out
        return self.asked.dump

    def whole(self) -> Path | None:
        """The run with whole tensors, or None where only a sketch was given."""
        if self.repeated:
            return self.at("replay")
        with open_dump(self.asked.dump) as dump:
            return None if dump.level in REDUCED else self.asked.dump

    def top8(self, fresh: Dump) -> dict[str, list] | None:
        """Of the run; a sketch has none, then the golden's where the hashes are the same, else that of the whole run."""
        found = top8(fresh)
        if found is not None:
            return found
        if self._top8 is None:
            path = self.whole()
            if path is not None:
                with open_dump(path) as dump:
                    self._top8 = top8(dump)
        return self._top8


def _compare(source: _Source, fresh: Dump, kept: Dump, run: Recorded, asked: Asked) -> tuple[Verdict, Path | None]:
    """The verdict, and the dump with whole tensors where one was made."""
    refused = refusals(fresh, kept)
    if refused:
        return unlike_verdict(fresh, kept, refused), None
    rules = asked.rules or run.rules
    exact, model = rules.mode == EXACT, source.model
    policy = rules.policy("the golden's policy")
    if is_arrays(kept):
        return compare_arrays(fresh, kept, exact=exact, policy=policy), None
    if same_bits(fresh, kept):
        return judge(equal_results(fresh), policy=replace(policy, rules=()), **frame(fresh, kept, model)), None
    if run.level not in REDUCED:
        return compare_whole(fresh.path, kept.path, model, exact=exact, policy=policy, threads=asked.threads), None
    path = source.whole()
    if path is None or model is None or not fresh.manifest.variants:
        return compare_sketched(fresh, kept, {}, exact=exact), path
    with open_dump(path) as whole:
        wanted = list(dict.fromkeys(c.info.layer for c in changes(fresh, kept).values() if c.info.layer not in (None, "head")))
        alone = judge_alone(whole, model, layers=wanted, policy=policy, threads=asked.threads)
    return compare_sketched(fresh, kept, {(r.layer, r.tensor): r for r in alone}, exact=exact), path


def _drift(store: Store, golden: Golden, fresh: Dump, found: dict[str, list] | None) -> Drift | None:
    """From the anchor; None where the golden is the anchor still."""
    anchor = golden.anchor
    if anchor is None or anchor.n == golden.current.n:
        return None
    with store.dump(golden, anchor) as path, open_dump(path) as dump:
        return drift(golden, fresh, dump, run=anchor, top8=found)


def _stale(fresh: Dump, golden: Golden) -> str:
    now, was = fresh.manifest.kernel_source_sha256, golden.source
    return f"{was[:12]} then, {now[:12]} now" if now and was and now != was else ""


def _unproven(name: str, reason: str) -> Checked:
    return Checked(name=name, status=INCONCLUSIVE, reasons=(reason,))
