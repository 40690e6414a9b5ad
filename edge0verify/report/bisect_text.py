"""A bisection as text, at most 132 columns wide."""

from __future__ import annotations

import textwrap
from typing import Any

from tabulate import tabulate

from edge0verify.report.tables import WIDTH, figure


def bisect_text(found: Any) -> str:
    """The ladder of layers, the first fault, attribution where there is one, and the verdict. Ends without a newline."""
    where = "all stages" if found.stage == "all" else f"stage {found.stage}"
    title = f"bisect, {where}: a = {found.a}, b = {found.b}"
    if found.model_b is not None:
        title += f" with the weights of {found.model_b['file']}, judged by those of {found.model['file']}"
    parts = ["\n".join(textwrap.wrap(title, WIDTH)), ladder(found.layers)]
    if found.first is not None:
        parts.append(first_text(found.first))
    if found.attribute is not None:
        parts.append(attribute_text(found.attribute))
    say = {True: "engaged", False: "NOT engaged", None: "not known"}
    closing = [f"a {found.a}: {say[found.engaged['a']]}   b {found.b}: {say[found.engaged['b']]}", f"verdict: {found.status}"]
    for reason in found.reasons:
        closing.extend(textwrap.wrap(reason, WIDTH - 4, initial_indent="  - ", subsequent_indent="    "))
    parts.append("\n".join(closing))
    return "\n\n".join(parts)


def ladder(rungs: Any) -> str:
    """One line a layer: differences a to b at each step, growth, distance to the float oracle, flips, what does not conform."""
    headers = ("layer", "ffn-in\na - b", "d-xl\na - b", "a-h\na - b", "a-yl\na - b", "u\na - b", "jump", "u: a to\noracle",
               "b to\noracle", "route\nflips", "smallest gap", "does not\nconform")
    lines = []
    for rung in rungs:
        d, t, f = rung.difference, rung.triangle, rung.flips
        gap = f"{figure(f.ulps)} ulp, {figure(f.bounds, 2)} B" if f.tokens else "-"
        broken = [f"{stage} ({', '.join(side for side in 'ab' if n[side])})" for stage, n in rung.stages.items() if any(n.values())]
        lines.append((str(rung.layer), *(figure(d[name], 2) for name in ("ffn-in", "d-xl", "a-h", "a-yl", "u")),
                      f"x{figure(rung.jump, 2)}" if rung.jump is not None else "-", figure(t["a_oracle"], 2),
                      figure(t["b_oracle"], 2), str(f.tokens or "-"), gap, ", ".join(broken) or "-"))
    table = tabulate(lines, headers, tablefmt="simple", disable_numparse=True, colalign=("left", *["right"] * 10, "left"))
    return "\n".join(line[:WIDTH].rstrip() for line in table.splitlines())


def first_text(first: Any) -> str:
    """Where the first fault is: in the run, then in the weights."""
    lines = [f"first that does not conform: side {first.side}, layer {first.layer}, stage {first.stage}, tensor {first.tensor}"]
    if first.biased:
        lines.append(f"  every element conforms, and their errors are systematic: {first.biased}")
        return "\n".join(line for long in lines for line in textwrap.wrap(long, WIDTH, subsequent_indent="    "))
    lines.append(f"  {first.broken} of {first.n} elements, {first.tokens} tokens, {first.columns} columns")
    at = f"  first: token position {first.position}"
    if first.slot is not None:
        at += f", slot {first.slot}, expert {first.expert}"
    at += f", column {first.column}" + (f" (block {first.block})" if first.block is not None else "")
    lines.append(at)
    if first.experts:
        shown = [f"{expert} ({n} rows)" for expert, n in list(first.experts.items())[:8]]
        lines.append("  experts: " + ", ".join(shown) + (" ..." if len(first.experts) > 8 else ""))
    if first.weights:
        row = f"  weights: {first.weights}" + (f", expert {first.expert}" if first.expert is not None else "")
        row += f", row {first.weight_row}"
        if first.weight_blocks:
            row += f", block{'s' if len(first.weight_blocks) > 1 else ''} {', '.join(map(str, first.weight_blocks))} (by probe)"
        elif first.weight_blocks is not None:
            row += "; no single block of the row is wrong by itself"
        lines.append(row)
    lines += [f"  expert {e.expert} computes with the weights of expert {e.weights_of}" for e in first.exchanges]
    if first.differing_blocks:
        expert, row, block = first.differs[0]
        place = (f"expert {expert} " if expert is not None else "") + f"row {row} block {block}"
        lines.append(f"  bytes: {first.differing_blocks} blocks of {first.weights} differ between the models, the first is {place}")
    if first.unequal:
        lines.append("  bytes: the models differ in " + ", ".join(first.unequal[:6]) + (" ..." if len(first.unequal) > 6 else ""))
    return "\n".join(line for long in lines for line in textwrap.wrap(long, WIDTH, subsequent_indent="    "))


def attribute_text(found: dict[str, Any]) -> str:
    """A row a layer, columns per part: movement when swapped in / swapped out."""
    def cell(entry: dict[str, Any] | None) -> str:
        return "-" if entry is None else f"{figure(entry['in']['max_move'], 2)} / {figure(entry['out']['max_move'], 2)}"

    def kl(entry: dict[str, Any] | None) -> str:
        return "-" if entry is None else f"{figure(entry['in']['mean_kl'], 2)} / {figure(entry['out']['mean_kl'], 2)}"

    parts = list(dict.fromkeys(e["part"] for e in found["units"]))
    by = {(e["layer"], e["part"]): e for table in ("units", "stages", "layers") for e in found[table]}
    names = list(dict.fromkeys(e["layer"] for e in (*found["layers"], *found["units"]) if e["layer"] != "all"))
    lines = [[str(n), *(cell(by.get((n, p))) for p in parts), cell(by.get((n, "all"))), kl(by.get((n, "all")))] for n in names]
    lines.append(["all", *(cell(by.get(("all", p))) for p in parts), figure(found["whole"]["max_move"], 2),
                  figure(found["whole"]["mean_kl"], 2)])
    headers = ["layer", *parts, "all of it", "mean KL"]
    if len(parts) == 1:                                # one part is all of it
        lines, headers = [[*line[:1], *line[2:]] for line in lines], [headers[0], parts[0], headers[-1]]
    table = tabulate(lines, headers, tablefmt="simple", disable_numparse=True)
    head = f"top-8 movement of {len(found['prompts'])} prompts, swapped in (a with b's) / swapped out (b with a's)"
    return f"{head}\n{table}"


def search_text(found: Any) -> str:
    """Every run of a search over an outside engine, in the order tried, and the verdict."""
    lines = [(repr(t.candidate), t.answer, figure(t.exit), figure(t.wall_s), textwrap.shorten(t.reason, 80) or "-")
             for t in found.tried]
    table = tabulate(lines, ("candidate", "answer", "exit", "seconds", "why"), tablefmt="simple", disable_numparse=True)
    closing = [f"verdict: {found.status}"]
    if found.resumed:
        closing.insert(0, f"{found.resumed} of {len(found.tried)} answers were kept from before")
    for reason in found.reasons:
        closing.extend(textwrap.wrap(reason, WIDTH - 4, initial_indent="  - ", subsequent_indent="    "))
    return "\n".join(line[:WIDTH].rstrip() for line in table.splitlines()) + "\n\n" + "\n".join(closing)
