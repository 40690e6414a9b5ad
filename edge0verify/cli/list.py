"""`edge0verify list`: what there is."""

from __future__ import annotations

import json

import click


@click.group("list")
def command() -> None:
    """List variants or prompts.

    \b
    Example:
      edge0verify list variants
    """


@command.command("variants")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def variants(as_json: bool) -> None:
    """Every variant: stage, name, aliases, weight formats, contract and kernel symbol.

    \b
    Example:
      edge0verify list variants
    """
    from edge0verify.report.tables import variants_text
    from edge0verify.variants.registry import VARIANTS

    if as_json:
        rows = [
            dict(stage=v.stage, name=v.name, aliases=list(v.aliases), formats=list(v.formats), contract=v.contract, symbol=v.symbol)
            for v in VARIANTS
        ]
        click.echo(json.dumps(rows, indent=1))
    else:
        click.echo(variants_text(VARIANTS))


@command.command("prompts")
def prompts() -> None:
    """The embedded prompts and their token counts.

    \b
    Example:
      edge0verify list prompts
    """
    from edge0verify import model

    for name in model.prompt_names():
        click.echo(f"{name:10} {len(model.encode(model.prompt(name))):5} tokens")
