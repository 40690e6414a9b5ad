"""`edge0verify import`: other engines' tensors as a dump."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from edge0verify.cli import options
from edge0verify.records.errors import InputError

UNREAD = {
    "a directory": ("tensor", "layer", "layout", "rows", "cols", "by_column", "member", "quantiser"),
    "an array file": ("by_column", "names", "rank"),
    "a raw file": ("member", "names", "rank"),
}
"""Options that say nothing about each kind of source."""


def _layer(ctx, parameter, value: str) -> int | str:
    if value in ("mtp", "head"):
        return value
    if not value.isdigit():
        raise click.BadParameter(f"expected a number, mtp or head, found {value}")
    return int(value)


@click.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="The dump to write; its folder is created.")
@click.option("--tensor", help="Which tensor the data are: d-xlq, a-yl, ...")
@click.option("--layer", default="0", show_default=True, callback=_layer, help="Layer number, mtp or head.")
@click.option("--layout", help="How the bytes lie: f32, f16, bf16, i32, q8_1 or q8_1_mmq.")
@click.option("--rows", type=click.IntRange(min=1), help="Rows of a raw file; of one array, held against its own.")
@click.option("--cols", type=click.IntRange(min=1), help="Values in a row, likewise.")
@click.option("--by-column", is_flag=True, help="Blocks lie column by column, as ggml keeps q8_1_mmq.")
@click.option("--member", help="Which array of a .npz or safetensors file.")
@click.option("--quantiser", type=click.Choice(["mmvq", "mmq", "ggml-ref", "ggml-x86"]), help="Quantiser that wrote the blocks.")
@click.option("--name", "names", multiple=True, metavar="THEIRS=OURS", help="Name of a tensor in an SGLang directory and here.")
@click.option("--rank", type=click.IntRange(min=0), help="Which rank's files of an SGLang directory.")
@click.option("--engine", help="Name of the engine that made the data.")
@click.option("--set", "chosen", metavar="STAGE=VARIANT,...", help="Variants the engine ran: they are judged by their contracts.")
@click.option("--flags", metavar="'NAME=VALUE ...'", help="The engine's flags, which say the same.")
@click.option("--of-model", type=click.Path(path_type=Path), help="The model that the data come from: its sha256 is recorded.")
@click.option("--overwrite", is_flag=True, help="Replace a dump of that name.")
@click.pass_context
def command(
    ctx, source, out, tensor, layer, layout, rows, cols, by_column, member, quantiser, names, rank, engine, chosen, flags, of_model,
    overwrite,
) -> None:
    """Bring a raw file, .npy, .npz, safetensors or an SGLang dump directory into a dump. Layouts are declared, never guessed.

    \b
    Examples:
      edge0verify import d-xlq.bin --tensor d-xlq --layout q8_1 --rows 5268 --cols 256 --layer 0 -o x.h5
      edge0verify import a-yl.npy --tensor a-yl --layer 3 -o y.h5
      edge0verify import run.npz -o z.h5          (arrays named as in a dump: layers/000/d-xl, rows, ...)
    """
    from edge0verify.dump import foreign
    from edge0verify.dump.arrays import SUFFIXES

    kind = "a directory" if source.is_dir() else "an array file" if source.suffix in SUFFIXES else "a raw file"
    for name in UNREAD[kind]:
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = {"names": "name"}.get(name, name).replace("_", "-")
            raise InputError(f"{source}: --{option} says nothing about {kind}; expected it left out")
    manifest = _manifest(engine or ("sglang" if source.is_dir() else "foreign"), chosen, flags, of_model)
    options.make_parent(out)
    common = {"manifest": manifest, "overwrite": overwrite}
    if kind == "a directory":
        made = foreign.import_directory(source, out, names=_pairs(names), rank=rank, **common)
    elif kind == "an array file":
        made = foreign.import_arrays(
            source, out, tensor=tensor, layer=layer, member=member, layout=layout, quantiser=quantiser, rows=rows, cols=cols,
            **common,
        )
    else:
        given = {"--tensor": tensor, "--layout": layout, "--rows": rows, "--cols": cols}
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise InputError(f"{source}: a raw file needs {', '.join(missing)}: its layout is declared, never guessed")
        made = foreign.import_raw(
            source, out, tensor=tensor, layout=layout, rows=rows, cols=cols, layer=layer, by_column=by_column,
            quantiser=quantiser, **common,
        )
    for name, why in made.skipped:
        click.echo(f"left out: {name}: {why}", err=True)
    signature = made.manifest.signature
    click.echo(f"{out}: {', '.join(signature.tensors)} of {len(signature.layers)} layers, {signature.rows} rows")


def _manifest(engine: str, chosen: str | None, flags: str | None, of_model: Path | None):
    from edge0verify.dump.foreign import foreign_manifest
    from edge0verify.model import load_model

    sha = None if of_model is None else load_model(of_model).sha256
    set_by_flags, variants = options.read_variants(chosen, flags)
    return replace(foreign_manifest(engine=engine, model_sha256=sha), variants=variants, flags=set_by_flags)


def _pairs(words) -> dict[str, str]:
    found = {}
    for word in words:
        theirs, equals, ours = word.partition("=")
        if not equals or not theirs or not ours:
            raise InputError(f"--name {word}: expected THEIRS=OURS")
        found[theirs] = ours
    return found
