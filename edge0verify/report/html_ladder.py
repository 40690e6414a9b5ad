"""The ladder of layers with its jumps, and the movement of log-probs beside the spread."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from edge0verify.compare.ladder import FLOOR
from edge0verify.records.status import PASS
from edge0verify.records.verdict import LayerResult, Verdict
from edge0verify.report import html_lines, tables
from edge0verify.report.html_lines import number
from edge0verify.report.html_pictures import PHONE, placed
from edge0verify.report.html_svg import COLOURS, legend
from edge0verify.report.html_text import Html, figure, section, short, table, tag
from edge0verify.study.grids import Grid

JUMPS = 5
GROWTH = 1.25
"""From one layer to the next, below which a tensor counts as steady."""


def ladder(verdict: Verdict, grids: Sequence[Grid]) -> Html:
    """How the difference grows from layer to layer, with its widest jumps."""
    found = [r for r in verdict.layers if r.n and not r.tensor.endswith((".d", ".s"))]
    if not found:
        return Html("")
    layers = list(dict.fromkeys(r.layer for r in found))
    names = list(dict.fromkeys(r.tensor for r in found))
    colour = dict(zip(names, COLOURS))
    shown = [r for r in found if r.tensor in colour]
    jumps = _jumps(shown)
    keys = legend([(t, c, False) for t, c in colour.items()])
    made = [
        placed(_distance(layers, shown, colour, jumps), _CAPTION, len(layers), keys),
        *_over(layers, grids, colour),
        placed(_share(layers, shown, colour), "Share of elements that differ.", len(layers), keys),
    ]
    said = []
    if len(names) > len(colour):
        said.append(
            tag("p", f"The lines show the first {len(colour)} tensors; {len(names) - len(colour)} more are in the table above.")
        )
    said += _said(jumps, verdict)
    return section("Ladder of layers", tag("div", *made, class_="figures" if len(layers) <= PHONE else "row"), *said)


_CAPTION = "Relative L2 of a - b. Numbers mark the widest jumps; a ring what does not pass; a cross what is not finite."


def _by(shown: Sequence[LayerResult], tensor: str) -> dict:
    return {r.layer: r for r in shown if r.tensor == tensor}


def _distance(layers: Sequence, shown: Sequence[LayerResult], colour: dict, jumps: Sequence[dict]) -> Html:
    series = []
    for tensor, c in colour.items():
        values = {layer: number(r.rel_l2) for layer, r in _by(shown, tensor).items() if r.rel_l2 is not None}
        series += [(values, c, False)] if values else []
    wrong = [(r.layer, number(r.rel_l2)) for r in shown if r.status != PASS]
    marks = [(jump["layer"], jump["rel_l2"], str(i + 1)) for i, jump in enumerate(jumps)]
    label = "Relative distance of a and b by layer; the table of jumps holds the figures"
    return html_lines.lines("ladder-l2", label, layers, series, wrong=wrong, marks=marks)


def _over(layers: Sequence, grids: Sequence[Grid], colour: dict) -> list[Html]:
    """The figure of error over bound; none where no grid has a bound."""
    series, keys = [], []
    for tensor, c in colour.items():
        for side in (0, 1):
            worst = {
                g.layer: g.worst[side] for g in grids if g.tensor == tensor and g.worst[side] is not None and g.layer in layers
            }
            if worst:
                series.append((worst, c, side == 1))
                keys.append((f"{tensor}, {'ab'[side]}", c, side == 1))
    if not series:
        return []
    drawing = html_lines.lines("ladder-over", "Largest error over bound by layer, of a and of b", layers, series, limit=1.0)
    return [placed(drawing, "Largest error over bound; the red line is the bound.", len(layers), legend(keys))]


def _share(layers: Sequence, shown: Sequence[LayerResult], colour: dict) -> Html:
    series = [({layer: (r.n - r.equal) / r.n for layer, r in _by(shown, t).items()}, c, False) for t, c in colour.items()]
    wrong = [(r.layer, (r.n - r.equal) / r.n) for r in shown if r.status != PASS]
    return html_lines.lines("ladder-share", "Share of elements that differ by layer", layers, series, wrong=wrong)


def _jumps(shown: Sequence[LayerResult]) -> list[dict]:
    """Where a tensor grows most from one layer to the next, widest first: {tensor, from, layer, rel_l2, factor}."""
    found = []
    for tensor in dict.fromkeys(r.tensor for r in shown):
        results = [r for r in shown if r.tensor == tensor and np.isfinite(number(r.rel_l2))]
        for before, after in pairwise(results):
            factor = max(number(after.rel_l2), FLOOR) / max(number(before.rel_l2), FLOOR)
            if factor >= GROWTH:
                found.append(
                    dict(tensor=tensor, before=before.layer, layer=after.layer, rel_l2=number(after.rel_l2), factor=factor)
                )
    return sorted(found, key=lambda jump: -jump["factor"])[:JUMPS]


def _said(jumps: Sequence[dict], verdict: Verdict) -> list[Html]:
    made = []
    if jumps:
        lines = [
            (str(i + 1), tag("code", short(j["tensor"], 30)), f"{short(j['before'], 12)} to {short(j['layer'], 12)}",
             tables.figure(j["rel_l2"], 2), tables.figure(j["factor"], 3))
            for i, j in enumerate(jumps)
        ]  # fmt: skip
        made.append(table(("jump", "tensor", "layers", "rel L2", "factor"), lines, label="Widest jumps", left=3))
    else:
        made.append(tag("p", f"No tensor's distance grows by a factor of {GROWTH} or more from one layer to the next."))
    widest = verdict.totals.get("widest_jump")
    if widest:
        before, after = widest["after"], (widest["layer"], widest["tensor"])
        places = [f"layer {short(layer, 12)} {short(tensor, 30)}" for layer, tensor in (before, after)]
        factor = tables.figure(widest["factor"], 3)
        made.append(
            tag("p", f"The widest step from one compared tensor to the next: {places[0]} to {places[1]}, by a factor of {factor}.")
        )
    return made


def movement(verdict: Verdict) -> Html | None:
    """The figure of log-prob movement beside the spread; None where nothing was measured."""
    positions = (verdict.top8 or {}).get("per_position") or []
    if not positions:
        return None
    pairs = ((verdict.top8.get("spread") or {}).get("pairs")) or []
    shown = positions[:24]
    moves = [number(p["move"]) for p in shown]
    spreads = [[number(v) for p in pairs if (v := p.get("per_prompt", {}).get(position["name"])) is not None] for position in shown]
    drawing = html_lines.movement(
        "moves",
        "Log-prob movement by prompt beside that of accepted variants; the table holds the figures",
        [p["name"] for p in shown],
        moves,
        spreads,
    )
    keys = legend([("a against b", COLOURS[0], False), ("accepted variants, a pair each", COLOURS[1], False)])
    return figure(drawing, "Largest log-prob movement over the ids that both list, by prompt.", legend=keys)
