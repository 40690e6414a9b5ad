"""`edge0verify compare`: two variants of a stage, layer by layer."""

from __future__ import annotations

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar


@click.command()
@click.option(
    "--stage", type=click.Choice(options.STAGES), required=True, help="D (latent row), A (experts) or U (back to hidden width)."
)
@click.option("--a", "variant_a", required=True, metavar="VARIANT", help="One variant: ref, mmvq, mmq, w11 or an alias.")
@click.option("--b", "variant_b", required=True, metavar="VARIANT", help="The other.")
@options.model_options
@options.prompt_options()
@click.option("--layer", metavar="N[-M][,N]", help="Judge only these layers.")
@click.option(
    "--cascade", is_flag=True, help="Also run the whole model with a and with b and set the top-8 of the four prompts side by side."
)
@options.threads_option
@options.json_option
def command(stage, variant_a, variant_b, model, projection, prompt, prompt_file, rows, layer, cascade, threads, json_to) -> int:
    """Compare two variants of a stage on real weights and real text.

    The reference path (mmvq) runs the prompt once; the stage is then replayed in every layer with a and with b on the reference
    path's inputs. Each variant is judged against its own contract; the pair only names the difference.

    \b
    Examples:
      edge0verify compare --stage D --a mmq --b w11
      edge0verify compare --stage A --a mmvq --b w11 --prompt prose --layer 0-2 --json -
      edge0verify compare --stage U --a ref --b mmq --prompt code --cascade

    \b
    Exit code: 0 PASS, 1 FAIL, 2 input error, 3 INCONCLUSIVE (nothing was proven).
    """
    from edge0verify.report.tables import verdict_text
    from edge0verify.study.cascade import top8_movement, with_top8
    from edge0verify.study.pair import Request, compare_variants

    loaded = options.open_model(model, projection)
    name, tokens = options.read_prompt(loaded, prompt, prompt_file)
    request = Request(
        model=loaded,
        prompt=name,
        tokens=tokens,
        stage=stage,
        a=variant_a,
        b=variant_b,
        layers=options.read_layers(layer, loaded.config.layers),
        rows=options.read_rows(rows, len(tokens)),
        threads=options.thread_count(threads),
    )
    with progress_bar() as progress:
        verdict = compare_variants(request, progress=progress)
        if cascade:
            moved = top8_movement(loaded, stage, verdict.a, verdict.b, threads=request.threads, progress=progress)
            verdict = with_top8(verdict, moved)
    if json_to != "-":
        click.echo(verdict_text(verdict))
    if json_to is not None:
        options.write_text(json_to, verdict.dumps())
    return verdict.exit_code
