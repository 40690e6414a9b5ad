"""`edge0verify layout`: decoded weights beside the values that they were made from."""

from __future__ import annotations

import json

import click

from edge0verify.cli import options


@click.command("layout")
@click.argument("found", metavar="FOUND")
@click.argument("reference", metavar="REFERENCE")
@click.option("--format", "fmt", metavar="FORMAT", help="Format that FOUND was stored in.  [default: what a GGUF file says]")
@options.json_option
def command(found, reference, fmt, json_to) -> int:
    """Set the error of decoded weights beside what their format loses anyway, and name the mistake in the layout that fits.

    FOUND is what was decoded, REFERENCE the same weights before they were stored: FILE or FILE:TENSOR of a .npy, .npz, .safetensors
    or .gguf file. Tried are scales as reciprocals, in another order or swizzled, signs, exchanged nibbles, bytes and planes, codes
    without their zero point, a tensor scale left out, rows at another stride.

    \b
    Examples:
      edge0verify layout decoded.npy original.npy --format Q4_0
      edge0verify layout model.gguf:blk.0.ffn_down_exps.weight original.npy

    \b
    Exit code: 0 no more than the format's own loss, 1 more, 2 input error, 3 no format to set it beside.
    """
    from edge0verify.study.layout_files import judge, read

    answer = judge(read(found), read(reference), fmt)
    if json_to != "-":
        click.echo(f"{answer.found} against {answer.reference}, {answer.fmt or 'format not known'}\n{answer.layout.text()}\n")
        click.echo(f"verdict: {answer.status}")
    if json_to is not None:
        options.write_text(json_to, json.dumps(answer.to_json(), indent=1, allow_nan=False) + "\n")
    return answer.exit_code
