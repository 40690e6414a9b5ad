"""`edge0verify compare`: two variants of a stage, or two dumps, layer by layer."""

from __future__ import annotations

from pathlib import Path

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar
from edge0verify.records.errors import InputError

STAGES = (*options.STAGES, "route")
FOR_STAGES = ("split", "device", "device_a", "device_b")
"""Options that say nothing about two runs of the whole model."""
FOR_VARIANTS = ("questions", "prompt", "prompt_file", "cascade", "split", "knobs", "seed", "device", "device_a", "device_b")
"""Options that say nothing about dumps."""


@click.command()
@click.argument("dumps", nargs=-1, type=click.Path(path_type=Path), metavar="[A.h5 B.h5]")
@click.option("--stage", type=click.Choice(STAGES), help="D latent row, A experts, U hidden width; of dumps also route.")
@click.option("--a", "variant_a", metavar="VARIANT", help="One variant: ref, mmvq, mmq, w11 or an alias.")
@click.option("--b", "variant_b", metavar="VARIANT", help="The other.")
@click.option("--flags-a", metavar="'NAME=VALUE ...'", help="Engine flags that choose variant a; '' means all unset.")
@click.option("--flags-b", metavar="'NAME=VALUE ...'", help="Engine flags that choose variant b.")
@options.model_options
@options.prompt_options()
@click.option("--layer", metavar="N[-M][,N]", help="Judge only these layers.")
@click.option("--cascade", is_flag=True, help="Also run the whole model with a and with b on four prompts: movement of the top 8.")
@click.option("--questions", type=click.IntRange(0), default=0, help="Of two sets of flags: also put this many questions to both.")
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), help="TOML rules: limits by stage, tensor, layer.")
@click.option("--png", "png_to", type=click.Path(path_type=Path), metavar="DIR", help="Also draw heat maps and a ladder of layers.")
@click.option("--html", "html_to", metavar="FILE", help="Also write the report as one HTML file.")
@click.option("--grids", "keep_grids", is_flag=True, help="Keep in the JSON what heat maps are drawn from, for edge0verify report.")
@options.split_options
@options.device_option("both variants")
@click.option("--device-a", metavar="NAME", help="Where a alone runs; then a and b may be one variant on two devices.")
@click.option("--device-b", metavar="NAME", help="Where b alone runs.")
@options.threads_option
@options.json_option
@click.pass_context
def command(
    ctx, dumps, stage, variant_a, variant_b, flags_a, flags_b, model, projection, prompt, prompt_file, rows, layer, cascade,
    questions, policy_file, png_to, html_to, keep_grids, split, knobs, seed, mistake, device, device_a, device_b, threads, json_to,
) -> int:
    """Compare two variants of a stage on real weights and real text, or two dumps.

    Variants: the reference path (mmvq) runs the prompt once; the stage is then replayed in every layer with a and with b on the
    reference path's inputs. Dumps: rows are joined by their keys, and each stage is judged on the inputs that each dump holds.
    Two sets of flags without --stage: the whole model runs with each (over prose, where no prompt is named), and the two runs are
    compared as dumps are. Flags that change routes (STRATA_ROUTE_TAIL_SKIP, STRATA_ROUTE_PRIOR with STRATA_ROUTE_RESIDENT) are
    compared so in any case: what they change is `by-design`.
    Either way each variant is judged against its own contract; the pair only names the difference.

    \b
    Examples:
      edge0verify compare --stage D --a mmq --b w11
      edge0verify compare --stage A --a mmvq --b w11 --prompt prose --layer 0-2 --json -
      edge0verify compare --stage A --flags-a "STRATA_LATENT_MMQ=1" --flags-b ""
      edge0verify compare --stage D --a mmq --b w11 --png pictures
      edge0verify compare --stage D --a mmq --b w11 --cascade --html report.html
      edge0verify compare --stage D --a mmvq --b w11 --prompt prose --split 0-2@sim:0,3-5@sim:1
      edge0verify compare --stage D --a w11 --b w11 --device-a cpu --device-b cuda:0
      edge0verify compare --flags-a "" --flags-b "STRATA_ROUTE_TAIL_SKIP=0.1" --questions 40
      edge0verify compare dumps/a.h5 dumps/b.h5
      edge0verify compare dumps/a.h5 dumps/b.h5 --stage U -m model.gguf

    \b
    Exit code: 0 PASS, 1 FAIL, 2 input error, 3 INCONCLUSIVE (nothing was proven).
    """
    from edge0verify.compare import DEFAULT, load_policy
    from edge0verify.report.tables import verdict_text
    from edge0verify.study.grids import Grids

    if len(dumps) not in (0, 2):
        raise click.UsageError(f"expected two dumps or none, found {len(dumps)}")
    sides = (options.read_side("a", variant_a, flags_a, stage), options.read_side("b", variant_b, flags_b, stage))
    policy = DEFAULT if policy_file is None else load_policy(policy_file)
    if keep_grids and json_to is None:
        raise click.UsageError("--grids: expected with --json, which holds them")
    if html_to is not None:
        options.check_target(html_to)
    pictures = Grids() if png_to is not None or html_to is not None or keep_grids else None
    observe = None if pictures is None else pictures.add
    if dumps:
        given = [name for name in FOR_VARIANTS if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT]
        if given:
            option = given[0].replace("prompt_file", "file").replace("_", "-")
            raise InputError(f"--{option}: expected only without dumps, which have a prompt of their own")
        verdict = _dumps(dumps, stage, sides, model, projection, rows, layer, policy, threads, observe)
    elif options.is_whole(flags_a, flags_b, stage):
        named = ctx.get_parameter_source("prompt") is not click.core.ParameterSource.DEFAULT
        given = [name for name in FOR_STAGES if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT]
        if given:
            raise InputError(f"--{given[0].replace('_', '-')}: expected only with one stage and no route flag")
        prompt = prompt if named else "prose"
        verdict = _whole(stage, (flags_a, flags_b), model, projection, prompt, prompt_file, rows, layer, cascade, questions, policy,
                         threads, observe)
    else:
        if questions:
            raise InputError("--questions: expected only with --flags-a and --flags-b of the whole model")
        verdict = _variants(stage, sides, model, projection, prompt, prompt_file, rows, layer, cascade, policy, threads, observe,
                            (split, knobs, seed, mistake), _devices(device, device_a, device_b, split, cascade))
    verdict = options.with_command(verdict)
    if png_to is not None:
        _draw(verdict, pictures.grids, png_to)
    if html_to is not None:
        _page(verdict, pictures.grids, html_to)
    if json_to != "-":
        click.echo(verdict_text(verdict))
    if json_to is not None:
        options.write_text(json_to, (_kept(verdict, pictures.grids) if keep_grids else verdict).dumps())
    return verdict.exit_code


