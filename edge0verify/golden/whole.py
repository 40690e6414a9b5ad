"""A run against a golden that is kept whole, and what both kinds of golden share: refusal of unlike runs, a verdict's frame."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edge0verify import __version__
from edge0verify.compare import Policy, judge
from edge0verify.dump.levels import KEYS
from edge0verify.dump.reader import Dump
from edge0verify.model import Model
from edge0verify.records import causes as names
from edge0verify.records.status import FAIL, PASS
from edge0verify.records.verdict import LayerResult, Verdict
from edge0verify.study.dump_claims import claim, engagement, label
from edge0verify.study.dumps import DumpRequest, compare_dumps
from edge0verify.study.inheritance import STAGE_OF

SUFFIX = {None: "", "codes": "", "d": ".d", "s": ".s"}
CASCADE = f" {names.CASCADE.name} "
PASSING = (names.EQUAL.name, names.CASCADE.name)
"""Causes that say nothing against a stage where no bit of its own may change."""


def refusals(fresh: Dump, golden: Dump) -> list[str]:
    """Why these are no two runs of one thing; a golden is never held against something else."""
    now, was = fresh.manifest, golden.manifest
    compared = (
        ("model", now.model_sha256, was.model_sha256),
        ("prompt", now.prompt.sha256, was.prompt.sha256),
        ("prompt tokens", now.prompt.tokens, was.prompt.tokens),
        ("level", now.level, was.level),
        ("variants", dict(now.variants) or None, dict(was.variants) or None),
        ("flags", dict(now.flags), dict(was.flags) or None),
        ("signature: rows", now.signature.rows, was.signature.rows),
        ("signature: layers", list(now.signature.layers), list(was.signature.layers)),
        ("signature: tensors", sorted(now.signature.tensors), sorted(was.signature.tensors)),
    )
    reasons = [
        f"unlike runs: {what}: the golden has {_short(y)}, this run {_short(x)}"
        for what, x, y in compared
        if x != y and (y is not None or what in ("level",)) and not (x is None and now.foreign)
    ]
    if not reasons:
        shapes = [p for p in sorted({*fresh.arrays, *golden.arrays}) if _form(fresh, p) != _form(golden, p)]
        reasons += [
            f"unlike runs: signature: {p}: the golden has {_form(golden, p)}, this run {_form(fresh, p)}" for p in shapes[:3]
        ]
    return reasons


def same_bits(fresh: Dump, golden: Dump) -> bool:
    """Whether every array has the bytes of the golden's, keys included."""
    return {p: i.sha256 for p, i in fresh.arrays.items()} == {p: i.sha256 for p, i in golden.arrays.items()}


def frame(fresh: Dump, golden: Dump, model: Model | None = None) -> dict[str, Any]:
    """What a verdict says beside its entries: a is this run, b the golden."""
    claims, parts = [claim(d, {}) for d in (fresh, golden)], ("D", "A1", "A2", "U")
    manifest = fresh.manifest
    labels = [label(c, None) for c in claims]
    sides = [engagement(c, [p for p in parts if p in c.variants], model, asked=name) for c, name in zip(claims, labels)]
    return {
        "a": labels[0],
        "b": labels[1],
        "engaged_a": sides[0],
        "engaged_b": sides[1],
        "model": {
            "name": None,
            "file": None if model is None else model.path.name,
            "sha256": manifest.model_sha256,
            "projection": None,
        },
        "prompt": {"name": None, "tokens": manifest.prompt.tokens, "sha256": manifest.prompt.sha256},
        "signature": {
            "tensors": list(manifest.signature.tensors),
            "layers": list(manifest.signature.layers),
            "rows": manifest.signature.rows,
            "keys": ["pass", "position", "accepted"],
            "level": manifest.level,
        },
        "environment": {"edge0verify": __version__, "numpy": np.__version__, "a": _origin(fresh), "b": _origin(golden)},
    }


def unlike_verdict(fresh: Dump, golden: Dump, reasons: list[str]) -> Verdict:
    """INCONCLUSIVE: nothing was compared."""
    return replace(judge([], unlike=reasons, **frame(fresh, golden)), reasons=tuple(reasons))


