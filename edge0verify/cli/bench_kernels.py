"""`edge0verify bench kernels`: how fast each variant is, beside what the device can do."""

from __future__ import annotations

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar
from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError


@click.command("kernels")
@options.device_option("the kernels that are measured")
@click.option("--shape", metavar="M,K", default="4096,8192", show_default=True, help="On a device: weight rows and inner width.")
@click.option("--rows", metavar="N,N", default="1,8,512,4096", show_default=True,
              help="On a device: input rows; below 64 the row products.")
@click.option("--format", "formats", multiple=True, type=click.Choice(("Q8_0", "IQ4_NL", "Q3_K")),
              help="On a device: only these weights.  [default: all]")
@click.option("--int8", "int8_tops", type=click.FloatRange(min=0.001), metavar="TOPS",
              help="On a device: the vendor's int8 rate, instead of measuring it.")
@click.option("--tokens", type=click.IntRange(1, 100_000), default=1024, show_default=True, help="On the CPU: input rows.")
@click.option("--isa", metavar="NAME", help="On the CPU: the instruction set.  [default: the fastest]")
@click.option("--repeats", type=click.IntRange(2, 1000), help="Measurements of each.  [default: 7 on a device, 9 on the CPU]")
@click.option("--prefill/--no-prefill", default=True, show_default=True, help="Also the stages' shares of a long prefill.")
@options.json_option
def command(device, shape, rows, formats, int8_tops, tokens, isa, repeats, prefill, json_to) -> int:
    """Measure the kernels of each variant: time, rate, and shares of what the machine can do.

    On a device, times are events round replays of a captured graph, weights rotate over 256 MB, and beside each figure stands its
    share of the vendor's int8 product, of a kernel that only reads, or of the variant's own inner loop, all of the same run. On the
    CPU, one core, beside ggml's vec_dot on the same weights where libggml-python is installed.

    \b
    Examples:
      edge0verify bench kernels
      edge0verify bench kernels --device cuda:0 --json speed.json
      edge0verify bench kernels --device cuda:0 --rows 1,8 --format Q3_K --no-prefill

    \b
    Exit code: 0 measured, 2 input error, 3 the device is not here or refused.
    """
    from edge0verify.report.speed_text import speed_text
    from edge0verify.study import speed_device, speed_host
    from edge0verify.study.on_device import CPU, Refused, settled
    from edge0verify.study.speed import SpeedReport

    name, code = options.read_device(device), 0
    if name == CPU:
        from edge0verify.variants import _kernels

        if isa is not None and isa not in _kernels.usable_isas():
            raise InputError(f"--isa {isa}: expected one of {', '.join(_kernels.usable_isas())}, those this processor runs")
        found = speed_host.measure(tokens=tokens, repeats=repeats or 9, isa=isa, prefill=prefill)
    else:
        if isa is not None:
            raise InputError(f"--isa {isa}: expected only on the CPU, found --device {name}")
        (m, k), counts = _numbers("--shape", shape, 2), _numbers("--rows", rows)
        try:
            with progress_bar() as progress:
                found = speed_device.measure(name, m=m, k=k, counts=counts, formats=formats or speed_device.FORMATS,
                                             repeats=repeats or 7, int8_tops=int8_tops, prefill=prefill, progress=progress)
        except Refused as error:
            status, reason = settled(error)
            found, code = SpeedReport(device={"device": name}, reason=reason), statuses.exit_code(status)
    if json_to != "-":
        click.echo(speed_text(found))
    if json_to is not None:
        options.write_text(json_to, found.dumps())
    return code


def _numbers(option: str, text: str, count: int | None = None) -> tuple[int, ...]:
    """'4096,8192' as numbers of at least 1; InputError otherwise."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1 or (count is not None and len(found) != count):
        raise InputError(f"{option} {text}: expected {f'{count} ' if count else ''}numbers of at least 1, separated by commas")
    return found
