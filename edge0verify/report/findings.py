"""What `doctor` found, as a table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tabulate import tabulate

from edge0verify.study.doctor import Finding

DETAIL = 56
MEANS = 48


def findings_text(found: Sequence[Finding]) -> str:
    """A line per finding; what an absence means stands beside what is absent."""
    lines = []
    group = None
    for f in found:
        said = "yes" if f.found else "NO" if f.required else "no"
        means = "" if f.found else textwrap.fill(f.means, MEANS)
        lines.append((f.group if f.group != group else "", f.name, said, textwrap.fill(f.detail, DETAIL), means))
        group = f.group
    return tabulate(lines, ("", "", "found", "what", "its absence means"), tablefmt="simple", disable_numparse=True)
