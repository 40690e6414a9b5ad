"""`edge0verify prove`: the claims that kernels rest on, over all codes."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(as_json: bool) -> int:
    """Check the claims that kernels rest on, each over every code it speaks of.

    A claim is true, or false with the exact set for which it holds; some are kept because people keep making them.

    \b
    Example:
      edge0verify prove

    \b
    Exit code: 0 every claim is as true or false as it is stated to be, 1 one is not.
    """
    from edge0verify.numerics.claims import prove
    from edge0verify.report.claims import claims_json, claims_text

    claims = prove()
    click.echo(json.dumps(claims_json(claims), indent=1) if as_json else claims_text(claims))
    return 0 if all(claim.as_stated for claim in claims) else 1
