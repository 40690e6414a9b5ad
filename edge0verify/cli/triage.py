"""`edge0verify triage`: from the logs of a multi-device fault to its likeliest causes."""

from __future__ import annotations

from pathlib import Path

import click

from edge0verify.cli import options


@click.command("triage")
@click.argument("engine_log", type=click.Path(path_type=Path))
@click.option("--kernel-log", type=click.Path(path_type=Path), help="dmesg -T, or journalctl -k -o short-iso.")
@click.option("--stacks", type=click.Path(path_type=Path), help="Stacks of all threads, from gdb, eu-stack or py-spy.")
@click.option("--split", metavar="LAYERS@DEVICE,...", help="Which layers ran where, as 0-23@hip:0,24-47@hip:1.")
@options.json_option
def command(engine_log, kernel_log, stacks, split, json_to) -> int:
    """Weigh what may have caused a fault, from an engine's log.

    One message ("illegal memory access", "timed out at layer 12") has several causes; the kernel's log, the stacks and the split
    tell them apart. Each cause is shown with the lines for and against it and the probe that decides. Logs may be UTF-8 or UTF-16.

    \b
    Example:
      edge0verify triage engine.log --kernel-log dmesg.txt --split 0-23@hip:0,24-47@hip:1

    \b
    Exit code: 0 no line shows a fault, 1 causes found, 2 input error, 3 a fault that no line explains.
    """
    from edge0verify.engine.split import parse_split
    from edge0verify.probe.triage import triage, triage_text

    parsed = None if split is None else parse_split(split, None)
    result = triage(engine_log, kernel=kernel_log, stacks=stacks, split=parsed)
    if json_to != "-":
        click.echo(triage_text(result))
    if json_to is not None:
        options.write_text(json_to, result.dumps())
    return result.exit_code
