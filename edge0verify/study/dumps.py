"""Two dumps against each other: rows joined by key, each side judged on its own dumped inputs, inherited differences told apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from edge0verify import __version__
from edge0verify.compare import DEFAULT, Policy, judge
from edge0verify.dump.levels import REDUCED
from edge0verify.dump.reader import Dump, open_dump
from edge0verify.model import Model
from edge0verify.records.errors import InputError
from edge0verify.records.status import FAIL, PASS
from edge0verify.records.verdict import LayerResult, Verdict
from edge0verify.study import dump_head, dump_layer, reduced
from edge0verify.study.by_design import rule_of, summarise, with_summary
from edge0verify.study.dump_claims import Claim, claim, engagement, label
from edge0verify.study.dump_rows import LayerJoin, join_layer
from edge0verify.study.dump_tensors import check_widths, differing_rows
from edge0verify.study.inheritance import Inheritance, LayerDiff, Origin, inherit
from edge0verify.study.unlike import one_run, swapped_layers, unlike

NOTES = 12
"""Notes on passing entries that are kept beside the one sentence on the cascade."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class DumpRequest:
    """What to compare. stage: 'route', 'D', 'A', 'U', or None for all and the head."""

    a: Path
    b: Path
    model: Model | None = None
    """Whose weights give the bounds; used only if the dumps are of this model."""
    model_named: bool = False
    """The user named the model, so dumps that do not say which model they are of are taken to be of it."""
    stage: str | None = None
    declared_a: Mapping[str, str] = field(default_factory=dict)
    """Variants per part (D, A1, A2, U) that the user says a holds."""
    declared_b: Mapping[str, str] = field(default_factory=dict)
    layers: tuple[int, ...] | None = None
    rows: tuple[int, int] | None = None
    """Token positions first..last-1."""
    policy: Policy = DEFAULT
    threads: int = 1


def compare_dumps(
    request: DumpRequest, *, progress: Progress | None = None, observe: dump_layer.Observe | None = None
) -> Verdict:
    """The verdict on two dumps. InputError for a file that is not a whole dump, duplicate keys, a layer that is not there.

    `observe(evidence, results)` sees each tensor with its entries while both are at hand (pictures).
    """
    report = progress or (lambda what, done, total: None)
    with open_dump(request.a) as a, open_dump(request.b) as b:
        for dump in (a, b):                 # damage comes first: whatever else is wrong with the pair, it is an input error
            dump.verify()
        claims = (claim(a, request.declared_a), claim(b, request.declared_b))
        parts = [part for part in ("D", "A1", "A2", "U") if request.stage in (None, "route", part, part[0])]
        reasons = [
            *(f"{side}: {text}" for side, c in zip("ab", claims) for text in c.contradictions),
            *unlike(a, b),
            *one_run(a, b, claims[0].variants, claims[1].variants, parts),
        ]
        if reasons:
            return _verdict(request, a, b, claims, parts, [], unlike=reasons)
        if a.level in REDUCED:
            return _verdict(request, a, b, claims, parts, **reduced.compare_reduced(a, b, request.stage))
        return _Comparison(request, a, b, claims, parts, observe).run(report)


