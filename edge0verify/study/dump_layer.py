"""One layer of two dumps: evidence for every tensor, each side beside its own oracle, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from edge0verify.compare import Policy, compare
from edge0verify.compare.causes import route_flip
from edge0verify.dump import levels
from edge0verify.dump.reader import Dump
from edge0verify.model import Model
from edge0verify.numerics.blocks import Blocks, same_floats
from edge0verify.records.evidence import Evidence, LoneRows, Router, Side
from edge0verify.records.status import INCONCLUSIVE
from edge0verify.records.verdict import LayerResult
from edge0verify.study.dump_rows import LayerJoin, SideRows, of_pairs, take
from edge0verify.study.evidence import PAIR_KEYS, TOKEN_KEYS
from edge0verify.study.inheritance import OUTPUTS, STAGE_OF
from edge0verify.study.own import Own, OwnLayer, Shared

Value = np.ndarray | Blocks

READS = {"route": ("ffn-in",), "D": ("ffn-in",), "A": ("d-xl", "d-xlq", "route-ids", "route-weights"), "U": ("a-yl",)}
"""What a stage reads, beside what it writes itself."""
JUDGED_FROM = {
    "route-logits": ("ffn-in",), "route-ids": ("route-logits",), "route-weights": ("route-logits",),
    "d-hq": ("ffn-in",), "d-xl": ("ffn-in",), "d-xlq": ("ffn-in", "d-xl"),
    "a-gate": ("d-xl", "d-xlq"), "a-up": ("d-xl", "d-xlq"), "a-h": ("d-xl", "d-xlq"),
    "a-y": ("a-h",), "a-yl": ("a-h", "route-weights"),
    "u-ylq": ("a-yl",), "u": ("a-yl",),
}
"""Dumped tensors from which each is judged: where these are not finite, nothing can be."""
PART_OF = {"a-gate": "A1", "a-up": "A1", "a-h": "A1", "a-y": "A2", "a-yl": "A2"}


@dataclass
class Found:
    """What one layer gave."""

    results: list[LayerResult] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    unjudged: dict[str, str] = field(default_factory=dict)
    """Tensor -> why no contract judged it on some side."""


def differing_rows(join: LayerJoin) -> dict[str, np.ndarray]:
    """bool [joined tokens] per tensor that both sides hold in one form: a bit of the token's or its pairs' rows differs."""
    found = {}
    for tensor in join.a.dump.tensors(join.a.layer):
        if not (join.a.has(tensor) and join.b.has(tensor)) or form(join.a, tensor) != form(join.b, tensor):
            continue
        if of_pairs(tensor) and join.pair_token is None:
            continue
        if same_stored(join, tensor):
            found[tensor] = np.zeros(len(join.tokens.a), bool)
            continue
        mask = rows_differ(*join.both(tensor, join.a.read(tensor), join.b.read(tensor)))
        found[tensor] = _per_token(join, mask) if of_pairs(tensor) else mask
    return found


def form(side: SideRows, tensor: str) -> tuple:
    """What must agree for rows to be comparable: blocks or not, columns, and the kind of number."""
    dump, blocks = side.dump, side.dump.is_blocks(side.layer, tensor)
    kind = "" if blocks else str(dump.dataset(side.layer, tensor).dtype)
    return blocks, dump.shape(side.layer, tensor)[1:], kind


def same_stored(join: LayerJoin, tensor: str) -> bool:
    """By hash, with every row in the same place on both sides: then nothing has to be read to know that all is equal."""
    way = join.pairs if of_pairs(tensor) else join.tokens
    straight = np.array_equal(way.a, way.b) and not len(way.only_a) and not len(way.only_b)
    return straight and not join.a.reordered and not join.b.reordered and _hashes(join.a, tensor) == _hashes(join.b, tensor)


def _hashes(side: SideRows, tensor: str) -> list[tuple]:
    return [(i.part, i.sha256) for i in side.dump.arrays.values() if i.layer == side.layer and i.tensor == tensor]


def rows_differ(a: Value, b: Value) -> np.ndarray:
    """bool [n]: rows with any bit that differs, NaN being like NaN."""
    if isinstance(a, Blocks):
        parts = [(a.codes, b.codes), (a.d, b.d)] + ([(a.s, b.s)] if a.s is not None and b.s is not None else [])
        return np.logical_or.reduce([rows_differ(x, y) for x, y in parts])
    if a.dtype != b.dtype:                                  # scales of two quantisers: as the dot uses them
        a, b = a.astype(np.float32), b.astype(np.float32)
    same = same_floats(a, b) if a.dtype.kind == "f" else a == b
    return ~same.reshape(len(a), -1).all(axis=1)


def _per_token(join: LayerJoin, mask: np.ndarray) -> np.ndarray:
    return np.bincount(join.pair_token[mask], minlength=len(join.tokens.a)) > 0


def expected(dump: Dump, layer: int | str) -> set[str]:
    """Tensors that the layer should hold: what it has, what the manifest promises, what its level and variants entail."""
    manifest = dump.manifest
    names = set(dump.tensors(layer))
    if layer in manifest.signature.layers:
        head = {spec.name for spec in levels.HEAD_TENSORS}
        names |= set(manifest.signature.tensors) - head
    if not manifest.foreign and manifest.variants:
        names |= {spec.name for spec in levels.tensors_of(dump.level)}
    return names


def compare_layer(
    *,
    join: LayerJoin,
    model: Model | None,
    variants: tuple[Mapping[str, str], Mapping[str, str]],
    declared: str,
    stage: str | None,
    inherited: Mapping[str, np.ndarray],
    earlier: str,
    policy: Policy,
    threads: int,
) -> Found:
    """Every tensor of `stage` (None: of all, and those that the schema does not know) in one layer."""
    work = _Layer(join, model, variants, declared, inherited, earlier, policy, threads)
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
    return work.found


class _Layer:
    """The tensors of one layer on both sides, read when they are asked for."""

    def __init__(self, join, model, variants, declared, inherited, earlier, policy, threads) -> None:
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

    # ---- presence ----------------------------------------------------------------------------------------------------------

    def _comparable(self, tensor: str) -> bool:
        """Whether both sides hold the tensor in one form; an entry that proves nothing where they do not."""
        if tensor not in self.names:
            return False
        said = []
        for name, side in (("a", self.join.a), ("b", self.join.b)):
            if not side.dump.has(self.layer, tensor):
                said.append(f"missing on side {name}")
            elif not side.has(tensor):
                said.append(f"empty on side {name}")
        if not said:
            forms = form(self.join.a, tensor), form(self.join.b, tensor)
            if forms[0] != forms[1]:
                said.append(f"unlike: a holds {_words(forms[0])}, b {_words(forms[1])}")
            elif not forms[0][0] and not self._known_kind(tensor, forms[0][2]):
                said.append(f"{forms[0][2]} of a name that the schema does not know is not compared")
        if said:
            self.found.results.append(nothing(self.layer, tensor, f"layer {self.layer} {tensor}: {', '.join(said)}"))
        return not said

    def _known_kind(self, tensor: str, dtype: str) -> bool:
        return dtype in ("float32", "float16") or levels.find(tensor) is not None

    def check_input(self, tensor: str) -> None:
        """A tensor that is read and not compared must be there, and finite."""
        if not self._comparable(tensor):
            return
        a, b = (_nonfinite(value) for value in self._joined(tensor))
        if (a != b).any():
            self.found.failures.append(
                f"layer {self.layer} {tensor}: not finite on one side only ({int(a.sum())} rows of a, {int(b.sum())} of b)"
            )
        elif a.any():
            self.found.unproven.append(f"layer {self.layer} {tensor}: {int(a.sum())} rows are not finite on either side")

    # ---- values ------------------------------------------------------------------------------------------------------------

    @cached_property
    def _values(self) -> tuple[dict[str, Value], dict[str, Value]]:
        """Everything of both sides; where a tensor is the same on both, b holds a's."""
        a = {t: self.join.a.read(t) for t in self.join.a.dump.tensors(self.layer) if self.join.a.has(t)}
        b = {}
        for tensor in self.join.b.dump.tensors(self.layer):
            if self.join.b.has(tensor):
                b[tensor] = a[tensor] if tensor in a and same_stored(self.join, tensor) else self.join.b.read(tensor)
        return a, b

    def _joined(self, tensor: str) -> tuple[Value, Value]:
        a, b = self._values
        return self.join.both(tensor, a[tensor], b[tensor])

    @cached_property
    def _own(self) -> tuple[OwnLayer, OwnLayer]:
        shared = Shared()
        places = [side.pair_places() or (None, None) for side in (self.join.a, self.join.b)]
        if all(x is not None and y is not None and np.array_equal(x, y) for x, y in zip(*places)):
            places[1] = places[0]
        model = self.model if self.model is not None and self._in_model() else None
        made = [
            OwnLayer(model=model, layer=self.layer, tensors=values, variants=names, token=token, experts=experts, shared=shared,
                     threads=self.threads)
            for values, names, (token, experts) in zip(self._values, self.variants, places)
        ]
        return made[0], made[1]

    def _in_model(self) -> bool:
        return self.layer in self.model.config.layer_ids

    # ---- one tensor --------------------------------------------------------------------------------------------------------

    def check(self, tensor: str) -> None:
        """Compare one tensor."""
        if not self._comparable(tensor):
            return
        sides = [own.of(tensor) for own in self._own]
        self._say_unjudged(tensor, sides)
        fit = self._fit(tensor)
        way = self.join.pairs if of_pairs(tensor) else self.join.tokens
        a, b = (_cut(own, rows if fit is None else rows[fit]) for own, rows in zip(sides, (way.a, way.b)))
        self.found.results += compare(self._evidence(tensor, a, b, fit), policy=self.policy, threads=self.threads)

    def _evidence(self, tensor: str, a: Own, b: Own, fit: np.ndarray | None) -> Evidence:
        pairs = of_pairs(tensor)
        keys = self.join.pair_keys if pairs else self.join.keys
        stage = STAGE_OF.get(tensor, "")
        inherited = self.inherited.get(stage)
        if inherited is not None and pairs:
            inherited = None if self.join.pair_token is None else inherited[self.join.pair_token]
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
            earlier=self.earlier if inherited is not None and inherited.any() else "",
            router=self._router(fit) if tensor == "route-ids" else None,
            lone=self._lone() if pairs else None,
            declared=self.declared if stage == "route" else "",
        )

    def _router(self, fit: np.ndarray | None) -> Router | None:
        """The joined logits of both sides, and the wider of their bounds."""
        if any("route-logits" not in values for values in self._values):
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
        return LoneRows(a=a.keys, b=b.keys, within=self._within(np.union1d(a.token, b.token)))

    def _within(self, tokens: np.ndarray) -> bool | None:
        """Whether the flips of these joined tokens came in, or lie within the router's bound; None where that is not known."""
        inherited = self.inherited.get("route")
        tokens = tokens if inherited is None else tokens[~inherited[tokens]]
        if not len(tokens):
            return True
        router = self._router(None)
        if router is None or router.bound is None or any("route-ids" not in values for values in self._values):
            return None
        a, b = self._joined("route-ids")
        gaps = [route_flip.measure(router, row, a[row], b[row]).bounds for row in tokens.tolist()]
        return None if any(gap is None for gap in gaps) else all(gap <= 1 for gap in gaps)

    def _experts(self) -> int | None:
        for values in self._values:
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
        self.found.unproven.append(f"layer {self.layer} {tensor}: {n} token rows not judged, their inputs are not finite")
        if of_pairs(tensor):
            return None if self.join.pair_token is None else ~bad[self.join.pair_token]
        return ~bad

    def _unfit_rows(self, source: str) -> np.ndarray:
        if source not in self._unfit:
            bad = np.zeros(len(self.join.tokens.a), bool)
            if all(source in values for values in self._values) and (not of_pairs(source) or self.join.pair_token is not None):
                for value in self._joined(source):
                    mask = _nonfinite(value)
                    bad |= _per_token(self.join, mask) if of_pairs(source) else mask
            self._unfit[source] = bad
        return self._unfit[source]

    def _say_unjudged(self, tensor: str, sides: list[Own]) -> None:
        if all(_judged(own.side) for own in sides):
            return
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


