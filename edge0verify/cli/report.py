"""`edge0verify report`: a verdict or a history of nightlies as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from edge0verify.cli import options


@click.command()
@click.argument("source", type=click.Path(path_type=Path), metavar="VERDICT.json|HISTORY.db")
@click.option("-o", "--output", "output", metavar="FILE|-", required=True, help="Where the page goes; - is standard output.")
@click.option(
    "--nights", type=click.Path(path_type=Path), metavar="HISTORY.db", help="Also show a history of nightlies beside a verdict."
)
@click.option("--layer", metavar="N[-M][,N]", help="Draw the heat maps of these layers.  [default: those that tell most]")
def command(source, output, nights, layer) -> int:
    """Show a verdict, or the nightlies of a history, as one HTML file.

    The file needs no network and holds no script; it follows the reader's light or dark setting. A verdict has heat maps where
    `compare --json FILE --grids` kept what they are drawn from; `compare --html FILE` makes the same page at once.

    \b
    Examples:
      edge0verify compare --stage D --a mmq --b w11 --json verdict.json --grids
      edge0verify report verdict.json -o report.html
      edge0verify report nightly/history.db -o nights.html

    \b
    Exit code: 0 the page was written, whatever the verdict; 2 input error.
    """
    from edge0verify.report.html import report

    if output != "-":
        options.check_target(output)
    layers = options.read_dump_layers(layer)
    text = report(source, nights=nights, chosen=None if layers is None else lambda number: number in layers)
    options.write_text(output, text)
    if output != "-":
        click.echo(f"{output}: {len(text) / 1e6:.2f} MB", err=True)
    return 0