class _Comparison:
    """One comparison of two open dumps that are alike."""

    def __init__(
        self, request: DumpRequest, a: Dump, b: Dump, claims: tuple[Claim, Claim], parts: list[str],
        observe: dump_layer.Observe | None,
    ) -> None:
        self.observe = observe
        self.request, self.a, self.b, self.claims, self.parts = request, a, b, claims, parts
        self.model, self.no_model = _usable_model(request, a, b)
        if self.model is not None:
            for dump in (a, b):
                check_widths(dump, self.model.config)
        self.all_layers = [layer for layer in a.layers() if layer in b.layers()]

    def run(self, report: Progress) -> Verdict:
        wanted = self._wanted()
        joins = {layer: join_layer(self.a, self.b, layer, self.request.rows) for layer in self.all_layers}
        if self.request.rows is not None and joins and not any(len(join.tokens.a) for join in joins.values()):
            first, last = self.request.rows
            raise InputError(f"--rows {first}:{last}: expected token positions that both dumps hold, found none")
        apart = [*self._absent_layers(), *(text for layer in self.all_layers[:1] for text in _unjoined(joins[layer]))]
        other: list[str] = []
        diffs = []
        for at, layer in enumerate(self.all_layers):
            report("reading", at, len(self.all_layers))
            diffs.append((layer, self._differences(joins[layer])))
        report("reading", len(diffs), len(diffs))
        inheritance = inherit(diffs)
        results: list[LayerResult] = []
        unjudged: dict[str, str] = {}
        own: list[Origin] = []
        declared, rules = self._by_design(), (rule_of(self.a, self.model), rule_of(self.b, self.model))
        routes = []
        swapped = swapped_layers(self.a, self.b)
        failures = [*swapped]
        for at, layer in enumerate(wanted):
            report("comparing", at, len(wanted))
            found = dump_layer.compare_layer(
                join=joins[layer],
                model=self.model,
                variants=(self.claims[0].variants, self.claims[1].variants),
                declared=declared,
                rules=rules,
                stage=self.request.stage,
                inherited={stage: mask for (where, stage), mask in inheritance.inherited.items() if where == layer},
                earlier=inheritance.first(),
                policy=self.request.policy,
                threads=self.request.threads,
                observe=self.observe,
            )
            results += found.results
            failures += found.failures
            other += found.unproven
            unjudged |= found.unjudged
            own += found.own.values()
            routes += [found.routes] if found.routes is not None else []
        report("comparing", len(wanted), len(wanted))
        other += _orphans(inheritance, wanted)
        changed = summarise(routes, (self.claims[0].by_design, self.claims[1].by_design)) if declared else None
        other += changed.unproven if changed else ()
        top8 = None
        if self.request.stage is None and not self.all_layers:
            results = dump_head.compare_heads_alone(self.a, self.b, self.request.policy)
        if self.request.stage is None:
            same_so_far = bool(self.all_layers) and not inheritance.origins and not inheritance.orphans
            head = dump_head.compare_head(self.a, self.b, same_so_far=same_so_far)
            top8, failures, other = head.top8, failures + head.failures, other + head.unproven
        lead = apart + _unjudged(unjudged, results, self.a.manifest.foreign or self.b.manifest.foreign)
        if self.no_model and self.all_layers and (any(r.equal != r.n for r in results) or not results):
            lead.insert(0, self.no_model)
        verdict = _verdict(
            self.request, self.a, self.b, self.claims, self.parts, results, failures=failures, inconclusive=[*lead, *other],
            model=self.model, top8=top8, rows=max((len(joins[layer].tokens.a) for layer in wanted), default=0),
        )
        lead = swapped if verdict.status == FAIL else lead
        verdict = _with_cascade(_led_by(verdict, lead), inheritance.joined_by(own))
        return with_summary(verdict, changed) if changed else verdict

    def _wanted(self) -> list[int | str]:
        if self.request.layers is None:
            return self.all_layers
        absent = [layer for layer in self.request.layers if layer not in self.all_layers]
        if absent:
            there = ", ".join(map(str, self.all_layers))
            raise InputError(f"--layer {absent[0]}: expected a layer of both dumps ({there}), found it in neither or one")
        return list(self.request.layers)

    def _absent_layers(self) -> list[str]:
        """Layers that both manifests promise and neither dump holds: one on one side alone makes the runs unlike."""
        if self.request.layers is not None:
            return []
        promised = dict.fromkeys((*self.a.manifest.signature.layers, *self.b.manifest.signature.layers))
        return [f"layer {layer}: missing on side a, missing on side b" for layer in promised
                if layer not in self.a.layers() and layer not in self.b.layers()]

    def _differences(self, join: LayerJoin) -> LayerDiff:
        return LayerDiff(
            differs=differing_rows(join),
            positions=join.positions(),
            passes=None if join.keys is None else join.keys[:, 0],
            unmatched=join.unmatched_pairs(),
            reads_rows=any(c.variants.get("A1", "mmq") == "mmq" for c in self.claims),
        )

    def _by_design(self) -> str:
        """Flags in effect on one side only that declare another route."""
        mine, theirs = (set(c.by_design) for c in self.claims)
        return " ".join(sorted(mine ^ theirs))


def _usable_model(request: DumpRequest, a: Dump, b: Dump) -> tuple[Model | None, str]:
    """The model whose weights give bounds, or None and why."""
    said = {d.manifest.model_sha256 for d in (a, b)} - {None}
    model = request.model
    if model is not None and said == {model.sha256}:
        return model, ""
    if model is not None and not said and request.model_named:
        return model, ""
    if not said:
        return None, "nothing bounds the differences: the dumps do not say which model they are of, and none was named"
    given = "none was given" if model is None else f"the one at hand has sha256 {model.sha256[:16]}"
    return None, f"nothing bounds the differences: the dumps are of the model with sha256 {next(iter(said))[:16]}, {given}"


