"""Configurations that answer questions: an engine of this process with its launches counted, or an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from edge0verify.engine import Engine
from edge0verify.engine.route_flags import RouteFlags
from edge0verify.model import Model, Question
from edge0verify.study.endpoint import Endpoint
from edge0verify.study.evaluation import Local, Remote, ask_all
from edge0verify.study.evaluation_record import SideResult
from edge0verify.variants.flags import by_design
from edge0verify.variants.kernels import Kernels

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class LocalSide:
    """A model in this process. `variants` per part, mmvq where none is named; a float model runs without variants."""

    model: Model
    variants: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str | None] = field(default_factory=dict)
    drafter: bool = False
    threads: int = 1
    kernels: Kernels | None = None

    def configuration(self) -> dict[str, Any]:
        """What tells it from another."""
        projection = self.model.projection
        return {
            "kind": "local",
            "model": self.model.config.name,
            "sha256": self.model.sha256,
            "projection": projection and projection.name,
            "variants": dict(sorted(self.variants.items())),
            "flags": {name: value for name, value in sorted(self.flags.items()) if value is not None},
        }

    def run(self, questions: Sequence[Question], progress: Progress | None = None) -> SideResult:
        """Every question; InputError for variants that the model cannot run."""
        kernels = self.kernels or Kernels(threads=self.threads)
        route = RouteFlags.of(self.flags, self.model.config)
        engine = Engine(
            self.model,
            kernels=kernels,
            variants=self.variants or None,
            float_mode=not self.model.quantised and not self.variants,
            threads=self.threads,
            route=route,
        )
        before = kernels.launches()
        answers = ask_all(Local(engine, name="local", drafter=self.drafter), questions, progress)
        launches = {key: n - before.get(key, 0) for key, n in sorted(kernels.launches().items()) if n > before.get(key, 0)}
        flagged = by_design(self.flags)
        return SideResult(
            configuration=self.configuration(),
            answers=answers,
            not_engaged=(*_idle(engine, launches), *_no_route(engine, flagged, route)),
            launches=launches,
            routed=asdict(engine.routed) if flagged else None,
        )


@dataclass(frozen=True, kw_only=True)
class EndpointSide:
    """A model behind an endpoint."""

    endpoint: Endpoint

    def configuration(self) -> dict[str, Any]:
        """Address and the model's name there; a key is never part of it."""
        return {"kind": "endpoint", "url": self.endpoint.url, "model": self.endpoint.model}

    def run(self, questions: Sequence[Question], progress: Progress | None = None) -> SideResult:
        """Every question; Interrupted where the endpoint gives up."""
        answers = ask_all(Remote(self.endpoint, name="endpoint"), questions, progress)
        return SideResult(configuration=self.configuration(), answers=answers)


def _idle(engine: Engine, launches: Mapping[str, int]) -> list[str]:
    """A sentence for each variant whose own counter did not move."""
    if engine.float_mode:
        return []
    found = []
    for part, choice in engine.ops.choices.items():
        key = f"{part}/{choice.asked.name}/{choice.fmt}"
        if not launches.get(key):
            ran = ", ".join(f"{k} {n} times" for k, n in launches.items() if k.startswith(f"{part}/")) or "nothing"
            found.append(f"not engaged, {choice.asked.name} was asked for {part} and {key} was launched 0 times ({ran})")
    return found


def _no_route(engine: Engine, flagged: Sequence[str], route: RouteFlags) -> list[str]:
    """A sentence where route flags are set and no route came out other than without them."""
    if not flagged or engine.routed.acted:
        return []
    return [route.idle() or f"not engaged, {' '.join(flagged)} changed no route"]
