"""Pictures of a comparison: a page of heat maps for each tensor, and the ladder of layers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edge0verify.records.errors import InputError
from edge0verify.records.status import PASS
from edge0verify.records.verdict import Verdict
from edge0verify.report.tables import share
from edge0verify.study.grids import Grid

ROWS = 6
"""Layers on one page."""
EQUAL, BEYOND, BROKEN, LINE = "#f2f2f2", "#d62728", "#000000", "#606060"
"""Colours of: no difference, beyond the bound, not finite, tile lines."""
_GAPS = {1: "#6baed6", 2: "#fdae6b", 3: "#f16913", 5: "#d94801", 9: "#a63603", 17: "#7f2704", 65: "#4a1486"}
"""Colours of code differences from that size on: one step is cool, more is not."""
_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#17becf", "#bcbd22")


def write_pictures(verdict: Verdict, grids: Sequence[Grid], folder: Path) -> list[Path]:
    """Write `TENSOR.png` (TENSOR-2.png ... beyond six layers) and `ladder.png`; returns their paths.

    InputError where the folder cannot be written. Nothing is drawn where nothing was compared.
    """
    import matplotlib

    matplotlib.use("Agg")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for tensor in dict.fromkeys(g.tensor for g in grids):
            of_tensor = [g for g in grids if g.tensor == tensor]
            for page, first in enumerate(range(0, len(of_tensor), ROWS)):
                figure = _page(verdict, of_tensor[first : first + ROWS])
                written.append(_save(figure, folder / (f"{tensor}-{page + 1}.png" if page else f"{tensor}.png")))
        if grids:
            written.append(_save(_ladder(verdict, grids), folder / "ladder.png"))
    except OSError as error:
        raise InputError(f"{folder}: expected a folder that can be written, found: {error.strerror}") from None
    return written


def _save(figure, path: Path) -> Path:
    """Whole or not at all: a temporary file, renamed."""
    import matplotlib.pyplot as plt

    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        figure.savefig(partial, dpi=100, format="png", metadata={"Software": "edge0verify"})
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
        plt.close(figure)
    return path


def _title(verdict: Verdict, tensor: str) -> str:
    stage = f"stage {verdict.stage}, " if verdict.stage else ""
    return f"{stage}{tensor}: a = {verdict.a}, b = {verdict.b}, verdict {verdict.status}"


def _page(verdict: Verdict, grids: Sequence[Grid]):
    """Up to six layers of one tensor, three panels each."""
    import matplotlib.pyplot as plt

    height = 0.9 + 2.9 * len(grids)
    figure, axes = plt.subplots(len(grids), 3, figsize=(15, height), squeeze=False)
    # Fixed margins in inches: a layout engine would draw each page several times.
    margins = dict(left=0.05, right=0.985, top=1 - 0.75 / height, bottom=0.5 / height, wspace=0.16, hspace=0.36)
    figure.subplots_adjust(**margins)
    figure.suptitle(_title(verdict, grids[0].tensor), fontsize=13, y=1 - 0.2 / height, va="top")
    for row, g in zip(axes, grids):
        _differing(figure, row[0], g)
        if g.kind == "rows":
            for axis, over, side in zip(row[1:], g.over, "ab"):
                _over(figure, axis, g, over, side)
        else:
            _farthest(figure, row[1], g)
            _histogram(row[2], g)
    return figure


def _heat(axis, g: Grid, values: np.ndarray, **how):
    """One heat map in the tensor's own rows and columns, with tile lines."""
    (n, m), (down, across) = g.shape, g.step
    extent = (0, values.shape[1] * across, values.shape[0] * down, 0)
    image = axis.imshow(values, extent=extent, aspect="auto", interpolation="nearest", **how)
    axis.set_xlim(0, m)
    axis.set_ylim(n, 0)
    axis.hlines(range(g.tile[0], n, g.tile[0]), 0, m, colors=LINE, linewidth=0.7, alpha=0.7)
    axis.vlines(range(g.tile[1], m, g.tile[1]), 0, n, colors=LINE, linewidth=0.7, alpha=0.7)
    axis.set_xlabel(f"column (a line every {g.tile[1]})", fontsize=8)
    axis.set_ylabel(f"row (a line every {g.tile[0]})", fontsize=8)
    axis.tick_params(labelsize=8)
    return image