def _draw(verdict, grids, folder) -> None:
    """Pictures into a folder; which ones goes to standard error, since standard output may be JSON."""
    from edge0verify.report.plots import write_pictures

    written = write_pictures(verdict, grids, folder)
    click.echo(f"{folder}: {', '.join(path.name for path in written) or 'nothing was compared, no picture'}", err=True)


def _devices(device, device_a, device_b, split, cascade) -> tuple[str, str]:
    """Where a and b run."""
    given = [name for name in (device, device_a, device_b) if name is not None]
    if given and split is not None:
        raise InputError("--device: expected without --split, which names devices of its own")
    if device is not None and (device_a is not None or device_b is not None):
        raise InputError("--device: expected it, or --device-a and --device-b, found both")
    both = tuple(options.read_device(one or device) for one in (device_a, device_b))
    if cascade and both[0] != both[1]:
        raise InputError(f"--cascade: expected one device for both variants, found {both[0]} and {both[1]}")
    return both


def _page(verdict, grids, path) -> None:
    from edge0verify.report.html import verdict_html

    options.write_text(path, verdict_html(verdict, grids))


def _kept(verdict, grids):
    """The verdict with its grids."""
    from dataclasses import replace

    from edge0verify.study.kept_grids import grids_to_json

    return replace(verdict, grids=grids_to_json(grids))


