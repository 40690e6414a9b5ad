"""The parts of a verdict's page, in the order they are read."""

from __future__ import annotations

from collections.abc import Sequence

from edge0verify.records.causes import CAUSES
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import LayerResult, Verdict
from edge0verify.report import tables
from edge0verify.report.html_fields import flat
from edge0verify.report.html_text import Html, badge, box, details, esc, facts, join, listing, section, short, table, tag
from edge0verify.study.inheritance import STAGE_OF

MEANS = {
    PASS: "Something was compared, all of it conforms and is within policy, and both variants ran.",
    FAIL: "Something does not conform, or is outside policy.",
    INCONCLUSIVE: "Nothing was proven. This is no pass.",
}
WRONG = 12
"""Entries that do not pass and are laid out one by one; the rest is in the table."""
_ENGAGED = {True: "engaged", False: "NOT engaged", None: "not known"}


def title(verdict: Verdict) -> str:
    names = f"a = {short(verdict.a, 60)}, b = {short(verdict.b, 60)}"
    return f"Stage {short(verdict.stage, 20)}: {names}" if verdict.stage else f"Comparison: {names}"


def summary(verdict: Verdict) -> Html:
    """The verdict, why, and what was compared."""
    kind = verdict.status.lower()
    parts = [tag("p", badge(verdict.status)), tag("p", MEANS[verdict.status])]
    if verdict.reasons:
        parts.append(listing(verdict.reasons, most=8))
    notes = verdict.totals.get("notes") or []
    if notes:
        parts.append(tag("p", "Notes:", class_="quiet"))
        parts.append(listing(notes, most=4, what="notes"))
    return join([tag("div", *parts, class_=f"verdict {kind}"), facts(_compared(verdict))])


def _compared(verdict: Verdict) -> list[tuple[str, object]]:
    model, prompt = verdict.model or {}, verdict.prompt or {}
    told = [str(prompt["name"])] if prompt.get("name") else []
    told += [f"{prompt['tokens']} tokens"] if prompt.get("tokens") else []
    entries = [r for r in verdict.layers if r.n]
    layers = len({r.layer for r in entries})
    pairs: list[tuple[str, object]] = [
        ("a", f"{verdict.a}: {_ENGAGED[verdict.engaged['a']]}"),
        ("b", f"{verdict.b}: {_ENGAGED[verdict.engaged['b']]}"),
        ("reference", verdict.reference or "-"),
        ("model", " ".join(str(model[k]) for k in ("name", "file") if model.get(k)) or "-"),
        ("prompt", ", ".join(told) or "-"),
        ("compared", f"{sum(r.n for r in entries)} elements, {_many(len(entries), 'entry', 'entries')}, {_many(layers, 'layer')}"),
    ]
    codes = [r for r in entries if r.code_diffs is not None]
    if codes:
        n, equal = sum(r.n for r in codes), sum(r.equal for r in codes)
        pairs.append(("codes equal", f"{equal} of {n} ({tables.share(equal, n)} %)"))
    return pairs


def _many(n: int, one: str, more: str | None = None) -> str:
    return f"{n} {one if n == 1 else more or one + 's'}"


def wrong(verdict: Verdict) -> Html:
    """Entries that do not pass, one by one; empty where there are none."""
    found = sorted((r for r in verdict.layers if r.status != PASS), key=lambda r: r.status != FAIL)
    if not found:
        return Html("")
    parts = [
        details(
            join(
                [
                    badge(r.status),
                    f" layer {short(r.layer, 20)} ",
                    tag("code", short(r.tensor, 60)),
                    f": {tables.causes(r) or 'nothing compared'}",
                ]
            ),
            *entry(r),
            open_=i < 3,
        )
        for i, r in enumerate(found[:WRONG])
    ]
    if len(found) > WRONG:
        parts.append(tag("p", f"{len(found) - WRONG} more do not pass; each has its line in the table below."))
    return section("What does not pass", *parts)


def entry(result: LayerResult) -> list[Html]:
    """Reasons, causes with their meaning, distances, bias and the worst elements of one entry."""
    parts = [listing(result.reasons, most=6)] if result.reasons else []
    pairs: list[tuple[object, object]] = [("elements", f"{result.n}, {result.equal} with the same bits")]
    for side in "ab":
        pairs.append((f"{side} keeps its contract", tables.keeps(result.conforming[side], result.n)))
        if result.poison[side]:
            pairs.append((f"{side} unwritten", result.poison[side]))
    for name, n in sorted(result.causes.items(), key=lambda item: -item[1]):
        meaning = CAUSES[name].meaning if name in CAUSES else "-"
        pairs.append((name, f"{n}: {meaning}"))
    for name, value in (result.triangle or {}).items():
        pairs.append((f"rel L2 {name.replace('_', ' to ')}", tables.figure(value)))
    parts.append(facts(pairs))
    if result.bias:
        parts.append(details("Bias test", facts(flat(result.bias))))
    if result.worst:
        parts.append(_worst(result))
    return parts


def _worst(result: LayerResult) -> Html:
    headers = ("row, column", "key", "a", "b", "may be", "cause")
    lines = []
    for w in result.worst[:20]:
        bound = "-" if w.bound is None else " to ".join(tables.figure(v, 8) for v in w.bound)
        key = "-" if w.key is None else ", ".join(map(str, w.key))
        lines.append((", ".join(map(str, w.index)), key, tables.figure(w.a, 9), tables.figure(w.b, 9), bound, w.cause))
    return table(headers, lines, label=f"Worst elements of layer {result.layer} {result.tensor}")


