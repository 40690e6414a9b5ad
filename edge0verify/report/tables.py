"""A verdict as text for a person at a glance, at most 132 columns wide."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from edge0verify.records.causes import FAILING
from edge0verify.records.status import PASS
from edge0verify.records.verdict import LayerResult, Verdict

WIDTH = 132
HEADERS = ("layer", "tensor", "equal\n%", "off\nby 1", "\nmore", "scales\n%", "rel L2", "corr", "a\nkeeps", "b\nkeeps", "causes")


def share(part: int, whole: int) -> str:
    """A percentage with as many digits as it takes to tell it from 100: one element in 10^8 still shows."""
    if whole == 0:
        return "-"
    if part == whole:
        return "100"
    digits = max(3, math.ceil(-math.log10(100.0 * (whole - part) / whole)) + 1)
    return f"{100.0 * part / whole:.{digits}f}"


def percentage(value: float | None) -> str:
    """A stored percentage in the same form."""
    if value is None:
        return "-"
    # As a share of 10^12, the rounding of a stored percentage cannot add a digit.
    return share(round(value * 1e10), 10**12)


def figure(value: Any, digits: int = 3) -> str:
    """A number in few digits; '-' where it does not apply."""
    if value is None:
        return "-"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def correlation(value: float | None) -> str:
    """A correlation by its distance from 1, which is where all of them are: '1-2.3e-09'."""
    if value is None:
        return "-"
    short = 1.0 - value
    if abs(short) < 1e-15:      # the sums' own rounding
        return "1"
    return f"1-{short:.1e}" if 0 < short < 1e-3 else f"{value:.4f}"


def keeps(kept: int | None, n: int) -> str:
    """'all', how many do not, or '-' where nothing judged them."""
    if kept is None:
        return "-"
    return "all" if kept == n else f"not {n - kept}"


def causes(result: LayerResult) -> str:
    """Causes other than `equal`, failing ones first, then the most frequent; empty where all are equal."""
    rest = [(name not in FAILING, -n, name) for name, n in result.causes.items() if name != "equal"]
    return ", ".join(f"{name} {-n}" for _, n, name in sorted(rest))


def _causes_cell(result: LayerResult, scales: LayerResult | None) -> str:
    """Causes of a line, led by the status where it is not PASS; those of the scales follow where they tell more."""
    text = causes(result)
    if scales is not None and scales.status == PASS and causes(scales):
        text += ("; " if text else "") + "scales " + causes(scales)
    return (text or "-") if result.status == PASS else f"{result.status}: {text}"


def _line(result: LayerResult) -> list[str]:
    gaps = result.code_diffs
    off = "-" if gaps is None else str(gaps.get("1", 0))
    more = "-" if gaps is None else str(sum(n for gap, n in gaps.items() if gap != "1"))
    return [
        str(result.layer),
        result.tensor,
        share(result.equal, result.n),
        off,
        more,
        percentage(result.scale_equal_pct),
        figure(result.rel_l2, 2),
        correlation(result.corr),
        keeps(result.conforming["a"], result.n),
        keeps(result.conforming["b"], result.n),
    ]


def is_shown(result: LayerResult) -> bool:
    """Scales and block sums are summed up in their tensor's line; they get their own where something is wrong."""
    part_of_another = result.tensor.endswith((".d", ".s"))
    return not part_of_another or result.status != PASS


def _table(lines: list[list[str]], headers: Sequence[str]) -> str:
    align = ["left", "left", *["right"] * 8, "left"][: len(headers)]
    return tabulate(lines, headers, tablefmt="simple", disable_numparse=True, colalign=align)


def layers(results: Sequence[LayerResult]) -> str:
    """The table: one line per layer and tensor. The causes get what the figures leave of the width."""
    shown = [result for result in results if is_shown(result)]
    if not shown:
        return "nothing was compared"
    scales = {(r.layer, r.tensor.removesuffix(".d")): r for r in results if r.tensor.endswith(".d")}
    lines = [_line(result) for result in shown]
    left = WIDTH - len(_table(lines, HEADERS[:-1]).splitlines()[2]) - 2
    for line, result in zip(lines, shown):
        cell = _causes_cell(result, scales.get((result.layer, result.tensor)))
        line.append(textwrap.shorten(cell, max(left, len(HEADERS[-1])), placeholder=" ..."))
    return _table(lines, HEADERS)


