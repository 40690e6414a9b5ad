"""`edge0verify bench ab`: two commands against each other in rotated rounds."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import click
from tabulate import tabulate

from edge0verify.cli import options
from edge0verify.records import status as statuses


@click.command("ab")
@click.argument("a", type=click.Path(path_type=Path), required=False)
@click.argument("b", type=click.Path(path_type=Path), required=False)
@click.option(
    "--rounds",
    type=click.IntRange(1, 10_000),
    default=6,
    show_default=True,
    help="Turns of each arm; even, so that each begins as often.",
)
@click.option(
    "--warm-up", type=click.IntRange(0, 100), default=1, show_default=True, help="Turns of each arm before the times count."
)
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.95, show_default=True, help="Of the intervals.")
@click.option(
    "--json", "json_to", metavar="FILE|-", help="Write the result as JSON to a file, or to standard output instead of the table."
)
@click.option("--example", is_flag=True, help="Print the keys of an arm's TOML file, each with its meaning.")
def command(a, b, rounds, warm_up, confidence, json_to, example) -> int:
    """Run the commands of A.toml and B.toml in turns and compare their times.

    Each run gets exactly the environment its file names, in a process group that is ended with it. Binaries are hashed
    before and after, launches are counted from the log, faults too. The ratio is B over A, paired by round, with Student's
    t interval. PASS means that the measurement stands, not that B is faster; exit 1: faults or crashes; 3: nothing proven.

    \b
    Example:
      edge0verify bench ab --example
    """
    from edge0verify.gate import ab, ab_config

    if example:
        text = inspect.getdoc(ab_config)
        click.echo(inspect.cleandoc(text.split("\n\n", 1)[1]))
        return 0
    if a is None or b is None:
        raise click.UsageError("expected two files, A.toml and B.toml; --example shows what stands in one")
    arms = ab_config.load_pair(a, b)
    result = ab.run_ab(*arms, rounds=rounds, warm_up=warm_up, confidence=confidence, say=lambda text: click.echo(text, err=True))
    if json_to != "-":
        _show(result, rounds)
    if json_to is not None:
        options.write_text(json_to, json.dumps(result.to_json(), indent=2) + "\n")
    return statuses.exit_code(result.status)


def _show(result, rounds: int) -> None:
    judged = result.judged
    rows = [
        (
            ratio.what,
            ratio.tokens if ratio.tokens is not None else "",
            f"{ratio.a:.4g}",
            f"{ratio.b:.4g}",
            f"{ratio.ratio:.3f}",
            f"[{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.low is not None else "",
            ratio.says,
        )
        for ratio in judged.ratios
    ]
    click.echo(
        tabulate(rows, headers=("quantity", "tokens", "A", "B", "B/A", "interval", "says"), tablefmt="plain", disable_numparse=True)
    )
    for side in ("a", "b"):
        launched = ", ".join(f"{name} {count}" for name, count in sorted(judged.launches[side].items())) or "none counted"
        engaged = {True: "yes", False: "NO", None: "unknown"}[judged.engaged[side]]
        click.echo(f"{side.upper()} {result.arms[side].name}: engaged {engaged}; launches: {launched}")
    for note in judged.notes:
        click.echo(f"  {note}")
    click.echo(f"{result.status}: {'; '.join(judged.reasons) or f'measured in {rounds} rotated rounds'}")
