"""A drift study as text, at most 132 columns wide."""

from __future__ import annotations

import textwrap
from typing import Any

from tabulate import tabulate

from edge0verify.report.tables import WIDTH, figure


def drift_text(found: Any) -> str:
    """Title, the table of what was varied, the verdict and its reasons. Ends without a newline."""
    title = f"drift over {found.over}, stage {found.stage}"
    if found.variant:
        title += f", variant {found.variant}"
    title += f", reference {found.reference}; prompts: {', '.join(p['name'] for p in found.prompts) or 'of the engine'}"
    bodies = {"variants": _variants, "runs": _runs, "threads": _runs, "batch": _batch, "context": _context}
    body = bodies[found.over](found) if found.findings else []       # an absent device leaves none
    closing = [f"verdict: {found.status}"]
    for reason in found.reasons:
        closing.extend(textwrap.wrap(reason, WIDTH - 4, initial_indent="  - ", subsequent_indent="    "))
    return "\n\n".join(["\n".join(textwrap.wrap(title, WIDTH)), *body, "\n".join(closing)])


def _table(lines: list, headers: tuple, left: int = 1) -> str:
    align = (*["left"] * left, *["right"] * (len(headers) - left))
    text = tabulate(lines, headers, tablefmt="simple", disable_numparse=True, colalign=align if lines else None)
    return "\n".join(line[:WIDTH].rstrip() for line in text.splitlines())


def _ties(ties: dict[str, Any]) -> str:
    below = ", ".join(f"{figure(100 * share)} % lead by less than {limit}" for limit, share in ties["below"].items())
    text = f"near ties over {ties['positions']} positions: {ties['exact']} within one ulp of the logit; {below}"
    return "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="  "))


def _kl(row: dict[str, Any]) -> str:
    return figure(row["mean_kl"], 2) + ("" if row.get("kl_se") is None else f" +- {figure(row['kl_se'], 1)}")


def _changes(changes: list[dict[str, Any]]) -> str:
    """Choices that changed, by their margins: '4, smallest margin 0.0034 (900 ulp), largest 0.1'."""
    if not changes:
        return "0"
    margins = sorted(c["margin"] for c in changes)
    return f"{len(changes)} (margins {figure(margins[0], 2)}..{figure(margins[-1], 2)})"


def _variants(found: Any) -> list[str]:
    f = found.findings
    lines = [(p["a"], p["b"], figure(p["max_move"], 2), figure(p["max_move_anywhere"], 2), _kl(p), figure(p["max_kl"], 2),
              _changes(p["changes"])) for p in f["spread"]["pairs"]]
    headers = ("a", "b", "top-8 move\nafter prompts", "anywhere", "mean KL +- s.e.", "max KL", "best token changes")
    oracle = [(name, _kl(k), figure(k["max_kl"], 2)) for name, k in f["oracle"].items()]
    parts = [_table(lines, headers, 2), _table(oracle, ("variant", "mean KL to the float oracle", "max KL")), _ties(f["near_ties"])]
    parts.append(f"accepted variants ({', '.join(f['accepted'])}) differ by {figure(f['spread']['max_move'], 2)} among themselves")
    if f["beside"] is not None:
        b = f["beside"]
        parts[-1] = (f"{b['variant']}: log-probs move by {figure(b['movement']['max_move'], 2)} from {found.reference}; accepted "
                     f"variants ({', '.join(b['others'])}) differ by {figure(b['spread'], 2)} among themselves")
    return parts


def _runs(found: Any) -> list[str]:
    lines = []
    for side, runs in (("", found.findings["runs"]), ("reference ", (found.findings["reference"] or {}).get("runs", []))):
        for r in runs:
            beside = r["against_first"]
            first = None if beside is None else beside["first"]
            where = "-" if first is None else f"layer {first['layer']} {first['tensor']}"
            reply = "-" if beside is None else {(True, True): "same", (True, False): "same ids, other log-probs"}.get(
                (beside["same_ids"], beside["same_logprobs"]), "not known" if beside["same_ids"] is None else "other ids")
            kind = r["trouble"] or (beside["kind"] if beside else "the first")
            lines.append((f"{side}{r['run']}", str(r["threads"]), figure(r["wall_s"]), textwrap.shorten(kind, 50), where,
                          figure(first["corr"], 6) if first else "-", reply))
    text = _table(lines, ("run", "threads", "seconds", "against the first", "first unstable tensor", "correlation", "reply"), 1)
    return [text]


def _batch(found: Any) -> list[str]:
    lines = []
    for r in found.findings["widths"]:
        first = r["first"]
        where = "-" if first is None else f"layer {first['layer']} {first['tensor']}"
        lines.append((str(r["width"]), str(r["forwards"]), r["kind"] or "the first", where, f"{r['equal']} of {r['positions']}",
                      figure(r["max_move"], 2), _kl(r), _changes(r["changes"]), str(r["faults"] or "-")))
    headers = ("width", "forwards", "against the\nfirst", "first that\ndiffers", "positions\nequal", "log-probs\nmove by",
               "mean KL +- s.e.", "best token changes", "faults")
    parts = [_table(lines, headers), _ties(found.findings["near_ties"])]
    if found.findings["wide"]:
        parts.insert(0, f"width 1 runs {found.variant}, wider batches run {found.findings['wide']}")
    return parts


def _context(found: Any) -> list[str]:
    lines = []
    for r in found.findings["contexts"]:
        first = r["first_difference"]
        keeps = ", ".join(name for name, good in r["conforms"].items() if not good)
        place = ("none", "-", "-") if first is None else (str(first["step"]), figure(first["margin"], 2), figure(first["ulps"], 4))
        lines.append((str(r["length"]), *place, str(r["differing_steps"]), figure(r["max_move"], 2), _kl(r), keeps or "-"))
    headers = ("context", "first differing\ntoken", "margin\nlog-prob", "ulps", "differing\nof all", "log-probs\nmove by",
               "mean KL +- s.e.", "does not\nconform")
    return [f"{found.findings['steps']} tokens after each context, the variant on the reference's own", _table(lines, headers)]