def _bar(figure, axis, image, **how) -> None:
    bar = figure.colorbar(image, ax=axis, pad=0.01, **how)
    bar.minorticks_off()  # half of the time a page takes would go into them
    bar.ax.tick_params(labelsize=8)


def _differing(figure, axis, g: Grid) -> None:
    """Share of elements that differ in each bin, by powers of ten; a bin without any is light grey."""
    import matplotlib as mpl
    from matplotlib.colors import LogNorm

    cmap = mpl.colormaps["viridis_r"].with_extremes(bad=EQUAL)
    least = 1.0 / (g.step[0] * g.step[1])
    values = np.ma.masked_equal(g.differing, 0)
    image = _heat(axis, g, values, cmap=cmap, norm=LogNorm(min(least, 0.5), 1.0))
    _bar(figure, axis, image)
    r = g.result
    what = "codes" if g.kind == "blocks" else "values"
    axis.set_title(f"layer {g.layer} ({r.status}): share of {what} that differ; {share(r.equal, r.n)} % equal", fontsize=9)


def _over(figure, axis, g: Grid, over: np.ndarray | None, side: str) -> None:
    """Largest error in each bin as a share of the bound; red beyond it, black where a value is not finite."""
    import matplotlib as mpl
    from matplotlib.colors import Normalize

    if over is None:
        axis.text(0.5, 0.5, f"{side}: no bound known", ha="center", va="center", transform=axis.transAxes, fontsize=9)
        axis.set_axis_off()
        return
    cmap = mpl.colormaps["YlGnBu"].with_extremes(bad=BROKEN, over=BEYOND)
    finite = over[np.isfinite(over)]
    worst = float(finite.max()) if finite.size else np.nan
    beyond = bool((finite > 1).any())
    # A legitimate kernel uses a fraction of its bound: the scale ends at the worst, rounded up, so that a pattern below it shows.
    top = 1.0 if beyond or not worst > 0 else min(1.0, float(np.ceil(worst * 20) / 20))
    image = _heat(axis, g, over, cmap=cmap, norm=Normalize(0, top))
    _bar(figure, axis, image, extend="max" if beyond else "neither")
    broken = int(np.isnan(over).sum())
    note = f"; {broken} bins hold values that are not finite" if broken else ""
    axis.set_title(f"{side}: error over bound, worst {worst:.2g}{note}", fontsize=9)


