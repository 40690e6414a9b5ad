"""The page of a history of nightlies: how the last one ended, what does not pass, and the trend."""

from __future__ import annotations

import shlex

from edge0verify.records.errors import InputError
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import Verdict
from edge0verify.report.html_fields import check_open_fields, flat
from edge0verify.report.html_nights import CellResult, NightRun, Nights, column, nights_section
from edge0verify.report.html_sections import entries_table
from edge0verify.report.html_text import Html, badge, box, details, facts, join, listing, section, short, table, tag

MEANS = {
    PASS: "Every planned cell was compared and passed.",
    FAIL: "A cell does not pass.",
    INCONCLUSIVE: "A cell proved nothing. This is no pass.",
    "INPUT": "A cell could not be run as it was asked for.",
    "INTERNAL": "A cell broke.",
}
WRONG = 24
"""Cells that do not pass and are laid out one by one."""


def night_body(nights: Nights) -> tuple[str, str, Html, list[Html]]:
    """(status, title, summary, sections) of the page."""
    if not nights.runs:
        text = tag(
            "div", tag("p", badge(INCONCLUSIVE)), tag("p", "The history holds no nightly yet."), class_="verdict inconclusive"
        )
        return INCONCLUSIVE, "Nightly", text, []
    last = nights.runs[-1]
    before = nights.runs[-2] if len(nights.runs) > 1 else None
    status = last.status or INCONCLUSIVE
    title = f"Nightly {last.run}, commit {last.commit_text}"
    body = [_wrong(last), _cells(last), nights_section(nights), _environment(last), _repeat(last)]
    return status, title, _summary(last, before, status), body


def _summary(last: NightRun, before: NightRun | None, status: str) -> Html:
    parts = [tag("p", badge(status))]
    if last.status is None:
        parts.append(
            tag(
                "p",
                f"This nightly did not come to its end: {len(last.results)} of {len(last.planned)} cells have a result.",
            )
        )
    else:
        parts.append(tag("p", MEANS.get(status, "")))
    found = [r for r in last.results.values() if r.status != PASS]
    said = [
        join(
            [
                badge(r.status),
                " ",
                tag("code", short(r.cell, 80)),
                ": not this change" if r.not_this_change else "",
                *([": ", r.reasons[0][:300]] if r.reasons else []),
            ]
        )
        for r in sorted(found, key=_rank)
    ]
    said += [join([tag("code", short(cell, 80)), ": no result"]) for cell in last.missing]
    if said:
        parts.append(listing(said, most=8, what="cells"))
    counts = [(s, sum(r.status == s for r in last.results.values())) for s in MEANS]
    pairs: list[tuple[object, object]] = [
        ("started", last.started[:19].replace("T", " ")),
        ("commit", tag("code", str(last.commit or "unknown") + (" + changes" if last.dirty else ""))),
        (
            "cells",
            ", ".join(f"{n} {s}" for s, n in counts if n) + (f", {len(last.missing)} without a result" if last.missing else "")
            or "none",
        ),
    ]
    if before is not None:
        pairs.append(("night before", f"{before.run}: {before.status or 'not ended'}, commit {before.commit_text}"))
        pairs.append(("since then", _since(before, last)))
    return join([tag("div", *parts, class_=f"verdict {status.lower()}"), facts(pairs)])


def _rank(result: CellResult) -> int:
    order = ["INTERNAL", FAIL, "INPUT", INCONCLUSIVE]
    return order.index(result.status) if result.status in order else len(order)


def _since(before: NightRun, last: NightRun) -> str:
    """Which cells changed their status."""
    both = [c for c in last.results if c in before.results]
    moved = [
        f"{short(c, 40)} {before.results[c].status} to {last.results[c].status}"
        for c in both
        if before.results[c].status != last.results[c].status
    ]
    new, gone = (len(set(x.planned) - set(y.planned)) for x, y in ((last, before), (before, last)))
    parts = moved[:6] + ([f"{len(moved) - 6} more"] if len(moved) > 6 else [])
    parts += [f"{new} new in the plan"] if new else []
    parts += [f"{gone} no longer in the plan"] if gone else []
    return ", ".join(parts) or "no cell changed its status"


def _wrong(last: NightRun) -> Html:
    found = sorted((r for r in last.results.values() if r.status != PASS), key=_rank)
    if not found:
        return Html("")
    parts = []
    for i, r in enumerate(found[:WRONG]):
        head = join([badge(r.status), " ", tag("code", short(r.cell, 80)), " (not this change)" if r.not_this_change else ""])
        parts.append(details(head, *_cell(r), open_=i < 3))
    if len(found) > WRONG:
        parts.append(tag("p", f"{len(found) - WRONG} more do not pass; each has its line in the table below."))
    return section("What does not pass", *parts)


def _cell(result: CellResult) -> list[Html]:
    parts: list[Html] = [listing(result.reasons, most=6)] if result.reasons else []
    if result.remarks:
        parts.append(listing(result.remarks, most=4, what="remarks"))
    if result.dump:
        parts.append(tag("p", "Dump: ", tag("code", result.dump)))
    if result.verdict is not None:
        try:
            verdict = Verdict.from_json(result.verdict, source=result.cell)
            check_open_fields(verdict, result.cell)
        except InputError as wrong:
            parts.append(tag("p", f"The verdict that was kept cannot be shown: {wrong}"))
        else:
            if verdict.environment.get("command"):
                parts.append(box("The command", tag("pre", tag("code", f"$ {verdict.environment['command']}"))))
            parts.append(entries_table(verdict))
    return parts


def _cells(last: NightRun) -> Html:
    headers = ("cell", "equal %", "rel L2", "top-8 moved", "anchor equal %", "seconds", "why")
    lines = []
    for cell in (*last.planned, *(c for c in last.results if c not in last.planned)):
        r = last.results.get(cell)
        if r is None:
            lines.append(("inconclusive", (join(["no result ", tag("code", short(cell, 80))]), "-", "-", "-", "-", "-", "")))
            continue
        why = "; ".join(
            [
                *(["not this change"] if r.not_this_change else []),
                *(text[:200] for text in r.reasons[:1]),
                *(text[:200] for text in r.remarks[:1]),
            ]
        )
        kind = {PASS: "", INCONCLUSIVE: "inconclusive"}.get(r.status, "fail")
        figures = [column(r.metrics, name) for name in ("equal_pct", "max_rel_l2", "top8_move", "anchor_equal_pct")]
        name = join([badge(r.status), " ", tag("code", short(cell, 80))])
        lines.append((kind, (name, *figures, "-" if r.wall_s is None else f"{r.wall_s:.1f}", why)))
    return section("Cells of this night", table(headers, lines, label="Cells of the last nightly", prose=True))


def _environment(last: NightRun) -> Html:
    parts: list[Html] = [facts([*flat(dict(last.machine)), ("kernels sha256", last.kernels_sha256)])]
    if last.config.get("text"):
        parts.append(details("Configuration", box("Configuration", tag("pre", str(last.config["text"])))))
    return section("Environment", *parts)


def _repeat(last: NightRun) -> Html:
    path = last.config.get("path")
    if not path:
        return section("Repeat it", tag("p", "The history does not hold where its configuration lies."))
    command = f"$ edge0verify nightly {shlex.quote(str(path))}"
    return section("Repeat it", box("The command", tag("pre", tag("code", command))))
