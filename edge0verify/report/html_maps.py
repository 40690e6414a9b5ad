"""Heat maps of one tensor with what each row and column comes to beside them, the map of layers by tensors, code differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edge0verify.records.status import PASS
from edge0verify.records.verdict import LayerResult
from edge0verify.report.html_svg import COLOURS, FAULT, INK, PLATE, QUIET, WIDTH, layer_ticks, new_figure, power_bar, svg
from edge0verify.report.html_text import Html
from edge0verify.report.html_text import label as name_of
from edge0verify.study.grids import Grid
from edge0verify.study.kept_grids import sizes

_BROKEN = "#000000"
_GAPS = {1: "#6baed6", 2: "#fdae6b", 3: "#f16913", 5: "#d94801", 9: "#a63603", 17: "#7f2704", 65: "#4a1486"}
MOST_ROWS = 40
"""Tensors on one map of layers."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One quantity of a grid: its bins, and what each row and column of bins comes to."""

    values: np.ndarray
    by_row: np.ndarray
    by_column: np.ndarray
    what: str
    """What one bin shows."""
    beside: str
    """What the lines beside the map show."""


def share_panel(g: Grid) -> Panel:
    """Share of codes, or of values, that differ."""
    each = sizes(g.shape, g.step)
    counts = g.differing * each
    kind = "codes" if g.kind == "blocks" else "values"
    return Panel(
        values=g.differing,
        by_row=counts.sum(axis=1) / each.sum(axis=1),
        by_column=counts.sum(axis=0) / each.sum(axis=0),
        what=f"share of {kind} that differ",
        beside="share by row and by column",
    )


def over_panel(g: Grid, side: int) -> Panel | None:
    """Largest error over bound of one side (0 a, 1 b); None where no bound is known. What is not finite counts as infinite."""
    over = g.over[side]
    if over is None:
        return None
    whole = np.where(np.isnan(over), np.inf, over)
    return Panel(
        values=over,
        by_row=whole.max(axis=1),
        by_column=whole.max(axis=0),
        what=f"error over bound, {'ab'[side]}",
        beside="largest by row and by column",
    )


def gap_panel(g: Grid) -> Panel:
    """Largest code difference."""
    return Panel(
        values=g.farthest,
        by_row=g.farthest.max(axis=1),
        by_column=g.farthest.max(axis=0),
        what="largest code difference",
        beside="largest by row and by column",
    )


def draw_share(g: Grid, name: str) -> Html:
    import matplotlib as mpl
    from matplotlib.colors import LogNorm

    least = min(1.0 / (g.step[0] * g.step[1]), 0.5)
    cmap = mpl.colormaps["viridis_r"].with_extremes(bad=PLATE)
    panel = share_panel(g)
    return _draw(g, panel, name, np.ma.masked_equal(panel.values, 0), dict(cmap=cmap, norm=LogNorm(least, 1.0)), log=True)


def draw_over(g: Grid, side: int, name: str) -> Html:
    import matplotlib as mpl
    from matplotlib.colors import Normalize

    panel = over_panel(g, side)
    finite = panel.values[np.isfinite(panel.values)]
    worst = float(finite.max()) if finite.size else 0.0
    beyond = worst > 1 or bool(np.isinf(panel.values).any())
    # A legitimate kernel uses a fraction of its bound: the scale ends at the worst, rounded up, so that a pattern below it shows.
    top = 1.0 if beyond or not worst > 0 else min(1.0, float(np.ceil(worst * 20) / 20))
    cmap = mpl.colormaps["YlGnBu"].with_extremes(bad=_BROKEN, over=FAULT)
    how = dict(cmap=cmap, norm=Normalize(0, top))
    return _draw(g, panel, name, panel.values, how, extend="max" if beyond else "neither", limit=1.0 if beyond else None)


def draw_gaps(g: Grid, name: str) -> Html:
    from matplotlib.colors import BoundaryNorm, ListedColormap

    cmap = ListedColormap(list(_GAPS.values())).with_extremes(bad=PLATE)
    panel = gap_panel(g)
    return _draw(g, panel, name, np.ma.masked_equal(panel.values, 0), dict(cmap=cmap, norm=BoundaryNorm([*_GAPS, 256], cmap.N)))


