"""Figures with lines and bars: the ladder of layers, what the model says next beside the spread, nights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge0verify.records.status import FAIL, PASS
from edge0verify.report.html_svg import COLOURS, FAULT, INK, QUIET, WIDTH, layer_ticks, log_scale, new_figure, svg
from edge0verify.report.html_text import Html, short

STATUS_COLOURS = {PASS: "#2f9e5b", FAIL: FAULT, "INCONCLUSIVE": "#d9a400", "INPUT": "#a06cd5", "INTERNAL": "#8b1a1a"}
STATUS_MARKS = {PASS: "", FAIL: "x", "INCONCLUSIVE": "?", "INPUT": "i", "INTERNAL": "!"}
LEGEND = len(COLOURS)
"""Lines of one figure that have a colour of their own."""


def number(value: Any) -> float:
    """A figure of a verdict as a float; NaN where there is none, infinity where it is not finite ('nan' too: it must show)."""
    if isinstance(value, bool) or value is None:
        return np.nan
    if isinstance(value, (int, float)):
        return float(value) if abs(value) < 1e300 else np.inf
    return np.inf if value in ("nan", "inf", "-inf") else np.nan


def lines(
    name: str,
    label: str,
    layers: Sequence[object],
    series: Sequence[tuple[Mapping[object, float], str, bool]],
    *,
    wrong: Sequence[tuple[object, float]] = (),
    limit: float | None = None,
    marks: Sequence[tuple[object, float, str]] = (),
) -> Html:
    """Values by layer, powers of ten upwards. series: (layer -> value, colour, dashed).

    A ring marks what does not pass (`wrong`), a cross at the upper edge what is not finite, `marks` are numbers explained elsewhere.
    """
    place = {layer: i for i, layer in enumerate(layers)}
    inner = max(WIDTH - 0.7, 0.13 * len(layers))
    width, height = inner + 0.7, 2.2
    figure = new_figure(width, height)
    axis = figure.add_axes((0.55 / width, 0.42 / height, inner / width, (height - 0.55) / height))
    broken = []
    for values, colour, dashed in series:
        at = np.array([place[layer] for layer in values], float)
        heights = np.array(list(values.values()), float)
        broken += [x for x, y in zip(at, heights) if np.isinf(y)]
        drawn = np.where(np.isinf(heights), np.nan, heights)
        mark = dict(marker="s" if dashed else "o", markersize=3.5 if len(layers) <= 40 else 2)
        axis.plot(at, drawn, "--" if dashed else "-", color=colour, linewidth=1.3, **mark)
    if limit is not None and axis.lines:
        axis.axhline(limit, color=FAULT, linewidth=1.1)
    ringed = [(place[layer], y) for layer, y in wrong if np.isfinite(y)]
    if ringed:
        axis.plot(
            *zip(*ringed), linestyle="none", marker="o", markersize=9, markerfacecolor="none", markeredgewidth=1.3, color=FAULT
        )
    log_scale(axis)
    if broken:
        edge = axis.get_xaxis_transform()
        axis.plot(broken, [0.96] * len(broken), linestyle="none", marker="x", markersize=7, color=FAULT, transform=edge)
    for layer, y, text in marks:
        if np.isfinite(y) and y > 0:
            axis.annotate(
                text, (place[layer], y), (0, 5), textcoords="offset points", ha="center", fontsize=8, weight="bold", color=INK
            )
    axis.set_xlim(-0.5, len(layers) - 0.5)
    axis.grid(True, axis="y", alpha=0.25, linewidth=0.6)
    layer_ticks(axis, layers)
    axis.tick_params(labelsize=8, length=2)
    axis.set_xlabel("layer", labelpad=1)
    _open(axis)
    return svg(figure, name, label)


def movement(name: str, label: str, names: Sequence[str], moves: Sequence[float], spreads: Sequence[Sequence[float]]) -> Html:
    """A bar per prompt for how far a and b lie apart, a tick per accepted pair on it."""
    height = 0.55 + 0.34 * len(names)
    figure = new_figure(WIDTH, height)
    labels = [short(n, 16) for n in names]
    left = 0.2 + 0.075 * max(len(text) for text in labels)
    axis = figure.add_axes((left / WIDTH, 0.42 / height, (WIDTH - left - 0.2) / WIDTH, (height - 0.5) / height))
    at = np.arange(len(names))
    finite = np.array([m if np.isfinite(m) else 0.0 for m in moves])
    axis.barh(at, finite, height=0.55, color=COLOURS[0])
    every = [*finite, *(s for group in spreads for s in group if np.isfinite(s))]
    top = max(every, default=0.0) or 1.0
    for i, (move, group) in enumerate(zip(moves, spreads)):
        if np.isinf(move):
            axis.text(top * 0.02, i, "not finite", color=FAULT, va="center", fontsize=8)
        for s in group:
            axis.plot([s, s], [i - 0.38, i + 0.38], color=COLOURS[1], linewidth=2.2)
    axis.set_xlim(0, top * 1.06)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_yticks(at, labels)
    axis.xaxis.get_major_locator().set_params(nbins=5)
    axis.tick_params(labelsize=8, length=2)
    axis.set_xlabel("largest log-prob movement", labelpad=1)
    _open(axis)
    return svg(figure, name, label)


def nights(
    name: str, label: str, runs: Sequence[int], cells: Sequence[str], found: Mapping[tuple[str, int], str], changes: Sequence[int]
) -> Html:
    """Cells down, nights across, a coloured and marked square per result, a dot where there is none. Lines where the commit changes."""
    from matplotlib.colors import ListedColormap

    inner = max(1.4, 0.17 * len(runs))
    labels = [short(c, 26) for c in cells]
    left = 0.15 + 0.068 * max(len(text) for text in labels)
    width, height = inner + left + 0.1, 0.55 + 0.2 * len(cells)
    figure = new_figure(width, height)
    axis = figure.add_axes((left / width, 0.42 / height, inner / width, (height - 0.5) / height))
    order = list(STATUS_COLOURS)
    grid = np.full((len(cells), len(runs)), np.nan)
    for (cell, run), status in found.items():
        if cell in cells and status in order:
            grid[cells.index(cell), runs.index(run)] = order.index(status)
    shown = np.ma.masked_invalid(grid)
    extent = (-0.5, len(runs) - 0.5, len(cells) - 0.5, -0.5)
    cmap = ListedColormap(list(STATUS_COLOURS.values()))
    axis.imshow(shown, aspect="auto", interpolation="none", cmap=cmap, vmin=-0.5, vmax=len(order) - 0.5, extent=extent)
    for i, j in zip(*np.nonzero(np.isnan(grid))):
        axis.plot([j], [i], marker=".", markersize=2, color=QUIET)
    for i, j in zip(*np.nonzero(~np.isnan(grid))):
        mark = STATUS_MARKS[order[int(grid[i, j])]]
        if mark:
            axis.text(j, i, mark, ha="center", va="center", fontsize=7.5, weight="bold", color="#000000")
    for edge in range(1, len(cells)):
        axis.axhline(edge - 0.5, color="#ffffff", linewidth=0.8, alpha=0.6)
    _night_axis(axis, runs, changes)
    axis.set_ylim(len(cells) - 0.5, -0.5)
    axis.set_yticks(range(len(cells)), labels)
    axis.tick_params(labelsize=8, length=2)
    return svg(figure, name, label)


def trend(
    name: str, label: str, runs: Sequence[int], series: Sequence[tuple[Mapping[int, float], str, float]], changes: Sequence[int]
) -> Html:
    """One figure of a metric over nights, powers of ten upwards. series: (run -> value, colour, width), the important ones last."""
    inner = max(WIDTH - 0.7, 0.17 * len(runs))
    width, height = inner + 0.7, 2.2
    figure = new_figure(width, height)
    axis = figure.add_axes((0.55 / width, 0.42 / height, inner / width, (height - 0.55) / height))
    broken = []
    for values, colour, thick in series:
        at = np.array([runs.index(run) for run in values], float)
        heights = np.array(list(values.values()), float)
        broken += [x for x, y in zip(at, heights) if np.isinf(y)]
        axis.plot(at, np.where(np.isinf(heights), np.nan, heights), "-o", color=colour, linewidth=thick, markersize=3)
    log_scale(axis)
    if broken:
        edge = axis.get_xaxis_transform()
        axis.plot(broken, [0.96] * len(broken), linestyle="none", marker="x", markersize=7, color=FAULT, transform=edge)
    axis.grid(True, axis="y", alpha=0.25, linewidth=0.6)
    _night_axis(axis, runs, changes)
    axis.tick_params(labelsize=8, length=2)
    _open(axis)
    return svg(figure, name, label)


def _night_axis(axis, runs: Sequence[int], changes: Sequence[int]) -> None:
    for at in changes:
        axis.axvline(at - 0.5, color=INK, linewidth=0.9, linestyle=":")
    axis.set_xlim(-0.5, len(runs) - 0.5)
    layer_ticks(axis, list(runs))
    axis.set_xlabel("night (dotted: another commit)", labelpad=1)


def _open(axis) -> None:
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
