"""One cell in a process of its own: `python -m edge0verify.nightly.child SPEC.json OUT.json`.

What it finds is in OUT.json; it ends with the cell's exit code. A crash leaves no OUT.json, and is a result too.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError
from edge0verify.records.status import INCONCLUSIVE
from edge0verify.records.verdict import Verdict, plain

INPUT, INTERNAL = "INPUT", "INTERNAL"


def run_cell(spec: Mapping[str, Any]) -> dict[str, Any]:
    """{status, exit_code, reasons, remarks, metrics, golden, dump, digest, verdict} of a cell. InputError as its command would."""
    from edge0verify.runtime.detect import Absent

    try:
        return {"golden": _golden, "pair": _pair, "stable": _stable}[spec["kind"]](spec)
    except Absent as absent:
        return _answer(INCONCLUSIVE, [f"skipped: {absent}"])


def _answer(
    status: str, reasons, *, verdict: Verdict | None = None, metrics: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    document = None if verdict is None else verdict.to_json()
    digest = None
    if document is not None:
        kept = json.dumps([document["layers"], document["top8"]], sort_keys=True)
        digest = hashlib.sha256(kept.encode()).hexdigest()
    found = {
        "status": status,
        "exit_code": statuses.exit_code(status),
        "reasons": list(reasons),
        "remarks": [],
        "golden": None,
        "dump": None,
        "digest": digest,
        "verdict": document,
    }
    return plain({**found, "metrics": {k: v for k, v in (metrics or {}).items() if v is not None}, **more})


def _golden(spec: Mapping[str, Any]) -> dict[str, Any]:
    from edge0verify.golden.check import Asked, check
    from edge0verify.golden.store import Store

    store, name = Store(spec["store"]), spec["golden"]
    if name not in store.names():
        return _answer(INCONCLUSIVE, [f"skipped: no golden {name} in {spec['store']}"])
    device = spec["device"]
    asked = Asked(
        device=None if device == "recorded" else device,
        threads=spec["threads"],
        keep=Path(spec["keep"]),
        commit=spec["commit"],
        dirty=spec["dirty"],
    )
    found = check(store, name, asked)
    current = store.open(name).current
    metrics = {} if found.verdict is None else _figures(found.verdict)
    if found.drift is not None:
        metrics |= {
            "anchor_equal_pct": found.drift.equal_pct,
            "anchor_top8_move": found.drift.top8_move,
            "anchor_accepted": found.drift.accepted,
        }
        metrics |= {f"anchor_first_{tensor}": value for tensor, value in found.drift.first_l2.items()}
    return _answer(
        found.status,
        found.reasons,
        verdict=found.verdict,
        metrics=metrics,
        remarks=list(found.remarks),
        golden=current.dump if current else None,
        dump=None if found.kept is None else str(found.kept),
    )


def _pair(spec: Mapping[str, Any]) -> dict[str, Any]:
    from edge0verify.compare import DEFAULT, load_policy
    from edge0verify.model import encode, prompt
    from edge0verify.study.pair import Request, compare_variants

    model = _model(spec)
    wanted = spec["layers"]
    request = Request(
        model=model,
        prompt=spec["prompt"],
        tokens=encode(prompt(spec["prompt"])),
        stage=spec["stage"],
        a=spec["a"],
        b=spec["b"],
        layers=None if wanted is None else tuple(wanted),
        threads=spec["threads"],
        policy=DEFAULT if spec["policy"] is None else load_policy(Path(spec["policy"])),
    )
    kernels_for = None
    if spec["device"] != "cpu":
        from edge0verify.variants.device_kernels import kernels_on

        kernels = kernels_on(spec["device"])
        kernels_for = lambda side, layer: kernels  # noqa: E731
    verdict = compare_variants(request, kernels_for=kernels_for)
    return _answer(verdict.status, verdict.reasons, verdict=verdict, metrics=_figures(verdict))


def _stable(spec: Mapping[str, Any]) -> dict[str, Any]:
    from edge0verify.model import encode, prompt
    from edge0verify.study.drift_runs import RunsRequest, over_runs
    from edge0verify.study.pair import describe_prompt

    model, tokens = _model(spec), encode(prompt(spec["prompt"]))
    path, projection = spec["model"]["path"], spec["model"]["projection"]
    options = [word for flag, value in (("--model", path), ("--projection", projection)) if value for word in (flag, value)]
    found = over_runs(
        RunsRequest(
            model=model,
            over="runs",
            stage=spec["stage"],
            variant=spec["variant"],
            runs=2,
            threads=spec["threads"],
            arguments=(*options, "--prompt", spec["prompt"]),
            prompts=(describe_prompt(spec["prompt"], tokens),),
        )
    )
    return _answer(
        found.status, found.reasons, metrics={"runs": len(found.findings["runs"])}, remarks=[f"two runs: {found.findings['kind']}"]
    )


def _model(spec: Mapping[str, Any]):
    from edge0verify.model import DEFAULT_Q4_PROJECTION, load_model

    projection = spec["model"]["projection"]
    return load_model(spec["model"]["path"], DEFAULT_Q4_PROJECTION if projection == "q4_0" else projection)


def _figures(verdict: Verdict) -> dict[str, float | None]:
    """What is followed over nights."""
    rel = [r.rel_l2 for r in verdict.layers if isinstance(r.rel_l2, float)]
    return {
        "compared": verdict.totals["n"],
        "equal_pct": verdict.totals["equal_pct"],
        "codes_equal_pct": verdict.totals["codes_equal_pct"],
        "max_rel_l2": max(rel, default=None),
        "top8_move": None if verdict.top8 is None else verdict.top8["max_move"],
    }


def _who() -> dict[str, str]:
    """Which binary answered: two commits that ran the same one are no two builds."""
    from edge0verify.variants.kernels import Kernels, kernel_source_sha256

    return {"binary_sha256": Kernels(threads=1).binary_sha256(), "kernels_sha256": kernel_source_sha256()}


def main(argv: list[str]) -> int:
    spec = json.loads(Path(argv[0]).read_text())
    try:
        found = run_cell(spec)
    except InputError as wrong:
        found = {"status": INPUT, "exit_code": statuses.EXIT_INPUT, "reasons": [str(wrong)]}
    except Exception as wrong:
        import traceback

        traceback.print_exc()
        found = {"status": INTERNAL, "exit_code": statuses.EXIT_INTERNAL, "reasons": [f"{type(wrong).__name__}: {wrong}"]}
    found |= _who()
    partial = Path(argv[1] + ".partial")
    partial.write_text(json.dumps(found, allow_nan=False))
    os.replace(partial, argv[1])
    return found["exit_code"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
