"""Figures with lines and bars: the ladder of layers, what the model says next beside the spread, nights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge0verify.records.status import FAIL, PASS
from edge0verify.report.html_svg import COLOURS, FAULT, INK, QUIET, WIDTH, layer_ticks, log_scale, new_figure, svg
from edge0verify.report.html_text import Html
from edge0verify.report.html_text import label as name_of

STATUS_COLOURS = {PASS: "#2f9e5b", FAIL: FAULT, "INCONCLUSIVE": "#d9a400", "INPUT": "#a06cd5", "INTERNAL": "#8b1a1a"}
STATUS_MARKS = {PASS: "", FAIL: "x", "INCONCLUSIVE": "?", "INPUT": "i", "INTERNAL": "!"}
_NIGHT, _ABOVE = 0.17, 0.62
"""Inches of a night across, and of the commits' names above."""


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

    A ring marks what does not pass (`wrong`), a cross at the edge what is not finite, `marks` are numbers explained elsewhere.
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
    labels = [name_of(n, 16) for n in names]
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
    name: str,
    about: str,
    runs: Sequence[int],
    cells: Sequence[str],
    found: Mapping[tuple[str, int], str],
    commits: Sequence[tuple[int, str]],
) -> Html:
    """Cells down, nights across, a coloured and marked square per result, a dot where there is none.

    The names stand at the right, beside the last night. commits: (place of its first night, short name), in order.
    """
    from matplotlib.colors import ListedColormap

    inner = max(1.0, _NIGHT * len(runs))
    labels = [name_of(c, 36) for c in cells]
    right = 0.15 + 0.071 * max(len(text) for text in labels)
    width, height = inner + right + 0.15, 0.45 + _ABOVE + 0.2 * len(cells)
    figure = new_figure(width, height)
    axis = figure.add_axes((0.15 / width, 0.42 / height, inner / width, 0.2 * len(cells) / height))
    order = list(STATUS_COLOURS)
    grid = np.full((len(cells), len(runs)), np.nan)
    for (cell, run), status in found.items():
        if cell in cells and status in order:
            grid[cells.index(cell), runs.index(run)] = order.index(status)
    extent = (-0.5, len(runs) - 0.5, len(cells) - 0.5, -0.5)
    cmap = ListedColormap(list(STATUS_COLOURS.values()))
    shown = dict(aspect="auto", interpolation="none", cmap=cmap, vmin=-0.5, vmax=len(order) - 0.5, extent=extent)
    axis.imshow(np.ma.masked_invalid(grid), **shown)
    none = np.argwhere(np.isnan(grid))
    axis.plot(none[:, 1], none[:, 0], linestyle="none", marker=".", markersize=3, color=QUIET)
    for i, j in np.argwhere(~np.isnan(grid)):
        mark = STATUS_MARKS[order[int(grid[i, j])]]
        if mark:
            axis.text(j, i, mark, ha="center", va="center", fontsize=7.5, weight="bold", color="#000000")
    for edge in range(1, len(cells)):
        axis.axhline(edge - 0.5, color="#ffffff", linewidth=0.8, alpha=0.6)
    _night_axis(axis, runs, commits)
    axis.set_ylim(len(cells) - 0.5, -0.5)
    axis.yaxis.tick_right()
    axis.set_yticks(range(len(cells)), labels)
    axis.tick_params(labelsize=8, length=2)
    return svg(figure, name, about)


def trend(
    name: str,
    about: str,
    runs: Sequence[int],
    series: Sequence[tuple[Mapping[int, float], str, float]],
    commits: Sequence[tuple[int, str]],
) -> Html:
    """A metric over nights. series: (run -> value, colour, width), the important ones last.

    Powers of ten upwards where the values span more than a factor of five, so that a small drift shows as well as a large one.
    """
    inner = max(WIDTH - 0.7, _NIGHT * len(runs))
    width, height = inner + 0.7, 1.9 + _ABOVE
    figure = new_figure(width, height)
    axis = figure.add_axes((0.15 / width, 0.42 / height, inner / width, 1.4 / height))
    broken, every = [], []
    for values, colour, thick in series:
        at = np.array([runs.index(run) for run in values], float)
        heights = np.array(list(values.values()), float)
        broken += [x for x, y in zip(at, heights) if np.isinf(y)]
        every += [y for y in heights if np.isfinite(y)]
        axis.plot(at, np.where(np.isinf(heights), np.nan, heights), "-o", color=colour, linewidth=thick, markersize=3)
    least, most = min(every, default=0.0), max(every, default=0.0)
    if 0 < most <= 5 * least:
        axis.set_ylim(least - 0.25 * (most - least) - 1e-3 * most, most + 0.25 * (most - least) + 1e-3 * most)
        axis.yaxis.get_major_locator().set_params(nbins=5)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    else:
        log_scale(axis)
    if broken:
        edge = axis.get_xaxis_transform()
        axis.plot(broken, [0.96] * len(broken), linestyle="none", marker="x", markersize=7, color=FAULT, transform=edge)
    axis.grid(True, axis="y", alpha=0.25, linewidth=0.6)
    _night_axis(axis, runs, commits)
    # The scale stands beside the last night, which is what a narrow screen shows.
    axis.yaxis.tick_right()
    axis.tick_params(labelsize=8, length=2)
    _open(axis, left=True)
    return svg(figure, name, about)


def _night_axis(axis, runs: Sequence[int], commits: Sequence[tuple[int, str]]) -> None:
    """Numbers of the nights below, and above the first night of each commit its name."""
    for at, commit in commits:
        if at:
            axis.axvline(at - 0.5, color=INK, linewidth=0.9, linestyle=":")
        place = dict(rotation=90, ha="center", va="bottom", transform=axis.get_xaxis_transform())
        axis.text(at, 1.02, name_of(commit, 9), fontsize=7, color=INK, **place)
    axis.set_xlim(-0.5, len(runs) - 0.5)
    layer_ticks(axis, list(runs))
    axis.set_xlabel("night", labelpad=1)


def _open(axis, *, left: bool = False) -> None:
    for side in ("top", "left" if left else "right"):
        axis.spines[side].set_visible(False)
