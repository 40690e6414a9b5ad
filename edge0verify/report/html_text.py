"""Pieces of HTML. Whatever comes from a file is escaped here; what is `Html` already is trusted and passes through."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS

MARK = {PASS: "\N{CHECK MARK}", FAIL: "\N{MULTIPLICATION SIGN}", INCONCLUSIVE: "?"}
"""Beside the word and the colour, so that neither is needed to tell a status."""
LONG = 800
"""Characters of a reason that are shown at once."""
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")
"""What a page cannot hold, and what turns the direction of the text after it."""


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def visible(value: object) -> str:
    """As text, with control characters, lone surrogates and marks of direction as \\uXXXX."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found.group()):04x}", str(value))


def esc(value: object) -> Html:
    """Escaped for an element or a quoted attribute; `Html` as it is."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(visible(value), quote=True))


def short(value: object, most: int) -> str:
    """Cut in the middle, where names differ least: 'a-very-l...ng-name'."""
    text = str(value)
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - (most - 1 - head) :]}"


def label(value: object, most: int) -> str:
    """A name for a figure: one line that any font can draw."""
    return short(" ".join(visible(value).split()), most)


def tag(name: str, *parts: object, **attributes: object) -> Html:
    """One element. Attributes: a trailing underscore is dropped, others become hyphens; None and False are left out."""
    given = []
    for key, value in attributes.items():
        if value is not None and value is not False:
            key = key.rstrip("_").replace("_", "-")
            given.append(f" {key}" if value is True else f' {key}="{esc(value)}"')
    inside = "".join(esc(part) for part in parts)
    return Html(f"<{name}{''.join(given)}>{inside}</{name}>")


def join(parts: Iterable[object], between: str = "") -> Html:
    return Html(between.join(esc(part) for part in parts))


def heading_id(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def section(title: str, *parts: object) -> Html:
    """A landmark with its heading; `title` is one of ours."""
    name = heading_id(title)
    return tag("section", tag("h2", title, id=name), *parts, aria_labelledby=name)


def box(label: str, *parts: object, tall: bool = False, late: bool = False) -> Html:
    """Something wide: it scrolls inside its own box, which the keyboard can reach. late: it begins at its right end."""
    kinds = " ".join(["scroll", *(["tall"] if tall else []), *(["late"] if late else [])])
    return tag("div", *parts, class_=kinds, role="region", tabindex="0", aria_label=label)


def table(
    headers: Sequence[object],
    lines: Iterable[Sequence[object]],
    *,
    label: str,
    left: int = 1,
    prose: bool = False,
    tall: bool = False,
) -> Html:
    """A table in a scroll box: the first `left` columns read from the left, figures from the right.

    A line is a sequence of cells, or (class, tuple of cells). prose: the last column is text that wraps. tall: it scrolls down too.
    """
    last = len(headers) - 1

    def kind(i: int) -> str | None:
        return "why" if prose and i == last else None if i < left else "n"

    head = join(tag("th", name, scope="col", class_=kind(i)) for i, name in enumerate(headers))
    rows = []
    for line in lines:
        of_class, cells = line if len(line) == 2 and isinstance(line[1], tuple) else ("", line)
        made = [tag("td", cell, class_=kind(i)) if i else tag("th", cell, scope="row") for i, cell in enumerate(cells)]
        rows.append(tag("tr", *made, class_=of_class or None))
    return box(label, tag("table", tag("thead", tag("tr", head)), tag("tbody", *rows)), tall=tall)


def details(summary: object, *parts: object, open_: bool = False, class_: str | None = None) -> Html:
    return tag("details", tag("summary", summary), *parts, open=open_, class_=class_)


def badge(status: str) -> Html:
    """A status as a word, a mark and a colour; a status that is none of ours as its word alone."""
    return tag("span", tag("span", MARK.get(status, "-"), aria_hidden="true"), f" {status}", class_=f"badge {heading_id(status)}")


def facts(pairs: Iterable[tuple[object, object]]) -> Html:
    """A list of names and values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), class_="facts")


def listing(items: Sequence[object], *, most: int = 12, what: str = "reasons") -> Html:
    """A list whose first `most` are shown and whose rest opens on demand, as does the rest of a very long item."""
    items = [_long(item) for item in items]
    shown = tag("ul", *(tag("li", item) for item in items[:most]))
    if len(items) <= most:
        return shown
    rest = tag("ul", *(tag("li", item) for item in items[most:]))
    return join([shown, details(f"{len(items) - most} more {what}", rest)])


def _long(item: object) -> Html:
    if isinstance(item, Html) or len(text := str(item)) <= LONG:
        return esc(item)
    return join([text[: LONG // 2], "\N{HORIZONTAL ELLIPSIS}", details(f"all {len(text)} characters", tag("p", text))])


def figure(drawing: Html, caption: object, *, wide: bool = False, late: bool = False, legend: Html | str = "") -> Html:
    """A drawing with its caption; a wide one scrolls inside its own box, one whose end matters most (`late`) from there."""
    inner = box("figure: scrolls sideways", drawing, late=late) if wide else drawing
    return tag("figure", inner, legend, tag("figcaption", caption), class_="wide" if wide else None)
