"""`edge0verify doctor`: what is here."""

from __future__ import annotations

import json
from dataclasses import asdict

import click


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(as_json) -> int:
    """What is built, which devices, compilers and tools are found, and what each absence means.

    Exit code 1 where something is missing without which nothing works, else 0: an absent device is no fault.

    \b
    Example:
      edge0verify doctor
    """
    from edge0verify.report.findings import findings_text
    from edge0verify.study.doctor import findings

    found = list(findings())
    click.echo(json.dumps([asdict(f) for f in found], indent=1) if as_json else findings_text(found))
    return 1 if any(f.required and not f.found for f in found) else 0
