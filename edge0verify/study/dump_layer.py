"""One layer of two dumps: evidence for every tensor, each side beside its own oracle, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from edge0verify.compare import Policy, compare
from edge0verify.compare.causes import route_flip
from edge0verify.dump import levels
from edge0verify.dump.ids import valid
from edge0verify.model import Model
from edge0verify.records.evidence import Evidence, LoneRows, Router
from edge0verify.records.verdict import LayerResult
from edge0verify.study import dump_experts
from edge0verify.study.by_design import LayerRoutes, Rule, by_rule, layer_routes
from edge0verify.study.dump_replay import Remains, remains
from edge0verify.study.dump_rows import LayerJoin, of_pairs, take
from edge0verify.study.dump_stream import is_large, streamed
from edge0verify.study.dump_tensors import expected, form, gaps, held_before, in_words, nonfinite, nothing, per_token, same_stored
from edge0verify.study.dump_values import OnDemand, Value, cut_own, judged
from edge0verify.study.evidence import PAIR_KEYS, TOKEN_KEYS
from edge0verify.study.inheritance import OUTPUTS, STAGE_OF, Origin
from edge0verify.study.own import Own, OwnLayer, Shared
from edge0verify.study.replay import PARTS

Observe = Callable[[Evidence, list[LayerResult]], None]

READS = {"route": ("ffn-in",), "D": ("ffn-in",), "A": ("d-xl", "d-xlq", "route-ids", "route-weights"), "U": ("a-yl",)}
"""What a stage reads, beside what it writes itself."""
EXPERTS = "experts"
"""Of route-ids or pairs: where they name none of the model's, there are no weights to judge by."""
JUDGED_FROM = {
    "route-logits": ("ffn-in",), "route-ids": ("route-logits",), "route-weights": ("route-logits",),
    "d-hq": ("ffn-in",), "d-xl": ("ffn-in",), "d-xlq": ("ffn-in", "d-xl"),
    "a-gate": ("d-xl", "d-xlq", EXPERTS), "a-up": ("d-xl", "d-xlq", EXPERTS), "a-h": ("d-xl", "d-xlq", EXPERTS),
    "a-y": ("a-h", EXPERTS), "a-yl": ("a-h", "route-weights", EXPERTS),
    "u-ylq": ("a-yl",), "u": ("a-yl",),
}
"""Dumped tensors from which each is judged: where these are not finite, nothing can be."""
BY_FLAG = ("route-ids", "route-weights")
"""What a route flag changes on identical inputs; the router's logits it leaves alone."""
NOT_FIT = "their inputs are not finite or name no expert"
PART_OF = {"a-gate": "A1", "a-up": "A1", "a-h": "A1", "a-y": "A2", "a-yl": "A2"}


@dataclass
class Found:
    """What one layer gave."""

    results: list[LayerResult] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    unjudged: dict[str, str] = field(default_factory=dict)
    """Tensor -> why no contract judged it on some side."""
    own: dict[str, Origin] = field(default_factory=dict)
    """Stage -> what its variants make different on identical inputs, where the dumped inputs differ."""
    routes: LayerRoutes | None = None
    """What flags changed, where they declare a difference and both sides hold their routes."""


def compare_layer(
    *,
    join: LayerJoin,
    model: Model | None,
    variants: tuple[Mapping[str, str], Mapping[str, str]],
    declared: str,
    rules: tuple[Rule, Rule],
    stage: str | None,
    inherited: Mapping[str, np.ndarray],
    earlier: str,
    policy: Policy,
    threads: int,
    observe: Observe | None = None,
) -> Found:
    """Every tensor of `stage` (None: of all, and those that the schema does not know) in one layer.

    `observe(evidence, results)` sees each tensor with its entries.
    """
    work = _Layer(join, model, variants, declared, rules, inherited, earlier, policy, threads, observe)
    stages = tuple(OUTPUTS) if stage is None else (stage,)
    written = [tensor for s in stages for tensor in OUTPUTS[s]]
    read = [t for t in dict.fromkeys(tensor for s in stages for tensor in READS[s]) if t not in written]
    for tensor in read:
        work.check_input(tensor)
    for tensor in written:
        work.check(tensor)
    if stage is None:
        for tensor in sorted(work.names - set(written) - set(read)):
            work.check(tensor)
    if declared:
        work.found.routes = layer_routes(join, work.values, rules)
    return work.found


