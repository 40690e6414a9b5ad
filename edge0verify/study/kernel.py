"""One kernel alone: many small cases, each output beside its own oracle and bound, guards round every buffer.

Side a is the kernel under test; side b is the project's own kernel: `ref` for a built-in variant, for a user's library the
built-in kernel of the contract that the library claims.  Each side is judged by its contract, so b only names the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edge0verify.compare import compare, judge
from edge0verify.numerics.contracts import contract
from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Engagement, Evidence
from edge0verify.records.verdict import LayerResult, Verdict
from edge0verify.study import kernel_cases
from edge0verify.study.environment import environment
from edge0verify.study.evidence import Scene, evidence
from edge0verify.study.kernel_cases import Case, Inputs, Shape, Weights
from edge0verify.study.kernel_guard import GuardedDeviceKernels, GuardedKernels, between_nans
from edge0verify.study.kernel_library import WRITES, Called, Library
from edge0verify.study.on_device import CPU, Refused, close_kernels, describe_kernels, settled
from edge0verify.study.replay import PARTS, StageOutput
from edge0verify.variants.registry import Choice, find, resolve

FEWEST_BIAS = 10_000
MOST_ENDINGS = 3
"""Crashes and hangs of a library after which the rest of its cases is left."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to test: `stage` 'D', 'U', 'A1', 'A2' or 'A' (both), `variant` a name or alias."""

    stage: str
    variant: str
    seed: int
    fmt: str | None = None
    shape: Shape | None = None
    isa: str | None = None
    threads: int = 1
    libraries: dict[str, Library] | None = None
    """By part; then they are tested instead of the built-in kernel, by the contract of `variant`."""
    allow_refused: bool = False
    kernels: GuardedKernels | None = None
    """Other kernels to test than the product's own (tests plant faults with it)."""
    device: str = CPU
    """Where the built-in kernel runs that is tested; the one beside it runs here."""