def compare_whole(fresh: Path, golden: Path, model: Model | None, *, exact: bool, policy: Policy, threads: int) -> Verdict:
    """The verdict of two dumps of whole tensors; exact: no bit may change but by what came in."""
    verdict = compare_dumps(DumpRequest(a=fresh, b=golden, model=model, policy=policy, threads=threads))
    return hold_exact(verdict) if exact else verdict


def hold_exact(verdict: Verdict) -> Verdict:
    """The verdict of a comparison where bits differ, under the rule that no stage may change a bit on inputs that did not."""
    if not verdict.layers:
        return verdict
    layers = tuple(_held(result) for result in verdict.layers)
    changed = [reason for result in layers if result.status == FAIL for reason in result.reasons]
    known = {reason for result in verdict.layers for reason in result.reasons}
    other = [reworded(reason) for reason in verdict.reasons if reason not in known]
    reasons = tuple(dict.fromkeys((*changed, *other))) or ("bits changed outside what was compared",)
    totals = {**verdict.totals, "status": {s: sum(r.status == s for r in layers) for s in verdict.totals["status"]}}
    return replace(verdict, status=FAIL, layers=layers, reasons=reasons, totals=totals)


def _held(result: LayerResult) -> LayerResult:
    """One sentence per entry that changed of itself: the comparison's own where a contract is broken."""
    own = {cause: n for cause, n in result.causes.items() if cause not in PASSING}
    if not own:
        return result
    stage = STAGE_OF.get(result.tensor.split(".")[0])
    where = f"layer {result.layer} {f'stage {stage} ' if stage else ''}{result.tensor}: "
    broken = [
        where + reworded(reason.partition(": ")[2]) for reason in result.reasons if result.status == FAIL and CASCADE not in reason
    ]
    if broken:
        return replace(result, reasons=tuple(broken))
    text = f"{where}{sum(own.values())} of {result.n} elements changed: {', '.join(f'{c} {n}' for c, n in own.items())}"
    text += "; every element keeps its contract, and this golden allows no change" if result.conforming["a"] == result.n else ""
    return replace(result, status=FAIL, reasons=(text,))


def reworded(reason: str, *, alone: bool = False) -> str:
    """A reason of a comparison in the words of a golden: a is this run, b the golden; alone: there is but this run."""
    text = re.sub(r"; (?:[a-z_0-9]+ = \S+ would have passed|no limit excuses it)", "", reason)
    for said, instead in (
        (r"\((?:neither a nor b conforms|a does not conform): (?:a|both): ", "("),
        (r" \((?:neither a nor b conforms|a does not conform)\)", ""),
        (r"\(a does not conform: ", "("),
        (r"\(neither a nor b conforms: ", "("),
    ):
        text = re.sub(said, instead, text)
    if alone:
        return re.sub(r": a (\S+), b (\S+), allowed", r": found \1, allowed", text)
    return re.sub(r": a (\S+), b (\S+)(,|;|$)", r": now \1, golden \2\3", text)


def equal_results(fresh: Dump) -> list[LayerResult]:
    """Entries of a run whose every array has the golden's bytes."""
    found = []
    for info in fresh.arrays.values():
        n = int(np.prod(info.shape, dtype=np.int64))
        if info.tensor not in KEYS and n:
            found.append(
                LayerResult(
                    layer=info.layer,
                    tensor=info.tensor + SUFFIX[info.part],
                    n=n,
                    equal=n,
                    equal_pct=100.0,
                    max_code_diff=None,
                    code_diffs=None,
                    scale_equal_pct=None,
                    rel_l2=None,
                    max_abs=None,
                    max_ulp=None,
                    corr=None,
                    conforming={"a": None, "b": None},
                    causes={names.EQUAL.name: n},
                    status=PASS,
                )
            )
    return found


def _form(dump: Dump, path: str) -> Any:
    info = dump.arrays.get(path)
    return None if info is None else f"{info.dtype.name} {list(info.shape)}"


def _origin(dump: Dump) -> Mapping[str, Any]:
    data = dump.manifest.to_json()
    return {name: data[name] for name in ("engine", "kernel_source_sha256", "device", "flags", "level", "time")}


def _short(value: object) -> str:
    return value[:16] if isinstance(value, str) else str(value)
