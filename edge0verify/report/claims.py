"""The claims and their truth as a table for a person."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tabulate import tabulate

from edge0verify.numerics.claims import Claim

_CLAIM, _WHERE = 46, 56
"""Columns that the two texts are wrapped to; the table stays within 132."""


def claims_text(claims: Sequence[Claim]) -> str:
    """A line per claim: what is said, whether it is true, how many cases were looked at, where exactly it holds."""
    lines = []
    for claim in claims:
        truth = "true" if claim.holds else "FALSE"
        if not claim.as_stated:
            truth += ", said\nto be " + ("true" if claim.stated else "false")
        said = textwrap.fill(claim.statement, _CLAIM)
        lines.append((said, truth, f"{claim.checked:,}", textwrap.fill(claim.where, _WHERE)))
    table = tabulate(lines, ("claim", "truth", "checked", "holds for"), tablefmt="simple", disable_numparse=True,
                     colalign=("left", "left", "right", "left"))
    wrong = [claim.name for claim in claims if not claim.as_stated]
    true, false = sum(c.holds for c in claims), sum(not c.holds for c in claims)
    closing = f"{len(claims)} claims over all codes: {true} true, {false} false, " + (
        f"NOT as stated: {', '.join(wrong)}" if wrong else "each as stated")
    return table + "\n\n" + closing


def claims_json(claims: Sequence[Claim]) -> list[dict]:
    """The same as plain values."""
    return [
        {"name": c.name, "statement": c.statement, "holds": c.holds, "stated": c.stated, "checked": c.checked, "where": c.where,
         "source": c.source}
        for c in claims
    ]