def _draw(g: Grid, panel: Panel, name: str, values, how: Mapping, *, log=False, extend="neither", limit=None) -> Html:
    (n, m), (down, across) = g.shape, g.step
    figure = new_figure(WIDTH, 3.3)
    left, wide, low, high = 0.165, 0.56, 0.335, 0.515
    axis = figure.add_axes((left, low, wide, high))
    axis.set_facecolor(PLATE)
    right, below = figure.add_axes((left + wide + 0.03, low, 0.21, high)), figure.add_axes((left, 0.125, wide, 0.17))
    extent = (0, values.shape[1] * across, values.shape[0] * down, 0)
    image = axis.imshow(values, extent=extent, aspect="auto", interpolation="none", **how)
    place = figure.add_axes((left, 0.945, wide, 0.025))
    bar = figure.colorbar(image, cax=place, orientation="horizontal", extend=extend)
    if log:
        power_bar(bar, how["norm"].vmin)
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=7.5, length=2, pad=1.5)
    axis.set_xlim(0, m)
    axis.set_ylim(n, 0)
    rows, columns = range(g.tile[0], n, g.tile[0]), range(g.tile[1], m, g.tile[1])
    axis.hlines(rows, 0, m, colors="#606060", linewidth=0.5, alpha=0.7)
    axis.vlines(columns, 0, n, colors="#606060", linewidth=0.5, alpha=0.7)
    _profile(below, panel.by_column, across, m, columns, upright=True, log=log, limit=limit)
    _profile(right, panel.by_row, down, n, rows, upright=False, log=log, limit=limit)
    axis.tick_params(labelbottom=False, labelsize=7.5, length=2)
    axis.set_ylabel("row", labelpad=1)
    below.set_xlabel("column", labelpad=1)
    where = f"layer {g.layer} {g.tensor}, {n} rows by {m} columns"
    return svg(figure, name, f"Heat map of {panel.what}: {where}; beside it {panel.beside}")


def _profile(axis, values: np.ndarray, step: int, total: int, lines, *, upright: bool, log: bool, limit: float | None) -> None:
    """Bars along one side of the map, tile lines across them; what is not finite fills the whole height in the fault's colour."""
    heights = np.asarray(values, float)
    edges = np.minimum(np.arange(len(heights) + 1) * step, total)
    finite = heights[np.isfinite(heights)]
    positive = finite[finite > 0]
    most = float(positive.max()) if positive.size else 1.0
    # A fault a thousand bounds high must not flatten what lies beside it.
    log = (log or most > 20) and positive.size > 0
    base = 10.0 ** np.floor(np.log10(positive.min())) / 2 if log else 0.0
    top = 1.6 * max(most, limit or 0.0) if log else most * 1.15
    drawn = np.where(np.isfinite(heights), np.maximum(heights, base), top)
    way = "vertical" if upright else "horizontal"
    axis.stairs(drawn, edges, baseline=base, orientation=way, fill=True, color=COLOURS[0], alpha=0.9)
    span, across = (axis.axvspan, axis.axvline) if upright else (axis.axhspan, axis.axhline)
    for i in np.flatnonzero(~np.isfinite(heights)):
        span(edges[i], max(edges[i + 1], edges[i] + total / 150), color=FAULT, linewidth=0)
    for at in lines:
        across(at, color=QUIET, linewidth=0.4, alpha=0.6)
    if limit is not None:
        (axis.axhline if upright else axis.axvline)(limit, color=FAULT, linewidth=1.0)
    along = axis.yaxis if upright else axis.xaxis
    if log:
        (axis.set_yscale if upright else axis.set_xscale)("log")
    (axis.set_xlim if upright else axis.set_ylim)((0, total) if upright else (total, 0))
    (axis.set_ylim if upright else axis.set_xlim)(base, top)
    least = 10.0 ** np.floor(np.log10(positive.min())) if log else most
    # Side by side there is room for one number only.
    ends = [least, most] if upright and most > 4 * least else [most]
    along.set_ticks(ends, [_few(end) for end in ends])
    axis.minorticks_off()
    axis.tick_params(labelsize=7.5, length=2, pad=1.5)
    if not upright:
        axis.tick_params(labelleft=False)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _few(value: float) -> str:
    """A number in at most five characters: 0.22, 127, 3e6."""
    if 1e-3 <= value < 1000:
        return f"{value:.{3 if value >= 100 else 2}g}"
    digits, power = f"{value:.0e}".split("e")
    return f"{digits}e{int(power)}"