def _variants(stage, sides, model, projection, prompt, prompt_file, rows, layer, cascade, policy, threads, observe, split, devices):
    from edge0verify.compare import hold_movement
    from edge0verify.model import load_model
    from edge0verify.study.cascade import top8_movement, with_top8
    from edge0verify.study.pair import Request, compare_variants
    from edge0verify.study.replay import PARTS

    if stage not in PARTS:
        raise click.UsageError(f"--stage: expected one of {', '.join(PARTS)} to compare variants, found {stage or 'none'}")
    for name, side in zip("ab", sides):
        if not side:
            raise click.UsageError(f"expected --{name} VARIANT or --flags-{name}, found neither")
    loaded = load_model(model, projection)
    name, tokens = options.read_prompt(loaded, prompt, prompt_file)
    part = PARTS[stage][0]
    request = Request(
        model=loaded,
        prompt=name,
        tokens=tokens,
        stage=stage,
        a=sides[0][part],
        b=sides[1][part],
        layers=options.read_layers(layer, loaded.config.layers),
        rows=options.read_rows(rows, len(tokens)),
        threads=options.thread_count(threads),
        policy=policy,
        device_a=devices[0],
        device_b=devices[1],
    )
    with progress_bar() as progress, options.open_split(loaded, *split, {}, request.threads) as engine:
        kernels_for = None if engine is None else lambda side, layer: engine.kernels[engine.split.device_of(layer)]
        verdict = compare_variants(request, progress=progress, observe=observe, engine=engine, kernels_for=kernels_for)
        if cascade and verdict.layers:                 # there are none where a device is absent
            moved = top8_movement(loaded, stage, verdict.a, verdict.b, threads=request.threads, progress=progress,
                                  device=request.device_a)
            verdict = with_top8(hold_movement(verdict, moved, policy), moved)
    return verdict


def _whole(stage, flags, model, projection, prompt, prompt_file, rows, layer, cascade, questions, policy, threads, observe):
    from edge0verify.model import load_model
    from edge0verify.study.whole import Configuration, WholeRequest, compare_whole

    loaded = load_model(model, projection)
    name, tokens = options.read_prompt(loaded, prompt, prompt_file)
    sides = []
    for text in flags:
        read, variants = options.read_variants(None, text)
        options.read_route(read, loaded)
        sides.append(Configuration(flags=read, variants=variants))
    span = None if rows is None else options.read_rows(rows, len(tokens))
    request = WholeRequest(
        model=loaded,
        tokens=tokens,
        prompt=name,
        a=sides[0],
        b=sides[1],
        stage=stage,
        layers=options.read_dump_layers(layer),
        rows=None if span is None else (span.start, span.stop),
        policy=policy,
        threads=options.thread_count(threads),
        questions=questions,
        cascade=cascade,
    )
    with progress_bar() as progress:
        return compare_whole(request, progress=progress, observe=observe)


def _dumps(dumps, stage, sides, model, projection, rows, layer, policy, threads, observe):
    from edge0verify.model import load_model
    from edge0verify.study.dumps import DumpRequest, compare_dumps

    span = None if rows is None else options.read_rows(rows, options.MOST_ROWS)
    request = DumpRequest(
        a=dumps[0],
        b=dumps[1],
        model=load_model(model, projection),
        model_named=model is not None,
        stage=stage,
        declared_a=sides[0],
        declared_b=sides[1],
        layers=options.read_dump_layers(layer),
        rows=None if span is None else (span.start, span.stop),
        threads=options.thread_count(threads),
        policy=policy,
    )
    with progress_bar() as progress:
        return compare_dumps(request, progress=progress, observe=observe)
