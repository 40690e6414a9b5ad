"""`edge0verify run`: the instrumented engine, into a dump."""

from __future__ import annotations

from pathlib import Path

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar
from edge0verify.records.errors import InputError


@click.command("run")
@options.model_options
@click.option("--prompt", default="long", show_default=True, help="An embedded prompt: long, prose, questions, code, list.")
@click.option("-f", "--file", "prompt_file", type=click.Path(path_type=Path), help="Take the prompt from a text file.")
@click.option("--tokens", type=click.IntRange(min=1), help="Use only the first tokens of the prompt.")
@click.option("--set", "chosen", metavar="STAGE=VARIANT,...", help="Variants, e.g. D=w11,A=mmq.  [default: mmvq everywhere]")
@click.option("--flags", metavar="'NAME=VALUE ...'", help="Choose variants and routes by engine flags instead; '' means all unset.")
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="The dump to write; its folder is created.")
@click.option("--level", default="replay", show_default=True, help="What to keep: outputs, replay, full, sketch or hash.")
@click.option("--generate", type=click.IntRange(min=0), default=0, show_default=True, help="Tokens to generate after the prompt.")
@click.option("--drafter/--no-drafter", default=True, show_default=True, help="Run the drafter layer; it proposes when generating.")
@click.option("--compress", type=click.Choice(["gzip", "lzf"]), help="Compress the tensors.")
@click.option("--overwrite", is_flag=True, help="Replace a dump of that name.")
@options.split_options
@options.device_option("the stages")
@click.option("--graph", is_flag=True, help="Replay each layer's stages as a captured graph, tensors taken inside it.")
@options.threads_option
def command(
    model, projection, prompt, prompt_file, tokens, chosen, flags, out, level, generate, drafter, compress, overwrite, split, knobs,
    seed, mistake, device, graph, threads,
) -> int:
    """Run the engine over a prompt and write the tensors of the run to a dump.

    \b
    Levels:
      outputs  what each stage hands on: d-xlq, a-yl, u, and the top 8 of the next token
      replay   also every stage's inputs, so that each stage can be judged alone
      full     also gate, up and expert rows, and the logits
      sketch   hashes of row tiles, sampled rows, moments; hash: one hash per tensor

    \b
    Examples:
      edge0verify run --prompt long --set D=w11,A=mmq -o dumps/x.h5 --level replay
      edge0verify run --prompt prose --tokens 64 --split 0-2@sim:0,3-5@sim:1 -o dumps/s.h5
      edge0verify run --prompt prose --device cuda:0 --graph -o dumps/c.h5
      edge0verify run --prompt prose --flags "STRATA_LATENT_MMQ=1" --generate 64 -o dumps/y.h5
      edge0verify run --prompt prose --flags "STRATA_ROUTE_TAIL_SKIP=0.1" -o dumps/t.h5
    """
    from edge0verify.cli.origin import origin
    from edge0verify.model import decode, load_model
    from edge0verify.study.dumping import RunRequest, run

    set_by_flags, variants = options.read_variants(chosen, flags)
    loaded = load_model(model, projection)
    route = options.read_route(set_by_flags, loaded)
    _, ids = options.read_prompt(loaded, prompt, prompt_file)
    options.make_parent(out)
    commit, dirty = origin()
    request = RunRequest(
        model=loaded,
        tokens=ids[:tokens],
        out=out,
        level=level,
        variants=variants,
        flags=set_by_flags,
        generate=generate,
        drafter=drafter,
        threads=options.thread_count(threads),
        compression=compress,
        overwrite=overwrite,
        commit=commit,
        dirty=dirty,
    )
    if graph and device is None:
        raise InputError("--graph: expected with --device, found none")
    if device is not None and split is not None:
        raise InputError("--device: expected without --split, which names devices of its own")
    with (
        progress_bar() as progress,
        options.open_split(loaded, split, knobs, seed, mistake, variants, request.threads, route) as engine,
        options.open_device(device, request.threads, graph) as kernels,
    ):
        result = run(request, progress=lambda done, total: progress("running", done, total), split=engine, kernels=kernels)
    found = result.manifest
    if result.generation is not None:
        click.echo(decode(result.generation.tokens[result.generation.tokens < loaded.config.bos]).decode("utf-8", "replace"))
        click.echo(_generated(result.generation))
    rows, layers = found.signature.rows, len(found.signature.layers)
    click.echo(f"{out}: {out.stat().st_size} bytes, level {found.level}, {rows} rows of {layers} layers")
    return 0


def _generated(made) -> str:
    text = f"{len(made.tokens)} tokens in {made.main_forwards} forwards of the main layers"
    if made.acceptance is None:
        return text
    return f"{text}; {made.accepted} of {made.drafted} drafted tokens accepted ({100 * made.acceptance:.1f} %)"