def entries_table(verdict: Verdict) -> Html:
    """Every entry with its figures. Scales and sums have lines of their own."""
    headers = (
        "layer",
        "tensor",
        "stage",
        "status",
        "equal %",
        "off by 1",
        "more",
        "scales %",
        "rel L2",
        "max abs",
        "max ulp",
        "corr",
        "a keeps",
        "b keeps",
        "causes",
    )
    lines = []
    for r in verdict.layers:
        gaps = r.code_diffs
        off, more = ("-", "-") if gaps is None else (gaps.get("1", 0), sum(n for gap, n in gaps.items() if gap != "1"))
        cells = (
            short(r.layer, 20),
            tag("code", short(r.tensor, 40)),
            STAGE_OF.get(r.tensor.removesuffix(".d").removesuffix(".s"), "-"),
            r.status if r.status == PASS else badge(r.status),
            tables.share(r.equal, r.n),
            off,
            more,
            tables.percentage(r.scale_equal_pct),
            tables.figure(r.rel_l2, 2),
            tables.figure(r.max_abs, 2),
            tables.figure(r.max_ulp),
            tables.correlation(r.corr),
            tables.keeps(r.conforming["a"], r.n),
            tables.keeps(r.conforming["b"], r.n),
            tables.causes(r) or "-",
        )
        lines.append(("" if r.status == PASS else r.status.lower(), cells))
    made = table(headers, lines, label="Every entry of the verdict", left=4, prose=True, tall=True)
    return details(f"Table of {_many(len(lines), 'entry', 'entries')}", made, open_=0 < len(lines) <= 24)


def environment(verdict: Verdict) -> Html:
    """Where it ran, and what model, prompt and signature it stands for."""
    pairs = [(name, value) for name, value in flat(verdict.environment) if name != "command"]
    parts: list[Html] = [facts(pairs) if pairs else tag("p", "The verdict says nothing about it.")]
    rest = [*flat({"model": verdict.model or {}, "prompt": verdict.prompt or {}}), *flat(verdict.signature, "signature")]
    if rest:
        parts.append(details("Model, prompt, signature", facts(rest)))
    return section("Environment", *parts)


def repeat(verdict: Verdict) -> Html:
    """The command that gave this verdict."""
    command = verdict.environment.get("command")
    if not command:
        return section("Repeat it", tag("p", "The verdict does not hold the command that gave it."))
    said = f"Ends with exit {verdict.exit_code} ({verdict.status}) where nothing has changed."
    return section("Repeat it", box("The command", tag("pre", tag("code", f"$ {command}"))), tag("p", said, class_="quiet"))


def top8(verdict: Verdict, drawing: Html | None) -> Html:
    """What the model says next: movement of log-probs beside what accepted variants do among themselves."""
    found = verdict.top8
    if found is None:
        text = "Not measured in this comparison. "
        return section(
            "Log-probs beside the spread",
            tag("p", text, tag("code", "edge0verify compare --cascade"), " runs the whole model with a and with b."),
        )
    spread = found.get("spread")
    head = f"Largest movement {tables.figure(found['max_move'])} over {_many(found['positions'], 'position')}; "
    head += f"{found['argmax_changes']} best tokens changed, {found['set_changes']} sets of eight changed."
    parts: list[Html] = [tag("p", head)]
    if spread:
        text = tables.beside_spread(found["max_move"], spread)
        parts.append(tag("p", tag("strong", text[0].upper() + text[1:] + ".")))
    else:
        parts.append(tag("p", "The spread of the accepted variants was not measured, so nothing says whether this is much."))
    if drawing is not None:
        parts.append(drawing)
    positions = found["per_position"]
    headers = ("prompt", "moved by", "spread", "ids shared", "best of a", "best of b", "a's margin", "KL")
    lines = []
    for p in positions:
        lines.append(
            (
                short(p["name"], 40),
                tables.figure(p["move"]),
                tables.figure(_most(spread, p["name"])),
                p["shared"],
                *p["argmax"],
                tables.figure(p["argmax_margin"]),
                tables.figure(p["kl"], 2),
            )
        )
    if lines:
        parts.append(table(headers, lines, label="Movement by prompt"))
    pairs = (spread or {}).get("pairs") or []
    if pairs:
        made = [
            (
                short(p["a"], 30),
                short(p["b"], 30),
                tables.figure(p["max_move"]),
                tables.figure(p.get("mean_kl"), 2),
                tables.figure(p.get("max_kl"), 2),
            )
            for p in pairs
        ]
        parts.append(
            details(
                "Accepted variants among themselves",
                table(("a", "b", "moved by", "mean KL", "max KL"), made, label="Spread", left=2),
            )
        )
    return section("Log-probs beside the spread", *parts)


def _most(spread: dict | None, name: str) -> object:
    """Largest movement of an accepted pair on one prompt; None where none was measured."""
    values = [v for p in (spread or {}).get("pairs") or () if (v := p.get("per_prompt", {}).get(name)) is not None]
    numbers = [v for v in values if isinstance(v, (int, float))]
    return "nan" if len(numbers) < len(values) else max(numbers, default=None)


def paragraphs(texts: Sequence[str]) -> Html:
    return join(tag("p", text) for text in texts)


__all__ = ["entries_table", "entry", "environment", "esc", "paragraphs", "repeat", "summary", "title", "top8", "wrong"]