def _judged(side: Side) -> bool:
    return any(x is not None for x in (side.t, side.exact, side.chosen))


def _cut(own: Own, rows: np.ndarray) -> Own:
    """The given rows of everything that a side holds."""
    held = {name: getattr(own.side, name) for name in ("rows", "blocks", "ids", "chosen", "t", "bound", "exact")}
    cut = {name: take(value, rows) for name, value in held.items() if value is not None}
    if "rows" in cut and cut["rows"].dtype == np.float16:
        cut["rows"] = cut["rows"].astype(np.float32)
    return Own(replace(own.side, **cut), None if own.truth is None else take(own.truth, rows))


def _nonfinite(value: Value) -> np.ndarray:
    """bool [rows]."""
    x = value.d if isinstance(value, Blocks) else value
    return np.zeros(len(x), bool) if x.dtype.kind != "f" else ~np.isfinite(x).reshape(len(x), -1).all(axis=1)


def _words(form: tuple) -> str:
    blocks, columns, kind = form
    return f"{'blocks' if blocks else kind} of {' x '.join(map(str, columns)) or '1'} columns"


def nothing(layer: int | str, tensor: str, reason: str) -> LayerResult:
    """An entry that compared nothing, and why."""
    return LayerResult(
        layer=layer, tensor=tensor, n=0, equal=0, equal_pct=None, max_code_diff=None, code_diffs=None, scale_equal_pct=None,
        rel_l2=None, max_abs=None, max_ulp=None, corr=None, conforming={"a": None, "b": None}, causes={}, status=INCONCLUSIVE,
        reasons=(reason,),
    )

