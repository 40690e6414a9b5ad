"""`edge0verify show`: what a dump holds."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--quick", is_flag=True, help="Do not read the data: no statistics, and nothing held against its sha256.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(file, quick, as_json) -> None:
    """Manifest, tensors and statistics of a dump. Every tensor is held against its sha256 on the way.

    \b
    Example:
      edge0verify show dumps/x.h5
    """
    from edge0verify.dump.reader import open_dump
    from edge0verify.dump.summary import summarise
    from edge0verify.report.dumps import summary_json, summary_text

    with open_dump(file) as dump:
        summary = summarise(dump, statistics=not quick)
    click.echo(json.dumps(summary_json(summary), indent=1) if as_json else summary_text(summary))
