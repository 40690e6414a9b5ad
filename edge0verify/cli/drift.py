"""`edge0verify drift`: how far variants, runs, threads, batch widths and contexts move the numbers."""

from __future__ import annotations

from pathlib import Path

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar

OVER = ("variants", "runs", "threads", "batch", "context")


@click.command()
@click.option("--over", type=click.Choice(OVER), required=True, help="What is varied.")
@click.option("--stage", type=click.Choice(options.STAGES), required=True,
              help="D (latent row), A (experts) or U (back to hidden width).")
@click.option("--variant", metavar="VARIANT", help="The variant under study.  [default: mmvq; needed for context]")
@click.option("--reference", default="mmvq", show_default=True, metavar="VARIANT", help="The one it is measured by.")
@options.model_options
@click.option("--prompt", default="prose", show_default=True, help="An embedded prompt: long, prose, questions, code, list.")
@click.option("-f", "--file", "prompt_file", type=click.Path(path_type=Path), help="Take the prompt from a text file.")
@click.option("--runs", type=click.IntRange(2, 1000), default=5, show_default=True, help="Over runs: how many processes.")
@click.option("--engine", metavar="CMD",
              help="Over runs and threads: another engine, a command with {out} and optionally {variant}, {threads}, {run}.")
@click.option("--timeout", default=300.0, show_default=True, metavar="SECONDS", help="Over runs and threads: limit of one process.")
@click.option("--wide", metavar="VARIANT", help="Over batch: what widths above 1 run, as engines do that choose by width.")
@click.option("--contexts", metavar="N,N", help="Over context: lengths.  [default: powers of two from 32, and the whole prompt]")
@click.option("--steps", type=click.IntRange(1, 256), default=16, show_default=True, help="Over context: tokens after each.")
@options.device_option()
@options.threads_option
@options.json_option
def command(over, stage, variant, reference, model, projection, prompt, prompt_file, runs, engine, timeout, wide, contexts, steps,
            device, threads, json_to) -> int:
    """Measure how far numbers drift that should not, or may.

    \b
    variants  how far the accepted variants differ among themselves on the four prompts, and from the float oracle
    runs      the same run in fresh processes: the first unstable tensor, and how it differs
    threads   the same with 1, 2, 3, 4 and 8 threads
    batch     the prompt read in batches of 1 to 8 tokens: what differs and conforms is drift, not a fault
    context   growing contexts: the first token that differs, with its margin in ulps of the logit

    \b
    Examples:
      edge0verify drift --over variants --stage A --variant w11
      edge0verify drift --over runs --stage A --variant mmq --runs 3
      edge0verify drift --over batch --stage A --variant mmvq --wide mmq
      edge0verify drift --over context --stage D --variant mmq --prompt code
      edge0verify drift --over batch --stage D --variant w11 --device cuda:0

    \b
    Exit code: 0 stable, or drift that conforms; 1 a fault; 2 input error; 3 nothing was proven, or the reference is suspect.
    """
    from edge0verify.records.errors import InputError
    from edge0verify.report.drift_text import drift_text
    from edge0verify.study.drift_device import refused
    from edge0verify.study.environment import environment
    from edge0verify.study.on_device import Refused, close_kernels, open_kernels
    from edge0verify.study.pair import canonical, describe_prompt

    loaded = options.open_model(model, projection)
    chosen = canonical(stage, variant) if variant else None
    by = canonical(stage, reference)
    count = options.thread_count(threads)
    place = options.read_device(device)
    if engine is not None and device is not None:
        raise InputError("--device: expected without --engine, which runs where it likes")
    name, tokens = options.read_prompt(loaded, prompt, prompt_file)
    kernels = None
    try:
        with progress_bar() as progress:
            kernels = open_kernels(place, threads=count)
            if over == "variants":
                from edge0verify.study.drift import over_variants

                found = over_variants(loaded, stage, variant=chosen, reference=by, threads=count, kernels=kernels,
                                      progress=progress)
            elif over in ("runs", "threads"):
                from edge0verify.study.drift_runs import RunsRequest, over_runs

                read = ("--prompt", prompt) if prompt_file is None else ("--file", prompt_file)
                asked = [("--model", model), ("--projection", projection), read, ("--device", device)]
                arguments = [word for flag, value in asked if value is not None for word in (flag, str(value))]
                request = RunsRequest(
                    model=loaded, over=over, stage=stage, variant=chosen or "mmvq", reference=by, runs=runs, threads=count,
                    arguments=tuple(arguments), engine=engine, timeout_s=timeout,
                    prompts=() if engine else (describe_prompt(name, tokens),),
                    environment={} if engine else environment(kernels, count))
                found = over_runs(request, progress=progress)
            elif over == "batch":
                from edge0verify.study.drift_batch import over_batch

                found = over_batch(loaded, name, tokens, stage, chosen or "mmvq", wide=canonical(stage, wide) if wide else None,
                                   threads=count, kernels=kernels, progress=progress)
            else:
                from edge0verify.study.drift_context import over_context

                if chosen is None:
                    raise click.UsageError("--over context: expected --variant")
                found = over_context(loaded, name, tokens, stage, chosen, reference=by, contexts=_lengths(contexts), steps=steps,
                                     threads=count, kernels=kernels, progress=progress)
    except Refused as error:
        found = refused(error, over=over, stage=stage, variant=chosen, reference=by, model=loaded, device=place,
                        prompt=describe_prompt(name, tokens))
    finally:
        close_kernels(kernels)
    if json_to != "-":
        click.echo(drift_text(found))
    if json_to is not None:
        options.write_text(json_to, found.dumps())
    return found.exit_code


def _lengths(text: str | None) -> tuple[int, ...] | None:
    """'32,64' as numbers; None where nothing was given."""
    from edge0verify.records.errors import InputError

    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--contexts {text}: expected numbers such as 32,64,128") from None
