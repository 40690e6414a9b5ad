"""The sections of a verdict's page that hold figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edge0verify.records.status import PASS
from edge0verify.records.verdict import LayerResult, Verdict
from edge0verify.report import html_maps, tables
from edge0verify.report.html_sections import entries_table
from edge0verify.report.html_svg import wide
from edge0verify.report.html_text import Html, details, figure, join, section, short, tag
from edge0verify.study.grids import Grid
from edge0verify.study.inheritance import STAGE_OF

MAPS = 4
"""Layers of one tensor that are drawn in full unless they are named."""
NEARLY = 0.9
"""Share of differing values above which a map of them shows nothing."""
PHONE = 20
"""Layers that a figure of a phone's width shows; with more it scrolls."""
NO_GRIDS = (
    "Heat maps need the reduced tensors, and this verdict does not hold them. They are kept by ",
    tag("code", "compare --json FILE --grids"),
    ", and ",
    tag("code", "compare --html FILE"),
    " draws them at once.",
)


def stage_of(tensor: str) -> str:
    return STAGE_OF.get(tensor.removesuffix(".d").removesuffix(".s"), "")


def placed(drawing: Html, caption: object, layers: int, keys: Html | str = "") -> Html:
    scrolls = layers > PHONE
    return figure(wide(drawing) if scrolls else drawing, caption, wide=scrolls, legend=keys)


def layers_and_stages(verdict: Verdict, grids: Sequence[Grid]) -> Html:
    """Which entries differ and how near each comes to its bound, all layers at once."""
    results = [r for r in verdict.layers if r.n]
    if not results:
        return section("Layers and stages", tag("p", "Nothing was compared."), entries_table(verdict) if verdict.layers else "")
    layers = len({r.layer for r in results})
    differing = {(r.layer, r.tensor): (r.n - r.equal) / r.n for r in results}
    drawing = html_maps.overview(results, differing, "differ", "the share of elements that differ", log=True)
    note = "Share of codes, values or scales that differ; light grey: none. A ring marks what does not pass."
    made = [placed(drawing, note, layers)]
    over = {(g.layer, g.tensor): _worst(g) for g in grids if any(w is not None for w in g.worst)}
    if over:
        drawing = html_maps.overview(results, over, "over", "the largest error over bound of a and b", log=False, limit=1.0)
        made.append(
            placed(drawing, "Largest error over bound, of a and b the larger; red: beyond the bound, so not rounding.", layers)
        )
    else:
        judged = {(r.layer, r.tensor): _outside(r) for r in results}
        drawing = html_maps.overview(results, judged, "outside", "the share of elements outside their bound", log=True)
        text = "Share of elements outside their contract's bound, of a and b the larger; a dash: nothing judges them. "
        made.append(
            placed(drawing, join([text, "The error over bound itself is not kept in this verdict." if not grids else ""]), layers)
        )
    cut = len({r.tensor for r in results}) - html_maps.MOST_ROWS
    more = tag("p", f"The maps hold the first {html_maps.MOST_ROWS} entries; {cut} more are in the table.") if cut > 0 else ""
    stages = ", ".join(f"{s}: {' '.join(t)}" for s, t in _by_stage(results).items())
    return section(
        "Layers and stages",
        tag("p", f"Stages and their entries: {stages}.", class_="quiet"),
        tag("div", *made, class_="figures" if layers <= PHONE else "row"),
        more,
        entries_table(verdict),
    )