def _unjoined(join: LayerJoin) -> list[str]:
    """Accepted token rows on one side only; a draft that was taken back left nothing behind."""
    found = []
    for name, side, only in (("a", join.a, join.tokens.only_a), ("b", join.b, join.tokens.only_b)):
        n = len(only) if side.tokens is None else int(np.count_nonzero(side.tokens[only, 2]))
        if n:
            found.append(f"{n} only in {name}")
    return [f"rows that stand in one dump only were not compared: {', '.join(found)}"] if found else []


def _unjudged(tensors: Mapping[str, str], results: Sequence[LayerResult], foreign: bool) -> list[str]:
    """What no contract judged, by the reason why: said where something differs, and always of another engine's dump."""
    differing = {r.tensor.split(".")[0] for r in results if r.equal != r.n}
    by_reason: dict[str, list[str]] = {}
    for tensor, why in tensors.items():
        if foreign or tensor in differing:
            by_reason.setdefault(why, []).append(tensor)
    return [f"not judged by a contract: {', '.join(names)}: {why}" for why, names in by_reason.items()]


def _orphans(inheritance: Inheritance, wanted: Sequence) -> list[str]:
    return [
        f"layer {layer} ffn-in: {n} rows differ from position {first} on, though no earlier stage that was dumped does: "
        "rows of another prompt, or a difference in a part that belongs to no variant"
        for layer, (n, first) in inheritance.orphans.items()
        if layer in wanted
    ]


def _led_by(verdict: Verdict, lead: Sequence[str]) -> Verdict:
    """With these reasons first: they explain the others, and must not drown among them."""
    if verdict.status == PASS:
        return verdict
    return replace(verdict, reasons=(*lead, *(text for text in verdict.reasons if text not in lead)))


def _with_cascade(verdict: Verdict, inheritance: Inheritance) -> Verdict:
    """Name the stage where inherited differences began: one sentence for all entries that inherit."""
    n = verdict.totals["causes"].get("cascade", 0)
    if not n:
        return verdict
    began = [{"layer": o.layer, "stage": o.stage, "tensor": o.tensor, "rows": o.rows} for o in inheritance.origins]
    text = f"cascade: {n} elements differ by what came in; {inheritance.describe()}"
    notes = [note for r in verdict.layers if r.status == PASS for note in r.reasons if " cascade" not in note]
    totals = {**verdict.totals, "cascade_began": began, "notes": notes[:NOTES]}
    return replace(verdict, reasons=(*verdict.reasons, text), totals=totals)


def _verdict(
    request: DumpRequest,
    a: Dump,
    b: Dump,
    claims: tuple[Claim, Claim],
    parts: Sequence[str],
    results: Sequence[LayerResult],
    *,
    model: Model | None = None,
    rows: int | None = None,
    **more,
) -> Verdict:
    """rows: tokens that were joined; None where none were, and the signature has those of the dump."""
    used = request.stage if request.stage in ("D", "A", "U") else None
    labels = [label(c, used) for c in claims]
    sides = [engagement(c, parts, model, asked=name) for c, name in zip(claims, labels)]
    prompt = a.manifest.prompt
    return judge(
        results,
        stage=request.stage,
        a=labels[0],
        b=labels[1],
        engaged_a=sides[0],
        engaged_b=sides[1],
        policy=request.policy,
        model=_model(a, model),
        prompt={"name": None, "tokens": prompt.tokens, "sha256": prompt.sha256},
        signature={
            "tensors": sorted({r.tensor for r in results}),
            "layers": list(dict.fromkeys(r.layer for r in results)),
            "rows": a.manifest.signature.rows if rows is None else rows,
            "keys": ["pass", "position", "accepted"] if a.rows() is not None else [],
            "level": a.level,
        },
        environment={"edge0verify": __version__, "numpy": np.__version__, "a": _origin(a), "b": _origin(b)},
        **more,
    )


def _model(a: Dump, model: Model | None) -> dict:
    if model is None:
        return {"name": None, "file": None, "sha256": a.manifest.model_sha256, "projection": None}
    return {
        "name": model.config.name,
        "file": model.path.name,
        "sha256": model.sha256,
        "projection": model.projection and model.projection.name,
    }


def _origin(dump: Dump) -> dict:
    """Who made a dump, as far as a reader of the verdict needs it."""
    data = dump.manifest.to_json()
    told = ("engine", "kernel_source_sha256", "device", "flags", "level", "time")
    return {"file": str(dump.path), **{name: data[name] for name in told}}
