"""`edge0verify isa`: what a compiler made of kernels, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import click

from edge0verify.cli import options

EXIT_WORSE, EXIT_NOTHING = 1, 3


@click.command("isa")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--diff", "other", type=click.Path(path_type=Path), metavar="OTHER", help="An earlier build of the same kernels.")
@click.option("--json", "json_to", metavar="FILE|-", help="Write the result as JSON to a file, or to standard output.")
def command(file, other, json_to) -> int:
    """Read an AMD code object or a cubin: registers, memory, spills, and what stands in each kernel's hot loop.

    Registers and memory come from the file itself. Loops come from llvm-objdump, nvdisasm or cuobjdump where one is here; what
    could not be extracted is said. With --diff, FILE is held against OTHER: more registers, shared memory, scratch or spills, more
    instructions per matrix operation, and a kernel that is gone are for the worse.

    \b
    Examples:
      edge0verify isa build/gpu/kernels.gfx1100.co
      edge0verify isa build/gpu/kernels.sm_90.cubin --json isa.json
      edge0verify isa new.co --diff old.co

    \b
    Exit code: 0 read, nothing for the worse; 1 something for the worse; 2 not device code; 3 nothing could be extracted.
    """
    from edge0verify.records.errors import InputError
    from edge0verify.report.isa_text import diff_text, isa_text
    from edge0verify.runtime.isa.diff import diff
    from edge0verify.runtime.isa.read import read_isa

    found = read_isa(file)
    if other is None:
        _show(isa_text(found), found.to_json(), json_to)
        return 0 if any(kernel.told for kernel in found.kernels) else EXIT_NOTHING
    before = read_isa(other)
    if before.kind != found.kind:
        raise InputError(f"{other}: expected device code for {found.kind} as in {file}, found {before.kind}")
    changes = diff(before, found)
    data = {"schema": "edge0verify.isa-diff/1", "before": before.to_json(), "after": found.to_json(), "compared": changes.compared,
            "changes": [change.__dict__ for change in changes.changes], "notes": list(changes.notes)}
    _show(diff_text(before, found, changes), data, json_to)
    if changes.worse:
        return EXIT_WORSE
    return 0 if changes.compared else EXIT_NOTHING


def _show(text: str, data: dict, json_to: str | None) -> None:
    if json_to != "-":
        click.echo(text)
    if json_to is not None:
        options.write_text(json_to, json.dumps(data, indent=1) + "\n")
