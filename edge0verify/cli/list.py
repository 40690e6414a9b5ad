"""`edge0verify list`: what there is."""

from __future__ import annotations

import json

import click


@click.group("list")
def command() -> None:
    """List variants, devices or prompts.

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


@command.command("devices")
@click.option("--sim", type=click.IntRange(1, 63), help="Also so many simulated devices.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1, 600), default=20.0, help="Seconds for each driver.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def devices(sim, timeout_s, as_json) -> None:
    """Every device: name, architecture, memory, driver, link, and which device may reach which.

    Each driver is asked in a process of its own with a time limit, so a broken one hangs or kills nothing.

    \b
    Example:
      edge0verify list devices --sim 2
    """
    from edge0verify.report.devices import devices_text
    from edge0verify.runtime.detect import DETECTORS
    from edge0verify.runtime.survey import survey

    names = [name for name in DETECTORS if name != "sim"] + (["sim"] if sim else [])
    found = [survey(name, count=sim if name == "sim" else None, timeout_s=timeout_s) for name in names]
    click.echo(json.dumps([s.to_json() for s in found], indent=1) if as_json else devices_text(found))
