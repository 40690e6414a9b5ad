"""Goldens, and what ran now held against them, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from edge0verify.records.status import PASS
from edge0verify.report.tables import WIDTH, share

SHOWN = 6
"""Reasons written out per golden."""


def table(lines: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    text = tabulate(lines, headers, tablefmt="simple", disable_numparse=True)
    return "\n".join(line[:WIDTH].rstrip() for line in text.splitlines())


def checks_text(checked: Sequence[Any]) -> str:
    """A line per golden, then why those that do not pass do not, then the sums. Ends without a newline."""
    lines = [(c.name, c.status, _bits(c.verdict), c.drift.text() if c.drift else "-", "stale" if c.stale else "-") for c in checked]
    parts = [table(lines, ("golden", "status", "equal bits", "from the anchor", "kernels"))]
    for c in checked:
        notes = [*c.reasons] if c.status != PASS else []
        shown = [
            *notes[:SHOWN],
            *([f"and {len(notes) - SHOWN} more"] if len(notes) > SHOWN else []),
            *(f"note: {r}" for r in c.remarks),
        ]
        if c.kept is not None:
            shown.append(f"the run is kept as {c.kept}")
        if notes:
            parts.append("\n".join([f"{c.name}: {c.status}", *_wrapped(shown)]))
    stale = sum(c.stale for c in checked)
    passed = sum(c.status == PASS for c in checked)
    closing = f"{passed} of {len(checked)} goldens pass"
    closing += f"; {stale} stale, recorded from other kernel sources" if stale else ""
    return "\n\n".join([*parts, closing])


def _wrapped(reasons: Sequence[str]) -> list[str]:
    return [line for r in reasons for line in textwrap.wrap(r, WIDTH - 4, initial_indent="  - ", subsequent_indent="    ")]


def _bits(verdict: Any) -> str:
    if verdict is None or not verdict.totals["n"]:
        return "nothing compared"
    return f"{share(verdict.totals['equal'], verdict.totals['n'])} % of {verdict.totals['n']}"


def list_text(goldens: Sequence[Any], stale: Sequence[bool]) -> str:
    """A line per golden."""
    lines = []
    for golden, old in zip(goldens, stale):
        run = golden.current or golden.recorded[-1]
        inputs = run.inputs
        state = "accepted" if golden.current else "not accepted"
        state += ", candidate waits" if golden.current and golden.candidate else ""
        state += ", stale" if old else ""
        lines.append(
            (
                golden.name,
                inputs.device,
                inputs.prompt or "-",
                str(run.manifest.signature.rows),
                variants_text(inputs.variants),
                run.level,
                str(run.bytes),
                f"{100 * run.bytes / run.whole_bytes:.2f}" if run.whole_bytes else "-",
                str(golden.since_anchor),
                state,
            )
        )
    return table(
        lines,
        ("golden", "device", "prompt", "rows", "variants", "level", "bytes", "% of dump", "since\nanchor", "state"),
    )


def variants_text(variants: Any) -> str:
    """'w11' where all stages have one, else 'D=w11,A=mmq,U=w11'."""
    if len(set(variants.values())) == 1:
        return next(iter(variants.values()))
    parts = {"D": "D", "A1": "A", "U": "U"}
    return ",".join(f"{part}={variants[stage]}" for stage, part in parts.items() if stage in variants) or "-"


def show_text(golden: Any) -> str:
    """Everything that happened to a golden, in order."""
    lines = []
    for event in golden.events:
        kind = type(event).__name__.lower()
        if kind == "recorded":
            judged = {True: "conforming", False: "NOT conforming", None: "not judged"}[event.conforming]
            text = (
                f"run {event.n}: {event.level}, {event.bytes} bytes for {event.whole_bytes}, {judged}, policy {event.rules.mode}, "
            )
            text += f"commit {(event.manifest.engine.commit or 'unknown')[:10]}, {event.manifest.device.name}"
        elif kind == "accepted":
            text = f"run {event.recorded}{' as golden and anchor' if event.anchor else ' as golden'}: {event.reason}"
        elif kind == "confirmed":
            text = f"kernel sources {event.kernel_source_sha256[:12]} give the bits of run {event.recorded}: {event.reason}"
        else:
            text = f"{len(event.objects)} objects"
        lines.append((event.time[:19], kind, textwrap.shorten(text, 200)))
    head = f"{golden.name}: "
    run = golden.current
    head += "nothing accepted yet" if run is None else f"golden is run {run.n}, anchor run {golden.anchor.n}"
    body = tabulate(lines, ("time", "what", ""), tablefmt="simple", disable_numparse=True, maxcolwidths=[None, None, 95])
    return head + "\n\n" + "\n".join(line.rstrip() for line in body.splitlines())
