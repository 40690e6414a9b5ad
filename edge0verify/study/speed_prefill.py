"""The stages' shares of a prefill of the long prompt."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from edge0verify.engine import Engine
from edge0verify.model import encode, load_model, prompt
from edge0verify.study.speed import Share

STAGES = {"d": "D", "a1": "A1", "a2": "A2", "u": "U", "linear": "attention products"}
VARIANT = "w11"


class Timed:
    """Kernels whose calls are timed by stage; on a device a call lasts until its tensors are back."""

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels
        self.seconds = dict.fromkeys(STAGES.values(), 0.0)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kernels, name)
        if name not in STAGES:
            return found

        def call(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return found(*args, **options)
            finally:
                self.seconds[STAGES[name]] += time.perf_counter() - start

        return call


def prefill_shares(kernels: Any, *, tokens: int | None = None, threads: int | None = None) -> dict[str, Any]:
    """{tokens, variant, seconds, tokens_per_second, shares}: one prefill of the long prompt after another that warms up."""
    model, ids = load_model(), encode(prompt("long"))[:tokens]
    timed = Timed(kernels)
    engine = Engine(model, kernels=timed, variants=dict.fromkeys("DAU", VARIANT), threads=threads)
    engine.prefill(ids[: engine.chunk])
    engine.prefill(ids)
    timed.seconds = dict.fromkeys(STAGES.values(), 0.0)
    start = time.perf_counter()
    engine.prefill(ids)
    whole = time.perf_counter() - start
    rest = whole - sum(timed.seconds.values())
    shares = [Share(stage=s, seconds=t, share=t / whole) for s, t in [*timed.seconds.items(), ("attention and the rest", rest)]]
    return {"tokens": len(ids), "variant": VARIANT, "seconds": whole, "tokens_per_second": len(ids) / whole,
            "shares": [asdict(s) for s in shares]}