@dataclass(frozen=True, kw_only=True)
class CaseReport:
    """What one case showed, for the table."""

    part: str
    case: str
    shape: str
    values: int
    status: str
    error_over_bound: float | None
    """Largest |y - t|/B over the row tensors."""
    largest_bias: float | None
    """Largest |t| of the bias test's statistics; None where it was not made."""
    results: tuple[LayerResult, ...]
    notes: tuple[str, ...] = ()
    """Guards, crashes, refusals."""

    def as_dict(self) -> dict:
        return {
            "part": self.part,
            "case": self.case,
            "shape": self.shape,
            "values": self.values,
            "status": self.status,
            "error_over_bound": self.error_over_bound,
            "largest_bias_t": self.largest_bias,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Report:
    verdict: Verdict
    cases: tuple[CaseReport, ...]
    seed: int


def verify(request: Request, progress: Callable[[str, int, int], None] | None = None) -> Report:
    """Run every case of every part. InputError for an unknown variant or format, a shape the stage cannot have, a bad library."""
    parts = PARTS.get(request.stage, (request.stage,))
    plan = [(part, case) for part in parts for case in _cases(request, part)]
    reports: list[CaseReport] = []
    runner = _Runner(request)
    case = None
    try:
        runner.open()
        for at, (part, case) in enumerate(plan):
            if progress:
                progress("cases", at, len(plan))
            reports.append(runner.run(part, case))
    except Refused as error:
        status, reason = settled(error, f"{request.variant} on {request.device}" + (f", {part} {case.name}" if case else ""))
        found = _verdict(request, runner, [])          # a device that failed takes what it said before along
        return Report(replace(found, status=status, reasons=(reason,)), (), request.seed)
    finally:
        close_kernels(runner.tested)
    if progress:
        progress("cases", len(plan), len(plan))
    return Report(_verdict(request, runner, reports), tuple(reports), request.seed)


def _cases(request: Request, part: str) -> tuple[Case, ...]:
    fmt = _format(request, part)
    if request.shape is None:
        return kernel_cases.sweep(part, fmt)
    shape = request.shape if part in ("A1", "A2") else replace(request.shape, experts=1, slots=1)
    kernel_cases.check(part, fmt, shape)
    return kernel_cases.of_shape(part, shape)


def _format(request: Request, part: str) -> str:
    """The weight format of a part, one that the stage has kernels for."""
    fmt = request.fmt or kernel_cases.FORMAT[part]
    resolve(part, request.variant, fmt)
    return fmt


class _Model:
    """The weights of one case, by the names that evidence asks for."""

    def __init__(self, weights: tuple[Weights, ...]) -> None:
        self._weights = weights

    def tensor(self, name: str) -> Weights:
        return self._weights[0]

    def layer(self, layer: int | str, part: str) -> Weights:
        return self._weights[1 if part == "ffn_up_exps" else 0]


class _Runner:
    """Runs cases and keeps the launches of both sides."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.own = GuardedKernels(threads=request.threads)
        self.tested = self.own
        self.launches: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self.wanted: tuple[dict[str, None], dict[str, None]] = ({}, {})
        for part in PARTS.get(request.stage, (request.stage,)):
            for side, name in enumerate(self.names(part)):
                library = (request.libraries or {}).get(part) if side == 0 else None
                key = f"{name}/{_format(request, part)}" if library is None else library.symbol
                self.wanted[side][f"{part}/{key}"] = None
        self.failures: list[str] = []
        self.inconclusive: list[str] = []
        self.endings: dict[str, int] = {}

    def open(self) -> None:
        """Makes the kernels that are tested; what an absent device raises passes through."""
        if self.request.device == CPU:
            self.tested = self.request.kernels or GuardedKernels(isa=self.request.isa, threads=self.request.threads)
        else:
            self.tested = GuardedDeviceKernels.on(self.request.device)

    def names(self, part: str) -> tuple[str, str]:
        """Canonical variant names of a and b: each side's contract."""
        name = find(part, self.request.variant).name
        if self.request.libraries is not None:
            return name, name
        return name, "mmvq" if name == "ref" else "ref"

    def run(self, part: str, case: Case) -> CaseReport:
        """Run one case on both sides and judge it."""
        fmt = _format(self.request, part)
        names = self.names(part)
        label = f"{part} {case.name}" if self.request.stage == "A" else case.name
        library = (self.request.libraries or {}).get(part)
        if library is not None and self.endings.get(part, 0) >= MOST_ENDINGS:
            note = f"not run after {MOST_ENDINGS} crashes or hangs"
            self.inconclusive.append(f"{label}: {note}")
            return self._empty(part, case, statuses.INCONCLUSIVE, (note,))
        inputs = kernel_cases.make(part, fmt, case, self.request.seed)
        notes: list[str] = []
        if library is not None:
            called = self._call(library, part, names[0], inputs)
            notes += called.failures
            self.failures += [f"{label}: {text}" for text in called.failures]
            if called.refused:
                notes.append("the kernel refuses this shape")
                if not self.request.allow_refused:
                    self.inconclusive.append(f"{label}: the kernel refuses this shape ({case.shape})")
            if not called.tensors:
                alone = statuses.PASS if self.request.allow_refused else statuses.INCONCLUSIVE
                status = statuses.FAIL if called.failures else alone
                return self._empty(part, case, status, tuple(notes))
            a, writes = StageOutput(called.tensors, ()), library.writes
        else:
            a, writes = self._built_in(0, part, names[0], inputs), None
            notes += self._guards(label, self.tested)
        b = self._built_in(1, part, names[1], inputs)
        return self._judge(part, case, label, names, inputs, (a, b), writes, notes)

    def _call(self, library: Library, part: str, name: str, inputs: Inputs) -> Called:
        key = f"{part}/{library.symbol}"
        before = library.calls
        called = library.call(contract(part, name), inputs)
        if not called.returned:
            self.endings[part] = self.endings.get(part, 0) + 1
        self.launches[0][key] = self.launches[0].get(key, 0) + library.calls - before
        # What the kernel was given stands beside what it wrote: evidence of A2 is built on the operands.
        tensors = dict(called.tensors)
        if part == "A2" and tensors:
            tensors["a-h"] = inputs.operands(contract(part, name).operand)
        return replace(called, tensors=tensors)

    def _built_in(self, side: int, part: str, name: str, inputs: Inputs) -> StageOutput:
        kernels = (self.tested, self.own)[side]
        choice = resolve(part, name, inputs.weights[0].fmt)
        before = kernels.launches()
        tensors = _run(kernels, part, choice, inputs)
        for key, n in kernels.launches().items():
            if n > before.get(key, 0):
                self.launches[side][key] = self.launches[side].get(key, 0) + n - before.get(key, 0)
        return StageOutput(tensors, (choice,))

    def _guards(self, label: str, kernels: GuardedKernels) -> list[str]:
        touched = kernels.touched()
        if not touched:
            return []
        self.failures.append(f"{label}: {touched} guard bytes beside an output were written")
        return [f"{touched} guard bytes written"]

    def _judge(self, part, case, label, names, inputs, outputs, writes, notes) -> CaseReport:
        scene = Scene(
            model=_Model(inputs.weights),
            layer=label,
            inputs=_stage_inputs(part, inputs),
            a=outputs[0],
            b=outputs[1],
            variants=names,
            rows=_keys(case.shape.n),
            threads=self.request.threads,
        )
        results: list[LayerResult] = []
        worst, bias, values = None, None, 0
        for item in evidence(part, scene):
            if writes is not None and item.tensor not in writes:
                continue
            item = _with_bias(item, case.random)
            results.extend(compare(item, threads=self.request.threads))
            if item.kind == "rows":
                values += item.a.rows.size
                worst = _largest(worst, error_over_bound(item))
            bias = _largest(bias, largest_t(item.a.bias))
        self.own.touched()
        status = statuses.worst_status([r.status for r in results] + ([statuses.FAIL] if notes else []))
        return CaseReport(
            part=part, case=case.name, shape=str(case.shape), values=values, status=status, error_over_bound=worst,
            largest_bias=bias, results=tuple(results), notes=tuple(notes),
        )

    def _empty(self, part: str, case: Case, status: str, notes: tuple[str, ...]) -> CaseReport:
        return CaseReport(part=part, case=case.name, shape=str(case.shape), values=0, status=status, error_over_bound=None,
                          largest_bias=None, results=(), notes=notes)


def _run(kernels: GuardedKernels, part: str, choice: Choice, inputs: Inputs) -> dict:
    """The tensors of one part by built-in kernels; names as in a dump."""
    packed = [kernels.pack(w.fmt, w.raw) for w in inputs.weights]
    rules = choice.runs.rules
    if part == "D":
        out = kernels.d(choice.runs, packed[0], between_nans(inputs.x))
        return {"d-hq": out.hq, "d-xl": out.xl, "d-xlq": out.xlq}
    if part == "U":
        out = kernels.u(choice.runs, packed[0], between_nans(inputs.x))
        return {"u-ylq": out.ylq, "u": out.u}
    if part == "A1":
        operands = inputs.operands("mmvq")
        out = kernels.a1(choice.runs, *packed, between_nans(inputs.x), operands, inputs.ids, capture=True)
        return {"a-gate": out.gate, "a-up": out.up, "a-h": out.h}
    operands = inputs.operands(rules.operand)
    out = kernels.a2(choice.runs, packed[0], operands, inputs.ids, inputs.route_weights)
    return {"a-h": operands, "a-y": out.y, "a-yl": out.yl}


def _stage_inputs(part: str, inputs: Inputs) -> dict:
    """What evidence of that part reads."""
    if part == "D":
        return {"ffn-in": inputs.x}
    if part == "U":
        return {"a-yl": inputs.x}
    if part == "A1":
        return {"d-xl": inputs.x, "d-xlq": inputs.operands("mmvq"), "route-ids": inputs.ids}
    return {"a-h-rows": inputs.x.astype(np.float64), "route-ids": inputs.ids, "route-weights": inputs.route_weights}


def _keys(n: int) -> np.ndarray:
    position = np.arange(n, dtype=np.int32)
    return np.stack([np.zeros_like(position), position, np.ones_like(position)], axis=1)


def _with_bias(item: Evidence, random: bool) -> Evidence:
    """The bias test only where rounding is random and the values are many."""
    def side(s):
        keep = random and s.bias is not None and s.bias["n"] >= FEWEST_BIAS
        return s if keep else replace(s, bias=None)

    return replace(item, a=side(item.a), b=side(item.b))


def error_over_bound(item: Evidence) -> float | None:
    """Largest |y - t|/B of side a's rows, over the values that are finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        ratio = np.abs(item.a.rows - item.a.t) / item.a.bound
    ratio = ratio[np.isfinite(ratio)]
    return float(ratio.max()) if ratio.size else None


def largest_t(bias: dict | None) -> float | None:
    """Largest |t| of a bias test's statistics."""
    if bias is None:
        return None
    worst = (bias[key] for key in ("block_t", "column_t", "column_sign_t"))
    every = [bias["mean_t"], bias["sign_t"], bias["gain_t"], *(found["t"] for found in worst if found)]
    return max(map(abs, every))


def _largest(a: float | None, b: float | None) -> float | None:
    return max((v for v in (a, b) if v is not None), default=None)


def _verdict(request: Request, runner: _Runner, reports: list[CaseReport]) -> Verdict:
    parts = PARTS.get(request.stage, (request.stage,))
    name, other = runner.names(parts[0])
    engaged = [
        Engagement(asked=asked, wanted=tuple(wanted), launches=launches)
        for asked, wanted, launches in zip((name, other), runner.wanted, runner.launches)
    ]
    libraries = request.libraries or {}
    a = ", ".join(f"{lib.path.name}:{lib.symbol}" for lib in libraries.values()) or name
    found = {**environment(runner.tested, request.threads), "seed": request.seed, "cases": [r.as_dict() for r in reports]}
    if request.device != CPU:
        opened = runner.tested is not runner.own
        facts = describe_kernels(runner.tested) if opened else {"device": request.device}
        found |= {"device": request.device, "devices": {"a": facts, "b": describe_kernels(runner.own)}}
    results = [result for report in reports for result in report.results]
    return judge(
        results, stage=request.stage, a=a, b=other, engaged_a=replace(engaged[0], asked=a), engaged_b=engaged[1], reference=None,
        failures=tuple(runner.failures), inconclusive=tuple(runner.inconclusive), environment=found,
        signature={
            "tensors": sorted({r.tensor for r in results}), "layers": list(dict.fromkeys(r.layer for r in results)),
            "rows": sum(r.values for r in reports), "keys": ["pass", "position", "accepted"],
        },
    )


def libraries_for(
    stage: str, path: Path, symbols: str, writes: tuple[str, ...] | None, timeout_s: float
) -> Iterator[tuple[str, Library]]:
    """The library of each part of `stage`; `symbols` names one per part, separated by commas."""
    parts, names = PARTS.get(stage, (stage,)), symbols.split(",")
    if len(parts) != len(names):
        raise InputError(f"--symbol {symbols}: expected {len(parts)} for stage {stage} ({', '.join(parts)}), found {len(names)}")
    known = [tensor for part in parts for tensor in WRITES[part]]
    unknown = [tensor for tensor in writes or () if tensor not in known]
    if unknown:
        raise InputError(f"--writes: expected some of {', '.join(known)}, found {unknown[0]}")
    for part, name in zip(parts, names):
        chosen = tuple(t for t in WRITES[part] if writes is None or t in writes)
        if not chosen:
            raise InputError(f"--writes: expected at least one tensor of {part} ({', '.join(WRITES[part])}), found none")
        yield part, Library(path, name, chosen, timeout_s)