def overview(
    results: Sequence[LayerResult],
    values: Mapping[tuple, float | None],
    name: str,
    what: str,
    *,
    log: bool,
    limit: float | None = None,
) -> Html:
    """One map over layers (across) and entries (down) of `values[layer, tensor]`; a ring marks an entry that does not pass.

    With `limit`, what lies above it is red. None and NaN stay blank, infinity is above any limit.
    """
    import matplotlib as mpl
    from matplotlib.colors import LogNorm, Normalize

    layers = list(dict.fromkeys(r.layer for r in results))
    tensors = list(dict.fromkeys(t for _, t in values))[:MOST_ROWS]
    across, down = {layer: i for i, layer in enumerate(layers)}, {t: i for i, t in enumerate(tensors)}
    grid = np.full((len(tensors), len(layers)), np.nan)
    for (layer, tensor), value in values.items():
        if tensor in down and value is not None:
            grid[down[tensor], across[layer]] = value
    label = 0.2 + 0.066 * max(len(name_of(t, 18)) for t in tensors)
    inner = max(WIDTH - 0.1 - label, 0.13 * len(layers))
    width, height = inner + label + 0.1, 1.05 + 0.2 * len(tensors)
    figure = new_figure(width, height)
    axis = figure.add_axes((label / width, 0.45 / height, inner / width, (height - 1.05) / height))
    axis.set_facecolor(PLATE)
    finite = grid[np.isfinite(grid) & (grid > 0)]
    if log:
        least = 10.0 ** np.floor(np.log10(finite.min())) if finite.size else 1e-3
        norm, cmap = LogNorm(min(least, 0.1), 1.0), mpl.colormaps["viridis_r"].with_extremes(bad=PLATE)
        shown = np.ma.masked_where(~(grid > 0), grid)
        extend = "neither"
    else:
        beyond = limit is not None and bool((grid > limit).any())
        top = limit if beyond or not finite.size else min(limit or np.inf, float(finite.max()))
        norm, cmap = Normalize(0, top or 1.0), mpl.colormaps["YlGnBu"].with_extremes(bad=PLATE, over=FAULT)
        shown, extend = np.ma.masked_invalid(np.where(np.isinf(grid), 1e300, grid)), "max" if beyond else "neither"
    image = axis.imshow(
        shown, aspect="auto", interpolation="none", cmap=cmap, norm=norm, extent=(-0.5, len(layers) - 0.5, len(tensors) - 0.5, -0.5)
    )
    place = figure.add_axes((label / width, 1 - 0.3 / height, min(inner, 3.0) / width, 0.09 / height))
    bar = figure.colorbar(image, cax=place, orientation="horizontal", extend=extend)
    if log:
        power_bar(bar, norm.vmin)
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=7.5, length=2, pad=1.5)
    blank = [(across[layer], down[t]) for (layer, t), v in values.items() if t in down and v is None]
    if blank:
        axis.plot(*zip(*blank), linestyle="none", marker="_", markersize=4, color="#808080")
    wrong = [(across[r.layer], down[r.tensor]) for r in results if r.status != PASS and r.tensor in down]
    if wrong:
        axis.plot(
            *zip(*wrong), linestyle="none", marker="o", markersize=6, markerfacecolor="none", markeredgewidth=1.4, color=FAULT
        )
    for edge in range(1, len(tensors)):
        axis.axhline(edge - 0.5, color="#ffffff", linewidth=0.8)
    axis.set_xlim(-0.5, len(layers) - 0.5)
    axis.set_ylim(len(tensors) - 0.5, -0.5)
    axis.set_yticks(range(len(tensors)), [name_of(t, 18) for t in tensors])
    layer_ticks(axis, layers)
    axis.tick_params(labelsize=8, length=2)
    axis.set_xlabel("layer", labelpad=1)
    return svg(
        figure, name, f"Map of {what}: {len(layers)} layers across, {len(tensors)} entries down; the table holds the figures"
    )


def histogram(counts: Mapping[int, int], name: str, tensor: str, *, signed: bool) -> Html:
    """Codes by their difference, counts by powers of ten, so that one in a million still shows."""
    gaps, heights = np.array(sorted(counts)), np.array([counts[gap] for gap in sorted(counts)])
    top = max(3, int(np.abs(gaps).max()) if gaps.size else 3)
    figure = new_figure(WIDTH, 2.1)
    axis = figure.add_axes((0.16, 0.2, 0.8, 0.74))
    colours = ["#7f7f7f" if gap == 0 else FAULT if abs(gap) > 1 else COLOURS[0] for gap in gaps]
    axis.bar(gaps, heights, width=0.8 if top < 40 else 1.0, color=colours)
    axis.set_yscale("log")
    most = int(np.ceil(np.log10(max(10, heights.max() if heights.size else 10)) + 0.6))
    axis.set_ylim(0.5, 10.0**most)
    ticks = range(0, most + 1, max(1, most // 4))
    axis.set_yticks([10.0**t for t in ticks], [f"{10**t:,}" if t < 4 else f"1e{t}" for t in ticks])
    axis.minorticks_off()
    axis.set_xlim((-top if signed else 0) - 0.7, top + 0.7)
    axis.xaxis.get_major_locator().set_params(integer=True)
    if len(gaps) <= 5:
        for gap, count in zip(gaps, heights):
            axis.text(gap, count * 1.25, f"{count:,}", ha="center", va="bottom", fontsize=7.5, color=INK)
    axis.tick_params(labelsize=8, length=2)
    axis.set_xlabel("code a - code b" if signed else "|code a - code b|", labelpad=1)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    return svg(figure, name, f"Histogram of code differences of {tensor}: at most {int(np.abs(gaps).max()) if gaps.size else 0}")
