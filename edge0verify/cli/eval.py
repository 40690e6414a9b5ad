"""`edge0verify eval`: the embedded questions, put to the model."""

from __future__ import annotations

import json

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar


@click.command("eval")
@options.model_options
@click.option("--questions", "count", type=click.IntRange(1), default=40, show_default=True, help="How many, in order.")
@click.option("--set", "chosen", metavar="STAGE=VARIANT,...", help="Variants, e.g. D=w11,A=mmq.  [default: mmvq everywhere]")
@click.option("--flags", metavar="'NAME=VALUE ...'", help="Choose the variants by engine flags instead.")
@click.option("--drafter/--no-drafter", default=False, show_default=True, help="Let the drafter propose; no answer changes by it.")
@click.option("--at-least", type=click.IntRange(0), metavar="N", help="Exit with 1 when fewer are right.")
@options.threads_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(model, projection, count, chosen, flags, drafter, at_least, threads, as_json) -> int:
    """Greedy answers to the embedded questions, each printed and counted as right only if it is the expected text exactly.

    \b
    Example:
      edge0verify eval --questions 40 --drafter
    """
    from edge0verify.engine import Engine
    from edge0verify.engine.evaluate import evaluate
    from edge0verify.model import load_model, questions
    from edge0verify.records.errors import InputError
    from edge0verify.report.answers import answers_json, answers_text

    loaded, asked = load_model(model, projection), questions()
    if count > len(asked):
        raise InputError(f"--questions {count}: expected at most {len(asked)}, the number embedded")
    _, variants = options.read_variants(chosen, flags)
    engine = Engine(
        loaded, variants=variants or None, float_mode=not loaded.quantised and not variants, threads=options.thread_count(threads)
    )
    with progress_bar() as progress:
        answers = evaluate(
            engine, asked[:count], drafter=drafter, progress=lambda done, total: progress("questions", done, total)
        )
    click.echo(json.dumps(answers_json(answers), indent=1) if as_json else answers_text(answers))
    right = sum(answer.right for answer in answers)
    return 1 if at_least is not None and right < at_least else 0