def _position(found: dict[str, Any]) -> str:
    text = f"  {found['name']}: log-probs move by {figure(found['move'])}, {found['shared']} ids shared"
    best_a, best_b = found["argmax"]
    if best_a != best_b:
        text += f", best {best_a} -> {best_b} (margin {figure(found['argmax_margin'])})"
    return text if found["kl"] is None else text + f", KL {figure(found['kl'], 2)}"


def top8(found: dict[str, Any]) -> str:
    """The movement of what the model says next, a line per prompt and one for all."""
    lines = [_position(position) for position in found["per_position"]]
    head = f"top-8: largest movement {figure(found['max_move'])} over {found['positions']} positions, "
    head += f"{found['argmax_changes']} best changed, {found['set_changes']} sets changed"
    beside = found.get("spread")
    return "\n".join([head, *lines[:8], *([beside_spread(found["max_move"], beside)] if beside else [])])


def beside_spread(move: float | None, spread: dict[str, Any]) -> str:
    """'log-probs move by 0.034; accepted variants (ref, mmvq, mmq) differ by 0.041 among themselves'."""
    names = ", ".join(spread["variants"])
    text = f"log-probs move by {figure(move, 2)}; "
    if spread["max_move"] is None:
        return text + f"no two other variants to set it beside ({names or 'none'})"
    return text + f"accepted variants ({names}) differ by {figure(spread['max_move'], 2)} among themselves"


def _engaged(verdict: Verdict) -> str:
    say = {True: "engaged", False: "NOT engaged", None: "not known"}
    return f"a {verdict.a}: {say[verdict.engaged['a']]}   b {verdict.b}: {say[verdict.engaged['b']]}"


def _totals(verdict: Verdict) -> str:
    """Equal elements per tensor, over all layers."""
    parts = []
    for tensor in dict.fromkeys(result.tensor for result in verdict.layers if not result.tensor.endswith((".d", ".s"))):
        found = [result for result in verdict.layers if result.tensor == tensor]
        n, equal = sum(result.n for result in found), sum(result.equal for result in found)
        kind = "values" if found[0].code_diffs is None else "codes"
        parts.append(f"{tensor} {equal} of {n} {kind} ({share(equal, n)} %)")
    return "equal: " + (", ".join(parts) or "nothing")


def _not_finite(verdict: Verdict) -> list[str]:
    """What is no number stands before any figure, since none beside it means anything."""
    found = [(r, r.causes["nonfinite"]) for r in verdict.layers if r.causes.get("nonfinite")]
    lines = [f"NOT FINITE: layer {r.layer} {r.tensor}, {n} of {r.n}" for r, n in found[:8]]
    if len(found) > 8:
        lines.append(f"NOT FINITE: and {len(found) - 8} more tensors")
    return ["\n".join(lines)] if lines else []


def verdict_text(verdict: Verdict) -> str:
    """Table, top-8 where there is one, engaged, the verdict and its reasons. Ends without a newline."""
    title = f"stage {verdict.stage}: a = {verdict.a}, b = {verdict.b}" if verdict.stage else f"a = {verdict.a}, b = {verdict.b}"
    if verdict.reference:
        title += f", on the reference path of {verdict.reference}"
    parts = [title, *_not_finite(verdict), layers(verdict.layers)]
    if verdict.top8 is not None:
        parts.append(top8(verdict.top8))
    closing = [_engaged(verdict), *textwrap.wrap(_totals(verdict), WIDTH), f"verdict: {verdict.status}"]
    for reason in verdict.reasons:
        closing.extend(textwrap.wrap(reason, WIDTH - 4, initial_indent="  - ", subsequent_indent="    "))
    for note in verdict.totals.get("notes", ()):
        closing.extend(textwrap.wrap(note, WIDTH - 4, initial_indent="  note: ", subsequent_indent="    "))
    parts.append("\n".join(closing))
    return "\n\n".join(parts)


def variants_text(variants: Sequence[Any]) -> str:
    """A table of registry entries, each with stage, name, aliases, formats, contract and symbol."""
    lines = [(v.stage, v.name, ", ".join(v.aliases) or "-", ", ".join(v.formats), v.contract, v.symbol) for v in variants]
    headers = ("stage", "name", "aliases", "weight formats", "contract", "kernel symbol")
    return tabulate(lines, headers, tablefmt="simple", disable_numparse=True)