def _farthest(figure, axis, g: Grid) -> None:
    """Largest code difference in each bin."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    cmap = ListedColormap(list(_GAPS.values())).with_extremes(bad=EQUAL)
    top = int(g.farthest.max())
    norm = BoundaryNorm([*_GAPS, 256], cmap.N)
    image = _heat(axis, g, np.ma.masked_equal(g.farthest, 0), cmap=cmap, norm=norm)
    _bar(figure, axis, image)
    axis.set_title(f"largest code difference, {top} at most", fontsize=9)


def _histogram(axis, g: Grid) -> None:
    """Codes by their difference, counts by powers of ten, so that one in a million still shows."""
    gaps, counts = np.array(list(g.histogram)), np.array(list(g.histogram.values()))
    top = max(3, int(np.abs(gaps).max()))
    colours = ["#7f7f7f" if gap == 0 else BEYOND if abs(gap) > 1 else _COLOURS[0] for gap in gaps]
    axis.bar(gaps, counts, width=0.8 if top < 40 else 1.0, color=colours)
    axis.set_yscale("log")
    axis.minorticks_off()
    axis.set_ylim(0.5, counts.max() * 8)
    axis.set_xlim(-top - 0.7, top + 0.7)
    if len(gaps) <= 9:
        for gap, count in zip(gaps, counts):
            axis.text(gap, count * 1.2, f"{count:,}", ha="center", va="bottom", fontsize=8)
    axis.set_xlabel("code a - code b", fontsize=8)
    axis.set_ylabel("codes", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.set_title("code differences", fontsize=9)


def _ladder(verdict: Verdict, grids: Sequence[Grid]):
    """Layer by layer: how much differs, how near each side comes to its bound, how far apart they are."""
    import matplotlib.pyplot as plt

    layers = list(dict.fromkeys(g.layer for g in grids))
    figure, axes = plt.subplots(3, 1, figsize=(max(8, 3 + 0.45 * len(layers)), 9), sharex=True, layout="constrained")
    figure.suptitle(_title(verdict, "layer by layer"), fontsize=13)
    for colour, tensor in zip(_cycle(), dict.fromkeys(g.tensor for g in grids)):
        found = {g.layer: g for g in grids if g.tensor == tensor}
        at = [layers.index(layer) for layer in found]
        results = [g.result for g in found.values()]
        wrong = [r.status != PASS for r in results]
        _line(axes[0], at, [(r.n - r.equal) / r.n for r in results], colour, tensor, wrong)
        _line(axes[2], at, [_number(r.rel_l2) for r in results], colour, tensor, wrong)
        for side, style, mark in ((0, "-", "o"), (1, "--", "s")):
            worst = [g.worst[side] for g in found.values()]
            if any(w is not None for w in worst):
                broken = [r.conforming["ab"[side]] not in (None, r.n) for r in results]
                values = [np.nan if w is None else w for w in worst]
                _line(axes[1], at, values, colour, f"{tensor}, {'ab'[side]}", broken, style, mark)
    axes[0].set_ylabel("share that differs")
    axes[1].set_ylabel("worst error over bound")
    axes[2].set_ylabel("rel L2 of a - b")
    for axis in axes:
        _scale(axis)
        axis.grid(True, which="major", alpha=0.3)
    if axes[1].lines:
        axes[1].axhline(1.0, color=BEYOND, linewidth=1.2)
        place = dict(ha="right", va="bottom", transform=axes[1].get_yaxis_transform())
        axes[1].text(0.995, 1.0, "bound ", color=BEYOND, fontsize=8, **place)
    for axis in axes:
        if axis.get_legend_handles_labels()[1]:
            axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes[2].set_xticks(range(len(layers)), [str(layer) for layer in layers])
    axes[2].set_xlabel("layer (ring: not PASS, in the middle: this side does not conform)")
    return figure


def _cycle():
    while True:
        yield from _COLOURS


def _line(axis, at, values, colour, label, wrong, style="-", mark="o") -> None:
    """One line with a ring round what is wrong; a value that is not finite is a cross at the upper edge."""
    values = np.asarray(values, float)
    axis.plot(at, np.where(np.isinf(values), np.nan, values), style, color=colour, marker=mark, markersize=5, label=label)
    ringed = [(x, y) for x, y, bad in zip(at, values, wrong) if bad and np.isfinite(y)]
    if ringed:
        axis.plot(*zip(*ringed), linestyle="none", marker="o", markersize=12, markerfacecolor="none", color=BEYOND)
    for x, y in zip(at, values):
        if np.isinf(y):
            axis.plot([x], [0.97], linestyle="none", marker="x", markersize=10, color=BEYOND, transform=axis.get_xaxis_transform())
            axis.text(x, 0.97, "  not finite", color=BEYOND, fontsize=8, va="center", transform=axis.get_xaxis_transform())


def _scale(axis) -> None:
    """Powers of ten, with zero as a line of its own below the smallest value."""
    inside = [line for line in axis.lines if line.get_transform() == axis.transData]
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in inside]) if inside else np.zeros(0)
    positive = values[np.isfinite(values) & (values > 0)]
    if positive.size == 0:
        return
    least = 10.0 ** np.floor(np.log10(positive.min()))
    if (values == 0).any():
        least = min(least, 1e-6)  # so that a zero lies well below everything that is not one
        axis.set_yscale("symlog", linthresh=least)
        axis.set_ylim(bottom=-least / 4)
    else:
        axis.set_yscale("log")


def _number(value) -> float:
    """A figure of a verdict; NaN where it is none."""
    return float(value) if isinstance(value, (int, float)) else np.nan
