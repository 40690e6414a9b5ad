"""What route flags changed between two dumps, and whether each route is what its flags make of the router's own logits.

A flag declares a difference; it does not excuse one that its rule does not make. Which rule a flag stands for is known for this
engine's runs alone: of another engine's dump the declaration is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edge0verify.dump.reader import Dump
from edge0verify.engine.route_flags import RouteFlags
from edge0verify.model import Model
from edge0verify.numerics.conform import rows_conform
from edge0verify.records.verdict import Verdict
from edge0verify.study.dump_rows import LayerJoin, take
from edge0verify.study.dump_tensors import rows_differ
from edge0verify.study.dumping import ENGINE
from edge0verify.study.own import OwnLayer, largest
from edge0verify.variants.flags import by_design

Rule = RouteFlags | None
"""None: not known."""


def rule_of(dump: Dump, model: Model | None) -> Rule:
    """The rule that the dump's routes follow."""
    manifest = dump.manifest
    if not by_design(manifest.flags):
        return RouteFlags()
    if model is None or manifest.foreign or manifest.engine.name != ENGINE:
        return None
    return RouteFlags.of(manifest.flags, model.config)


@dataclass(frozen=True)
class SideRoutes:
    """One side of one layer, a row per joined token: where its flags made another route than the router alone would have."""

    acted: np.ndarray
    skipped: int
    exchanged: int
    pairs: int


@dataclass(frozen=True)
class LayerRoutes:
    """One layer: which joined tokens have other ids, which other weights; the sides where their rule and logits are known."""

    layer: int | str
    positions: np.ndarray
    ids_differ: np.ndarray
    weights_differ: np.ndarray
    sides: tuple[SideRoutes | None, SideRoutes | None]


def by_rule(sides: Sequence[OwnLayer], ways: Sequence[np.ndarray]) -> np.ndarray:
    """bool [joined tokens], whose rows on each side are `ways`: experts and weights are on both sides what the side's rule makes of
    its own logits, as far as rule and logits are known."""
    kept = np.ones(len(ways[0]), bool)
    for own, way in zip(sides, ways):
        if "route-ids" in own.tensors:
            side = own.of("route-ids").side
            if side.chosen is not None:
                kept &= take((side.ids == side.chosen).all(axis=1), way)
        if "route-weights" in own.tensors:
            side = own.of("route-weights").side
            if side.t is not None:
                kept &= take(rows_conform(side.rows, side.t, side.bound).all(axis=1), way)
    return kept


def layer_routes(join: LayerJoin, values: Sequence[Mapping[str, Any]], rules: tuple[Rule, Rule]) -> LayerRoutes | None:
    """What differs in the routes of one layer, and what flags did; None where a side does not hold its routes."""
    ids, weights, logits = (
        join.both(name, *(side[name] for side in values)) if all(name in side for side in values) else None
        for name in ("route-ids", "route-weights", "route-logits")
    )
    if ids is None or weights is None or ids[0].shape != ids[1].shape or weights[0].shape != weights[1].shape:
        return None
    layer = join.a.layer
    return LayerRoutes(
        layer=layer,
        positions=join.positions(),
        ids_differ=(ids[0] != ids[1]).any(axis=1),
        weights_differ=rows_differ(*weights),
        sides=tuple(_side(rules[i], layer, None if logits is None else logits[i], ids[i], weights[i]) for i in (0, 1)),
    )


def _side(rule: Rule, layer: int | str, logits: np.ndarray | None, ids: np.ndarray, weights: np.ndarray) -> SideRoutes | None:
    """logits f32 [n, experts], ids i32 [n, k], weights f32 [n, k] of joined tokens."""
    if rule is None or logits is None or ids.shape != weights.shape:
        return None
    plain = largest(logits, ids.shape[1])
    new = ~(ids[:, :, None] == plain[:, None, :]).any(axis=2) if rule.residents(layer) else np.zeros(ids.shape, bool)
    skipped = (weights == 0) if rule.tail_skip > 0 else np.zeros(ids.shape, bool)
    acted = skipped.any(axis=1) | ((ids != plain).any(axis=1) & bool(rule.residents(layer)))
    return SideRoutes(acted, int(skipped.sum()), int(new.sum()), ids.size)


@dataclass(frozen=True)
class Summary:
    """For a verdict: figures, sentences, and why the flags prove nothing where they did not act."""

    figures: dict[str, Any]
    sentences: tuple[str, ...]
    unproven: tuple[str, ...]


def summarise(layers: Sequence[LayerRoutes], flags: tuple[Sequence[str], Sequence[str]]) -> Summary:
    """flags: those in effect on each side."""
    rows = sum(len(one.positions) for one in layers)
    differ = [one.ids_differ | one.weights_differ for one in layers]
    tokens = _distinct([one.positions for one in layers])
    touched = _distinct([one.positions[mask] for one, mask in zip(layers, differ)])
    figures: dict[str, Any] = {
        "flags": {"a": list(flags[0]), "b": list(flags[1])},
        "places": rows,
        "places_differ": int(sum(mask.sum() for mask in differ)),
        "ids_differ": int(sum(one.ids_differ.sum() for one in layers)),
        "tokens": tokens,
        "tokens_differ": touched,
    }
    said = [
        f"by-design: a runs {_words(flags[0])}, b runs {_words(flags[1])}: that they say other things is declared, and neither a "
        "fault nor a proof of equal quality",
        f"by-design, routes: other in {_share(figures['places_differ'], rows)} places (token and layer), other experts in "
        f"{figures['ids_differ']}; {_share(touched, tokens)} tokens have one"
        if rows
        else "by-design, routes: not held by both, so what the flags changed in them is not shown",
    ]
    unproven = []
    for at, name in enumerate("ab"):
        sides = [one.sides[at] for one in layers]
        if not flags[at] or not sides or any(side is None for side in sides):
            continue
        acted = int(sum(side.acted.sum() for side in sides))
        pairs, skipped, new = (sum(getattr(side, what) for side in sides) for what in ("pairs", "skipped", "exchanged"))
        figures[name] = {"acted": acted, "pairs": pairs, "skipped": skipped, "exchanged": new}
        said.append(
            f"by-design, {name}: its flags act in {_share(acted, rows)} places; {_share(skipped, pairs)} experts skipped, "
            f"{_share(new, pairs)} exchanged for resident ones"
        )
        if not acted:
            unproven.append(f"{name}: not engaged, {_words(flags[at])} changed no route, so nothing is shown of it")
    return Summary(figures, tuple(said), tuple(unproven))


def with_summary(verdict: Verdict, summary: Summary) -> Verdict:
    """The verdict with the figures as `totals.by_design` and the sentences before its other notes."""
    notes = [*summary.sentences, *verdict.totals.get("notes", ())]
    return replace(verdict, totals={**verdict.totals, "by_design": summary.figures, "notes": notes})


def _distinct(positions: Sequence[np.ndarray]) -> int:
    return len(np.unique(np.concatenate(positions))) if positions else 0


def _words(flags: Sequence[str]) -> str:
    return " ".join(flags) or "no route flag"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.3g} %)" if whole else "0 of 0"
