"""`edge0verify bisect`: the first layer, stage, row and block that does not conform."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar


@click.command()
@click.option("--a", "variant_a", default="ref", show_default=True, metavar="VARIANT", help="The one to start from.")
@click.option("--b", "variant_b", metavar="VARIANT", help="The one under suspicion.")
@click.option("--stage", type=click.Choice([*options.STAGES, "all"]), default="all", show_default=True,
              help="The stages that run a and b; the others run mmvq.")
@options.model_options
@click.option("--model-b", type=click.Path(path_type=Path), help="Weights of b, where they are another file's.  "
              "Both runs are judged by the weights of --model.")
@click.option("--prompt", default="prose", show_default=True, help="An embedded prompt: long, prose, questions, code, list.")
@click.option("-f", "--file", "prompt_file", type=click.Path(path_type=Path), help="Take the prompt from a text file.")
@click.option("--attribute", is_flag=True, help="Also swap each stage of each layer in and out and show how far the top 8 moves.")
@click.option("--check", metavar="CMD", help="Search runs of an outside engine instead: CMD with {layers} or {flags}, and {out}.")
@click.option("--candidate", "candidates", multiple=True, metavar="TEXT",
              help="With --check: a value of {layers} or {flags}, in order.  [default for {layers}: 0-0, 0-1, ... of the model]")
@click.option("--good", type=click.Path(path_type=Path), help="With --check: a dump to compare each run's dump with.")
@click.option("--state", type=click.Path(path_type=Path), help="With --check: file that keeps the answers, to resume from.")
@click.option("--timeout", default=600.0, show_default=True, metavar="SECONDS", help="With --check: time limit of one run.")
@options.threads_option
@options.json_option
def command(variant_a, variant_b, stage, model, projection, model_b, prompt, prompt_file, attribute, check, candidates, good, state,
            timeout, threads, json_to) -> int:
    """Find the first step that does not conform, in one pass up the layers.

    Both runs go through the model side by side. Every step of every layer is judged on the inputs that its own run gave it, by the
    weights of --model; so what a fault below passes on is not taken for a fault. The place comes down to the weight row and, by
    probing, to the block.

    With --check an outside engine is searched: CMD runs once per tried candidate and leaves a dump at {out}; a candidate is bad if
    that dump does not conform (or differs from --good beyond what conforms). Candidates are ordered: all before the first bad
    one are taken to be good.

    \b
    Examples:
      edge0verify bisect --a ref --b mmq --stage A
      edge0verify bisect --a mmvq --b mmvq --model-b copy.gguf
      edge0verify bisect --a mmvq --b w11 --attribute
      edge0verify bisect --check "edge0verify run --prompt prose --flags '{flags}' -o {out} --level full" --candidate ""
          --candidate STRATA_LATENT_MMQ=1 --state search.json

    \b
    Exit code: 0 nothing is at fault, 1 the first fault is named, 2 input error, 3 nothing was proven.
    """
    if check is not None:
        return _check(check, candidates, good, state, timeout, model, projection, threads, json_to)
    from edge0verify.report.bisect_text import bisect_text
    from edge0verify.study.attribute import PARTS
    from edge0verify.study.attribute import attribute as attributed
    from edge0verify.study.bisect import bisect
    from edge0verify.study.bisect_types import Request

    if variant_b is None:
        raise click.UsageError("expected --b VARIANT, or --check CMD")
    loaded = options.open_model(model, projection)
    other = options.open_model(model_b, projection) if model_b is not None else None
    name, tokens = options.read_prompt(loaded, prompt, prompt_file)
    request = Request(model=loaded, a=variant_a, b=variant_b, prompt=name, tokens=tokens, stage=stage, model_b=other,
                      threads=options.thread_count(threads))
    with progress_bar() as progress:
        found = bisect(request, progress=progress)
        if attribute:
            chosen = PARTS if stage == "all" else (stage,)
            plans = [{part: found.variants[side]["A1" if part == "A" else part] for part in PARTS} for side in "ab"]
            moves = attributed(loaded, *plans, parts=chosen, other=other, threads=request.threads, progress=progress)
            found = replace(found, attribute=moves)
    if json_to != "-":
        click.echo(bisect_text(found))
    if json_to is not None:
        options.write_text(json_to, found.dumps())
    return found.exit_code


def _check(check, candidates, good, state, timeout, model, projection, threads, json_to) -> int:
    from edge0verify.report.bisect_text import search_text
    from edge0verify.study.bisect_check import Search, layer_candidates, search

    loaded = options.open_model(model, projection)
    wanted = tuple(candidates) or layer_candidates(check, loaded.config.layers)
    asked = Search(command=check, candidates=wanted, model=loaded, good=good, state=state, timeout_s=timeout,
                   threads=options.thread_count(threads))
    found = search(asked, tell=lambda line: click.echo(line, err=True))
    if json_to != "-":
        click.echo(search_text(found))
    if json_to is not None:
        options.write_text(json_to, found.dumps())
    return found.exit_code