def _by_stage(results: Sequence[LayerResult]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for tensor in list(dict.fromkeys(r.tensor for r in results))[: html_maps.MOST_ROWS]:
        found.setdefault(stage_of(tensor) or "other", []).append(short(tensor, 30))
    return found


def _worst(g: Grid) -> float | None:
    return max((w for w in g.worst if w is not None), default=None)


def _outside(r: LayerResult) -> float | None:
    """Share of elements outside their bound, of a and b the larger; None where neither is judged."""
    kept = [k for k in r.conforming.values() if k is not None]
    return 1 - min(kept) / r.n if kept else None


def heat_maps(verdict: Verdict, grids: Sequence[Grid], chosen: Callable[[object], bool] | None) -> Html:
    """Each tensor's maps by rows and columns. chosen(layer): which layers are drawn; None: those that tell most."""
    name = "Heat maps by row and column"
    if not grids:
        return section(name, tag("p", *NO_GRIDS)) if any(r.n for r in verdict.layers) else Html("")
    by_tensor = {t: [g for g in grids if g.tensor == t] for t in dict.fromkeys(g.tensor for g in grids)}
    bad = [t for t, found in by_tensor.items() if any(g.result.status != PASS for g in found)]
    first = bad or [max(by_tensor, key=lambda t: max((_worst(g) or 0.0) for g in by_tensor[t]))]
    parts = []
    for i, (tensor, found) in enumerate(by_tensor.items()):
        drawn = [g for g in found if chosen(g.layer)] if chosen else _telling(found)
        parts.append(_tensor(f"t{i}", tensor, found, drawn, open_=tensor in first))
    said = (
        "One bin shows the largest value in it, or the share of its elements. The lines stand at tile borders. Rounding looks like "
        "noise; "
        "what follows the lines - a dark column, a stripe of rows, a last tile - is structure, and structure is a fault."
    )
    return section(name, tag("p", said), *parts)


def _nearest(worst: float) -> str:
    return f", worst error over bound {worst:.2g}" if np.isfinite(worst) else ", values that are not finite"


def _telling(found: Sequence[Grid]) -> list[Grid]:
    """At most `MAPS`: what does not pass, then nearest to its bound, then what differs most; in the order of the layers."""

    def weight(g: Grid) -> tuple:
        worst = _worst(g)
        return g.result.status != PASS, -1.0 if worst is None else worst, float(g.differing.mean())

    kept = sorted(found, key=weight, reverse=True)[:MAPS]
    return [g for g in found if any(g is k for k in kept)]


def _tensor(name: str, tensor: str, found: Sequence[Grid], drawn: Sequence[Grid], *, open_: bool) -> Html:
    worst = [w for g in found if (w := _worst(g)) is not None]
    stage = stage_of(tensor)
    head = join(
        [
            tag("code", short(tensor, 60)),
            f" (stage {stage})" if stage else "",
            f", {len(found)} layers" if len(found) > 1 else f", layer {found[0].layer}",
            _nearest(max(worst)) if worst else "",
        ]
    )
    parts: list[Html] = []
    if len(drawn) < len(found):
        text = (
            f"{len(drawn)} of {len(found)} layers are drawn, those that tell most; "
            if drawn
            else "None of these layers was asked for; "
        )
        parts.append(
            tag("p", text, tag("code", "report --layer"), " names others, and ", tag("code", "compare --png DIR"), " draws all.")
        )
    for j, g in enumerate(drawn):
        parts.append(tag("h3", f"Layer {short(g.layer, 20)}, {g.result.status}"))
        parts += _panels(f"{name}-{j}", g)
    return details(head, *parts, open_=open_)


def _panels(name: str, g: Grid) -> list[Html]:
    r, kind = g.result, "codes" if g.kind == "blocks" else "values"
    made: list[Html] = []
    judged = [side for side in (0, 1) if g.over[side] is not None]
    said = ""
    panel = html_maps.share_panel(g)
    if g.kind == "rows" and judged and min(panel.by_row.min(), panel.by_column.min()) > NEARLY:
        said = f"{tables.share(r.n - r.equal, r.n)} % of the values have other bits, nearly all in every row and column."
    elif (g.differing > 0).any():
        caption = f"Share of {kind} that differ; {tables.share(r.equal, r.n)} % equal. Beside: by row and by column."
        made.append(figure(html_maps.draw_share(g, f"{name}s"), caption))
    if g.kind == "blocks" and (top := int(g.farthest.max())) > 1:
        caption = f"Largest code difference, {top} at most. Beside: by row and by column."
        made.append(figure(html_maps.draw_gaps(g, f"{name}g"), caption))
    made += [_over(f"{name}{'ab'[side]}", g, side) for side in judged]
    if g.kind == "rows" and not judged:
        said = "No bound is known for either side."
    grid = tag("div", *made, class_="figures") if made else tag("p", "No element differs.")
    return [tag("p", said, class_="quiet"), grid] if said else [grid]


def _over(name: str, g: Grid, side: int) -> Html:
    over = g.over[side]
    broken, beyond = int(np.isnan(over).sum()), int((over > 1).sum())
    finite = over[np.isfinite(over)]
    text = f"Error over bound of {'ab'[side]}: worst {finite.max():.2g}" if finite.size else f"Error over bound of {'ab'[side]}"
    text += f"; {beyond} of {over.size} bins beyond the bound (red)" if beyond else ""
    text += f"; {broken} bins hold values that are not finite (black)" if broken else ""
    return figure(html_maps.draw_over(g, side, name), f"{text}. Beside: the largest by row and by column.")


def code_differences(verdict: Verdict, grids: Sequence[Grid]) -> Html:
    """A histogram per block tensor, all layers together; signed where the grids are at hand."""
    made, equal = [], []
    for i, tensor in enumerate(dict.fromkeys(r.tensor for r in verdict.layers if r.code_diffs is not None and r.n)):
        results = [r for r in verdict.layers if r.tensor == tensor and r.code_diffs is not None]
        mine = [g for g in grids if g.tensor == tensor and g.histogram is not None]
        counts: dict[int, int] = {}
        signed = len(mine) == len(results)
        if signed:
            for g in mine:
                for gap, n in g.histogram.items():
                    counts[gap] = counts.get(gap, 0) + n
        else:
            counts[0] = sum(r.equal for r in results)
            for r in results:
                for gap, n in r.code_diffs.items():
                    if gap.isdecimal() and len(gap) <= 3:
                        counts[int(gap)] = counts.get(int(gap), 0) + n
        counts = {gap: n for gap, n in counts.items() if n}
        if set(counts) <= {0}:
            equal.append(short(tensor, 60))
            continue
        n, same = sum(counts.values()), counts.get(0, 0)
        more = sum(c for gap, c in counts.items() if abs(gap) > 1)
        caption = join(
            [
                tag("code", short(tensor, 60)),
                f", all layers: {same} of {n} codes equal, {n - same - more} off by one, {more} by more.",
            ]
        )
        made.append(figure(html_maps.histogram(counts, f"h{i}", short(tensor, 60), signed=signed), caption))
    if not made and not equal:
        return Html("")
    same = tag("p", f"No code differs in {', '.join(equal)}.") if equal else ""
    return section("Code differences", same, tag("div", *made, class_="figures") if made else "")
