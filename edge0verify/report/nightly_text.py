"""A nightly as text, at most 132 columns wide."""

from __future__ import annotations

import textwrap
from typing import Any

from tabulate import tabulate

from edge0verify.records.status import PASS
from edge0verify.report.tables import WIDTH, figure, percentage

SHOWN = 4
"""Reasons written out per cell."""


def night_text(night: Any) -> str:
    """A line per cell, why those that do not pass do not, and the sums. Ends without a newline."""
    lines = [
        (
            r.cell,
            r.status,
            percentage(r.metrics.get("equal_pct")),
            figure(r.metrics.get("anchor_top8_move")),
            f"{r.wall_s or 0:.1f}",
            "not this change" if r.not_this_change else "-",
        )
        for r in night.results
    ]
    lines += [(cell, "MISSING", "-", "-", "-", "-") for cell in night.missing]
    table = tabulate(
        lines,
        ("cell", "status", "equal %", "top 8 from\nthe anchor", "seconds", "base"),
        tablefmt="simple",
        disable_numparse=True,
        colalign=("left", "left", "right", "right", "right", "left") if lines else None,
    )
    run = night.run
    changed = " with further changes" if run.dirty else ""
    title = f"nightly {run.run}, commit {(run.commit or 'unknown')[:10]}{changed}, {run.started[:16]}"
    parts = [title, "\n".join(line.rstrip() for line in table.splitlines())]
    for r in night.results:
        if r.status != PASS or r.remarks:
            said = list(r.reasons[:SHOWN]) if r.status != PASS else []
            said += [f"and {len(r.reasons) - SHOWN} more"] if r.status != PASS and len(r.reasons) > SHOWN else []
            said += [f"note: {remark}" for remark in r.remarks] + ([f"the run is kept as {r.dump}"] if r.dump else [])
            wrapped = [w for s in said for w in textwrap.wrap(s, WIDTH - 4, initial_indent="  - ", subsequent_indent="    ")]
            parts.append("\n".join([f"{r.cell}: {r.status}", *wrapped]))
    passed = sum(r.status == PASS for r in night.results)
    closing = f"{night.status}: {passed} of {len(night.results) + len(night.missing)} cells pass"
    closing += f"; {night.resumed} were kept from the interrupted run" if night.resumed else ""
    excused = sum(r.not_this_change for r in night.results)
    closing += f"; {excused} fail on the base commit too" if excused else ""
    return "\n\n".join([*parts, closing])