class _Layer:
    """The tensors of one layer on both sides, read when they are asked for."""

    def __init__(self, join, model, variants, declared, rules, inherited, earlier, policy, threads, observe) -> None:
        self.observe, self.rules = observe, rules
        self.join, self.model, self.variants, self.declared = join, model, variants, declared
        self.inherited, self.earlier, self.policy, self.threads = inherited, earlier, policy, threads
        self.layer = join.a.layer
        self.found = Found()
        dumps = (join.a.dump, join.b.dump)
        names = [expected(dump, self.layer) for dump in dumps]
        self.foreign = any(dump.manifest.foreign for dump in dumps)
        if self.foreign:                                   # another engine's gaps are no faults; they are said, not failed
            self.names = names[0] & names[1]
            alone = [(side, sorted(mine - theirs)) for side, mine, theirs in (("a", *names), ("b", *names[::-1]))]
            self.found.unproven += [f"layer {self.layer}: not compared, only in {side}: {', '.join(t)}" for side, t in alone if t]
        else:
            self.names = names[0] | names[1]
        self._unfit: dict[str, np.ndarray] = {}
        self._replayed: dict[str, Remains | None] = {}

    # ---- presence ----------------------------------------------------------------------------------------------------------

    def _comparable(self, tensor: str) -> bool:
        """Whether both sides hold the tensor in one form; an entry that proves nothing where they do not."""
        if tensor not in self.names:
            return False
        said = gaps(self.join, tensor)
        if not said:
            forms = form(self.join.a, tensor), form(self.join.b, tensor)
            if forms[0] != forms[1]:
                said.append(f"unlike: a holds {in_words(forms[0])}, b {in_words(forms[1])}")
            elif not forms[0][0] and not self._known_kind(tensor, forms[0][2]):
                said.append(f"{forms[0][2]} of a name that the schema does not know is not compared")
        if said:
            self.found.results.append(nothing(self.layer, tensor, f"layer {self.layer} {tensor}: {', '.join(said)}"))
        return not said

    def _known_kind(self, tensor: str, dtype: str) -> bool:
        return dtype in ("float32", "float16") or levels.find(tensor) is not None

    def check_input(self, tensor: str) -> None:
        """A tensor that is read and not compared must be there, and finite."""
        if tensor == "route-ids":
            for side in (self.join.a, self.join.b):
                dump_experts.refuse(side, self._experts())
        if not self._comparable(tensor):
            return
        a, b = (nonfinite(value) for value in self._joined(tensor))
        if (a != b).any():
            self.found.failures.append(
                f"layer {self.layer} {tensor}: not finite on one side only ({int(a.sum())} rows of a, {int(b.sum())} of b)"
            )
        elif a.any():
            self.found.unproven.append(f"layer {self.layer} {tensor}: {int(a.sum())} rows are not finite on either side")

    # ---- values ------------------------------------------------------------------------------------------------------------

    @cached_property
    def values(self) -> tuple[OnDemand, OnDemand]:
        """What both sides hold, read when it is asked for; where a tensor is the same on both, b holds a's."""
        a = OnDemand(self.join.a, self.join.a.read)

        def read_b(tensor: str) -> Value:
            return a[tensor] if tensor in a and same_stored(self.join, tensor) else self.join.b.read(tensor)

        return a, OnDemand(self.join.b, read_b)

    def _joined(self, tensor: str) -> tuple[Value, Value]:
        a, b = self.values
        return self.join.both(tensor, a[tensor], b[tensor])

    @cached_property
    def _own(self) -> tuple[OwnLayer, OwnLayer]:
        shared = Shared()
        places = [(token, dump_experts.in_range(experts, self.model)) for token, experts in self._places]
        if all(x is not None and y is not None and np.array_equal(x, y) for x, y in zip(*places)):
            places[1] = places[0]
        model = self.model if self.model is not None and self._in_model() else None
        made = [
            OwnLayer(model=model, layer=self.layer, tensors=values, variants=names, token=token, experts=experts, shared=shared,
                     threads=self.threads, route=rule)
            for values, names, (token, experts), rule in zip(self.values, self.variants, places, self.rules)
        ]
        return made[0], made[1]

    @cached_property
    def _places(self) -> dump_experts.Places:
        return [side.pair_places() or (None, None) for side in (self.join.a, self.join.b)]

    def _in_model(self) -> bool:
        return self.layer in self.model.config.layer_ids

    # ---- one tensor --------------------------------------------------------------------------------------------------------

    def check(self, tensor: str) -> None:
        """Compare one tensor."""
        if tensor == "route-ids":
            for side in (self.join.a, self.join.b):
                if side.dump.manifest.foreign:         # another engine's are an input here whatever is compared
                    dump_experts.refuse(side, self._experts())
        if not self._comparable(tensor):
            return
        if is_large(self.join, tensor) and self.join.straight(tensor) and self._unjudgeable(tensor):
            self._say_why(tensor)
            self.found.results += streamed(self.join, tensor, self.threads)
            return
        sides = [own.of(tensor) for own in self._own]
        self._say_unjudged(tensor, sides)
        self._say_own(tensor)
        fit = self._fit(tensor)
        way = self.join.pairs if of_pairs(tensor) else self.join.tokens
        a, b = (cut_own(own, rows if fit is None else rows[fit]) for own, rows in zip(sides, (way.a, way.b)))
        a, b = (replace(own, side=replace(own.side, previous=held_before(side, tensor)))
                for own, side in ((a, self.join.a), (b, self.join.b)))
        item = self._evidence(tensor, a, b, fit)
        results = compare(item, policy=self.policy, threads=self.threads)
        if self.observe is not None:
            self.observe(item, results)
        self.found.results += results

    def _evidence(self, tensor: str, a: Own, b: Own, fit: np.ndarray | None) -> Evidence:
        pairs = of_pairs(tensor)
        keys = self.join.pair_keys if pairs else self.join.keys
        stage = STAGE_OF.get(tensor, "")
        inherited = self.inherited.get(stage)
        if inherited is not None and pairs:
            inherited = None if self.join.pair_token is None else inherited[self.join.pair_token]
        flagged = bool(self.declared) and tensor in BY_FLAG
        kind = "blocks" if a.side.blocks is not None else "ids" if a.side.ids is not None else "rows"
        return Evidence(
            layer=self.layer,
            tensor=tensor,
            kind=kind,
            stage=PART_OF.get(tensor, stage),
            a=a.side,
            b=b.side,
            oracle_a=a.truth,
            oracle_b=b.truth,
            keys=keys if keys is None or fit is None else keys[fit],
            key_names=PAIR_KEYS if pairs else TOKEN_KEYS,
            limit=self._experts() if tensor == "route-ids" else None,
            inherited=inherited if inherited is None or fit is None else inherited[fit],
            remains=self._remaining(tensor, fit),
            earlier=self.earlier if inherited is not None and inherited.any() else "",
            router=self._router(fit) if tensor == "route-ids" and None not in self.rules else None,
            lone=self._lone() if pairs else None,
            declared=self.declared if flagged else "",
            declared_rows=self._by_rule[slice(None) if fit is None else fit] if flagged else None,
        )

    def remains(self, stage: str) -> Remains | None:
        """What b's variant leaves different on a's inputs; asked only where the two variants differ and something came in."""
        if stage not in self._replayed:
            a, b = ({part: names.get(part) for part in PARTS.get(stage, ())} for names in self.variants)
            inherited = self.inherited.get(stage)
            wanted = stage in PARTS and a != b and inherited is not None and inherited.any() and self._own[0].model is not None
            self._replayed[stage] = (
                remains(self.model, stage, self.layer, self.variants[1], self.values[0], self.threads) if wanted else None
            )
        return self._replayed[stage]

    def _remaining(self, tensor: str, fit: np.ndarray | None) -> dict[str, np.ndarray] | None:
        found = self.remains(STAGE_OF.get(tensor, ""))
        if found is None or tensor not in found.tensors:
            return None
        rows = self.join.pairs.a if of_pairs(tensor) else self.join.tokens.a
        rows = rows if fit is None else rows[fit]
        return {name: take(mask, rows) for name, mask in found.tensors[tensor].items()}

    def _say_own(self, tensor: str) -> None:
        """Note the first tensor of a stage that differs by the variant alone though its inputs differ too."""
        stage = STAGE_OF.get(tensor, "")
        found = self.remains(stage)
        if found is None or tensor not in found.tensors or stage in self.found.own:
            return
        rows = take(found.rows(tensor), self.join.pairs.a if of_pairs(tensor) else self.join.tokens.a)
        if of_pairs(tensor):
            if self.join.pair_token is None:
                return
            rows = per_token(self.join, rows)
        if rows.any():
            first = int(self.join.positions()[rows].min())
            self.found.own[stage] = Origin(self.layer, stage, tensor, int(rows.sum()), first)

    def _router(self, fit: np.ndarray | None) -> Router | None:
        """The joined logits of both sides, and the wider of their bounds."""
        if any("route-logits" not in values for values in self.values):
            return None
        sides = [own.of("route-logits").side for own in self._own]
        rows = [way if fit is None else way[fit] for way in (self.join.tokens.a, self.join.tokens.b)]
        bounds = [None if side.bound is None else take(side.bound, at) for side, at in zip(sides, rows)]
        bound = None if bounds[0] is None or bounds[1] is None else np.maximum(*bounds)
        return Router(a=take(sides[0].rows, rows[0]), b=take(sides[1].rows, rows[1]), bound=bound)

    def _lone(self) -> LoneRows | None:
        a, b = self.join.lone_a, self.join.lone_b
        if not len(a.keys) and not len(b.keys):
            return None
        tokens = np.union1d(a.token, b.token)
        flagged = bool(self.declared) and bool(self._by_rule[tokens].all())
        return LoneRows(a=a.keys, b=b.keys, within=None if flagged else self._within(tokens), declared=flagged)

    @cached_property
    def _by_rule(self) -> np.ndarray:
        return by_rule(self._own, (self.join.tokens.a, self.join.tokens.b))

    def _within(self, tokens: np.ndarray) -> bool | None:
        """Whether the flips of these joined tokens came in, or lie within the router's bound; None where that is not known."""
        inherited = self.inherited.get("route")
        tokens = tokens if inherited is None else tokens[~inherited[tokens]]
        if not len(tokens):
            return True
        router = self._router(None)
        if router is None or router.bound is None or any("route-ids" not in values for values in self.values):
            return None
        a, b = self._joined("route-ids")
        if not all(valid(ids[tokens], self._experts()).all() for ids in (a, b)):
            return False
        gaps = [route_flip.measure(router, row, a[row], b[row]).bounds for row in tokens.tolist()]
        return None if any(gap is None for gap in gaps) else all(gap <= 1 for gap in gaps)

    def _experts(self) -> int | None:
        for values in self.values:
            if "route-logits" in values:
                return values["route-logits"].shape[1]
        return None if self.model is None else self.model.config.experts

    def _fit(self, tensor: str) -> np.ndarray | None:
        """bool [joined rows]: rows whose inputs are finite on both sides; None for all of them."""
        bad = np.zeros(len(self.join.tokens.a), bool)
        for source in JUDGED_FROM.get(tensor, ()):
            bad |= self._unfit_rows(source)
        if not bad.any():
            return None
        n = int(bad.sum())
        self.found.unproven.append(f"layer {self.layer} {tensor}: {n} token rows not judged, {NOT_FIT}")
        if of_pairs(tensor):
            return None if self.join.pair_token is None else ~bad[self.join.pair_token]
        return ~bad

    def _unfit_rows(self, source: str) -> np.ndarray:
        if source not in self._unfit:
            bad = np.zeros(len(self.join.tokens.a), bool)
            if source == EXPERTS:
                bad |= dump_experts.tokens_of_none(self.join, self._places, self.model)
            elif all(source in values for values in self.values) and (not of_pairs(source) or self.join.pair_token is not None):
                for value in self._joined(source):
                    mask = nonfinite(value)
                    bad |= per_token(self.join, mask) if of_pairs(source) else mask
            self._unfit[source] = bad
        return self._unfit[source]

    def _say_unjudged(self, tensor: str, sides: list[Own]) -> None:
        if not all(judged(own.side) for own in sides):
            self._say_why(tensor)

    def _unjudgeable(self, tensor: str) -> bool:
        """Whether it can be told without reading anything that no contract judges either side of a tensor of rows or blocks."""
        part = PART_OF.get(tensor, STAGE_OF.get(tensor))
        if tensor in ("d-hq", "u-ylq", "d-xlq") or part == "route":
            return False                                  # judged by the rows that they were made of
        return part is None or self._own[0].model is None or not any(part in names for names in self.variants)

    def _say_why(self, tensor: str) -> None:
        part = PART_OF.get(tensor, STAGE_OF.get(tensor))
        if part is None:
            why = "the schema does not know it"
        elif part != "route" and any(part not in names for names in self.variants):
            why = "the variant that wrote it is not named"
        elif self.model is None and tensor not in ("d-hq", "u-ylq", "route-ids", "route-weights"):
            why = "the model is not at hand"
        else:
            why = "its stage's inputs were not dumped"
        self.found.unjudged[tensor] = why
