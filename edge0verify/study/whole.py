"""Two configurations of the whole model: both run over one prompt, and their dumps compared, stage by stage.

Every stage is judged on the inputs that each run gave it, so kernels are held to their contracts also where a route flag makes the
runs differ by design. How far such a flag moves the output is said beside that, and what a number of questions can show of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from edge0verify import model as models
from edge0verify.compare import DEFAULT, Policy, hold_movement, movement
from edge0verify.engine import Engine
from edge0verify.engine.route_flags import RouteFlags
from edge0verify.model import Model
from edge0verify.numerics.stats import PairedResult
from edge0verify.records.verdict import Verdict
from edge0verify.study.dump_layer import Observe
from edge0verify.study.dumping import RunRequest, run
from edge0verify.study.dumps import DumpRequest, compare_dumps
from edge0verify.study.evaluation import Asked, Local, ask_all, embedded_questions, paired
from edge0verify.study.spread import FOUR, Said, Voices, accepted, spread
from edge0verify.variants.flags import by_design
from edge0verify.variants.kernels import Kernels

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """How one side runs. `flags` as `variants.flags.read_flags` gives them; `variants` per part."""

    flags: Mapping[str, str | None] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    kernels: Kernels | None = None
    """Other kernels than the product's; tests plant compiled faults with them."""

    def engine(self, model: Model, threads: int) -> Engine:
        route = RouteFlags.of(self.flags, model.config)
        kernels = self.kernels or Kernels(threads=threads)
        return Engine(model, kernels=kernels, variants=self.variants, threads=threads, route=route)


@dataclass(frozen=True, kw_only=True)
class WholeRequest:
    """What to compare; `stage`, `layers` and `rows` narrow what is judged, as in `DumpRequest`."""

    model: Model
    tokens: np.ndarray
    a: Configuration
    b: Configuration
    prompt: str | None = None
    stage: str | None = None
    layers: tuple[int | str, ...] | None = None
    rows: tuple[int, int] | None = None
    policy: Policy = DEFAULT
    threads: int = 1
    questions: int = 0
    """Embedded questions to put to both."""
    prompts: tuple[str, ...] = FOUR
    """Over which the movement of the top 8 is measured."""
    cascade: bool = False
    """Also the movement on `prompts` beside the spread of the accepted variants of A; without the spread where a route flag
    makes the sides differ."""

    @property
    def flagged(self) -> bool:
        """Whether a flag declares that the sides say other things."""
        return by_design(self.a.flags) != by_design(self.b.flags)


def compare_whole(request: WholeRequest, *, progress: Progress | None = None, observe: Observe | None = None) -> Verdict:
    """The verdict on two configurations. InputError for flags without meaning and for more questions than there are."""
    report = progress or (lambda what, done, total: None)
    with tempfile.TemporaryDirectory(prefix="edge0verify-") as folder:
        paths = [Path(folder, f"{side}.h5") for side in "ab"]
        for path, side in zip(paths, (request.a, request.b)):
            run(
                RunRequest(
                    model=request.model, tokens=request.tokens, out=path, variants=side.variants, flags=side.flags,
                    threads=request.threads,
                ),
                kernels=side.kernels,
                progress=lambda done, total, path=path: report(f"running {path.stem}", done, total),
            )
        verdict = compare_dumps(
            DumpRequest(
                a=paths[0], b=paths[1], model=request.model, stage=request.stage, layers=request.layers, rows=request.rows,
                policy=request.policy, threads=request.threads,
            ),
            progress=report,
            observe=observe,
        )
    verdict = _without_files(verdict, request.prompt)
    if request.flagged or request.cascade:
        moved = _movement(request, report)
        verdict = replace(hold_movement(verdict, moved, request.policy), top8=moved)
    if request.questions:
        verdict = _with_questions(verdict, request, report)
    return verdict


def _without_files(verdict: Verdict, prompt: str | None) -> Verdict:
    """The dumps were not kept, so nothing may point at them."""
    environment = {key: {**v, "file": None} if key in ("a", "b") else v for key, v in verdict.environment.items()}
    return replace(verdict, environment=environment, prompt={**(verdict.prompt or {}), "name": prompt})


def _movement(request: WholeRequest, report: Progress) -> dict[str, Any]:
    tokens = [models.encode(models.prompt(name)) for name in request.prompts]
    said = []
    for at, side in enumerate((request.a, request.b)):
        report("whole model", at, 2)
        said.append(Said.by(side.engine(request.model, request.threads), request.prompts, tokens).last)
    report("whole model", 2, 2)
    moved = movement(*said)
    if request.cascade:
        voices = Voices(request.model, "A", prompts=request.prompts, threads=request.threads, progress=report)
        moved["spread"] = spread(voices, accepted(request.model, "A"))
    return moved


def _with_questions(verdict: Verdict, request: WholeRequest, report: Progress) -> Verdict:
    asked = embedded_questions(request.questions)
    answers: list[tuple[Asked, ...]] = []
    for name, side in (("a", request.a), ("b", request.b)):
        asker = Local(side.engine(request.model, request.threads), name=name)
        answers.append(ask_all(asker, asked, lambda done, total: report("questions", done, total)))
    result: PairedResult = paired(*answers)
    notes = [*verdict.totals.get("notes", ()), *(f"questions: {text}" for text in result.sentences())]
    return replace(verdict, totals={**verdict.totals, "questions": result.to_json(), "notes": notes})
