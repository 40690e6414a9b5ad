"""The report as one HTML file: nothing is loaded from anywhere, nothing in it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edge0verify import __version__
from edge0verify.records.errors import InputError
from edge0verify.records.verdict import Verdict
from edge0verify.report import html_pictures as pictures
from edge0verify.report import html_sections as sections
from edge0verify.report.html_fields import check_open_fields
from edge0verify.report.html_ladder import ladder, movement
from edge0verify.report.html_night_page import night_body
from edge0verify.report.html_nights import Nights, nights_section, read_nights
from edge0verify.report.html_style import STYLE
from edge0verify.report.html_svg import style
from edge0verify.report.html_text import MARK, Html, join, tag
from edge0verify.study.grids import Grid
from edge0verify.study.kept_grids import grids_from_json

SQLITE = b"SQLite format 3\x00"


def report(path: Path, *, nights: Path | None = None, chosen: Callable[[object], bool] | None = None) -> str:
    """The page of a verdict's JSON or of a history of nightlies, told apart by what is in the file.

    nights: a history whose trend a verdict's page shows too. chosen(layer): layers whose heat maps are drawn.
    InputError naming the file and what is wrong with it.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: expected a verdict's JSON or a history of nightlies, found: {error.strerror}") from None
    if raw.startswith(SQLITE):
        if nights is not None:
            raise InputError(f"{path}: expected a verdict's JSON beside --nights, found a history")
        return nightly_html(path)
    try:
        verdict = Verdict.loads(raw, source=str(path))
    except RecursionError:
        raise InputError(f"{path}: expected a verdict's JSON, found one nested too deep") from None
    grids = grids_from_json(verdict, source=str(path))
    return verdict_html(verdict, grids, nights=None if nights is None else read_nights(nights), chosen=chosen, source=str(path))


def verdict_html(
    verdict: Verdict,
    grids: Sequence[Grid] = (),
    *,
    nights: Nights | None = None,
    chosen: Callable[[object], bool] | None = None,
    source: str = "verdict",
) -> str:
    """A verdict's page. `grids` are those that `study.grids.Grids` collected, or that the verdict's JSON kept."""
    check_open_fields(verdict, source)
    with style():
        body = [
            sections.wrong(verdict),
            pictures.layers_and_stages(verdict, grids),
            pictures.heat_maps(verdict, grids, chosen),
            pictures.code_differences(verdict, grids),
            ladder(verdict, grids),
            sections.top8(verdict, movement(verdict)),
            nights_section(nights) if nights is not None else Html(""),
            sections.environment(verdict),
            sections.repeat(verdict),
        ]
    return _page(verdict.status, sections.title(verdict), sections.summary(verdict), body)


def nightly_html(path: Path) -> str:
    """The page of a history of nightlies: the last one first, then the trend. InputError where the file is no history."""
    nights = read_nights(path)
    with style():
        status, title, summary, body = night_body(nights)
    return _page(status, title, summary, body)


def _page(status: str, title: str, summary: Html, body: Sequence[Html]) -> str:
    made = [part for part in body if part]
    head = [
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        # Whatever a name in the file tries, the page may load nothing and run nothing.
        Html(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        ),
        Html('<meta name="referrer" content="no-referrer">'),
        Html('<link rel="icon" href="data:,">'),
        tag("title", f"{status}: {title} - edge0verify"),
        tag("style", Html(STYLE)),
    ]
    names = [_heading(part) for part in made]
    links = tag("ul", join(tag("li", tag("a", name, href=f"#{anchor}")) for anchor, name in names))
    page = [
        tag("head", *head),
        tag(
            "body",
            tag("a", "Skip to the content", href="#content", class_="skip"),
            tag(
                "header",
                tag("h1", Html(f'<span aria-hidden="true">{MARK.get(status, "-")}</span> '), f"{status}: {title}"),
            ),
            tag("main", summary, tag("nav", links, aria_label="Sections") if made else "", *made, id="content", tabindex="-1"),
            tag("footer", tag("p", f"Made by edge0verify {__version__}. Nothing here was loaded from elsewhere.")),
        ),
    ]
    text = f"<!DOCTYPE html>\n{tag('html', *page, lang='en')}\n"
    # ASCII alone, so that it reads the same however it is written, served or mailed.
    return text.encode("ascii", "xmlcharrefreplace").decode()


def _heading(part: Html) -> tuple[str, Html]:
    """(anchor, title) of a section."""
    inside = part.split('<h2 id="', 1)[1]
    anchor, rest = inside.split('">', 1)
    return anchor, Html(rest.split("</h2>", 1)[0])
