"""matplotlib figures as SVG within the page: text stays text, lines and letters take the page's own colours, light or dark."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edge0verify.report.html_text import Html, esc, join, short, tag
from edge0verify.report.html_text import label as name_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 3.2
"""Inches of a figure that a phone shows whole."""
INK, QUIET = "#010203", "#040506"
"""Stand-ins that become the page's own colours."""
COLOURS = ("#3d85c6", "#d07000", "#2f9e5b", "#a06cd5", "#c0563f", "#1a9a9a", "#968700", "#d4589b")
"""Each stands out at least 3 to 1 from the light and from the dark page."""
FAULT = "#e0403a"
PLATE = "#f2f2f2"
"""Behind a heat map in both themes, so that its colours mean the same."""
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "edge0verify",
    "text.parse_math": False,
    "font.size": 8.5,
    "font.family": "sans-serif",
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.formatter.use_mathtext": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "grid.color": QUIET,
}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches; draw it inside `style()`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def style():
    """The settings that figures are drawn with, as a context; nothing outside it is touched."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def svg(figure: Figure, name: str, label: str) -> Html:
    """The figure as an <svg> element. `name` is its own within the page, `label` says what it shows to who cannot see it."""
    out = io.StringIO()
    with warnings.catch_warnings():
        # The browser's fonts draw the letters; that matplotlib's own lack one is no matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    head, body = text.split(">", 1)
    view = re.search(r'viewBox="([^"]*)"', head).group(1)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    # Names must be unique within the page, and every figure brings its own axes_1.
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    body = body.replace(INK, "var(--ink)").replace(QUIET, "var(--quiet)")
    natural = re.search(r'width="([\d.]+)pt"', head).group(1)
    return Html(
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{view}" '
        f'data-width="{natural}" role="img" aria-label="{esc(label)}">{body}'
    )


def wide(drawing: Html) -> Html:
    """The same figure at its natural width, to scroll rather than to shrink."""
    width = round(float(re.search(r'data-width="([\d.]+)"', drawing).group(1)) * 4 / 3)
    return Html(drawing.replace("<svg ", f'<svg style="width:{width}px" ', 1))


def legend(entries: Sequence[tuple[str, str, bool]]) -> Html:
    """Names beside a piece of their line: (name, colour, dashed). Outside the figure, so that it wraps on a phone."""
    lines = []
    for name, colour, dashed in entries:
        line = tag(
            "line", x1="0", y1="5", x2="28", y2="5", stroke=colour, stroke_width="2.5", stroke_dasharray="5 3" if dashed else None
        )
        lines.append(tag("li", tag("svg", line, viewBox="0 0 28 10", aria_hidden="true"), short(name, 40)))
    return tag("ul", join(lines), class_="legend")


def log_scale(axis, *, floor: float = 1e-7) -> None:
    """Powers of ten, with zero as a line of its own below the smallest value drawn."""
    values = [np.asarray(line.get_ydata(), float) for line in axis.lines if line.get_transform() == axis.transData]
    every = np.concatenate(values) if values else np.zeros(0)
    positive = every[np.isfinite(every) & (every > 0)]
    if not positive.size:
        axis.set_ylim(-0.05, 1.05)
        axis.set_yticks([0.0], ["0"])
        return
    # A value that is a power of ten itself, such as a share of all, is the upper end.
    least, most = np.floor(np.log10(positive.min())), np.ceil(np.log10(positive.max()) - 1e-9)
    most = max(most, least + 1)
    if (every == 0).any():
        least = min(least, np.log10(floor))
        axis.set_yscale("symlog", linthresh=10.0**least, linscale=0.6)
        axis.set_ylim(-(10.0**least) / 4, 1.25 * 10.0**most)
        decades = _decades(least, most)
        axis.set_yticks([0.0, *(10.0**d for d in decades)], ["0", *map(_power, decades)])
    else:
        axis.set_yscale("log")
        axis.set_ylim(10.0**least, 1.25 * 10.0**most)
        decades = _decades(least, most)
        axis.set_yticks([10.0**d for d in decades], [*map(_power, decades)])
    axis.minorticks_off()


def _decades(least: float, most: float) -> list[int]:
    """At most six whole powers of ten between the two, both ends of the range among the candidates."""
    step = max(1, int(np.ceil((most - least) / 5)))
    return list(range(int(most), int(least) - 1, -step))


def power_bar(bar, least: float) -> None:
    """Ticks of a horizontal colour bar that runs from `least` to 1 by powers of ten."""
    decades = _decades(np.ceil(np.log10(least) - 1e-9), 0)
    if len(decades) > 1:
        bar.set_ticks([10.0**d for d in decades], labels=[*map(_power, decades)])
    else:
        bar.set_ticks([least, 1.0], labels=[f"{least:.2g}", "1"])
    bar.minorticks_off()


def _power(decade: int) -> str:
    return {0: "1", 1: "10", 2: "100", -1: "0.1", -2: "0.01"}.get(decade, f"1e{decade}")


def layer_ticks(axis, layers: Sequence[object]) -> None:
    """Layer numbers along x, as many as there is room for; the names that are no numbers always."""
    inches = axis.get_position().width * axis.figure.get_figwidth()
    every = max(1, int(np.ceil(len(layers) / max(2, inches / 0.3))))
    named = [i for i, layer in enumerate(layers) if not isinstance(layer, int)]
    # The last ones (mtp, head) take the place of the numbers just before them.
    kept = set(named[-2:]) if len(named) < len(layers) else set()
    shown = [i for i in range(len(layers)) if i in kept or (i % every == 0 and not any(0 < k - i < every for k in kept))]
    axis.set_xticks(shown, [name_of(layers[i], 8) for i in shown])
