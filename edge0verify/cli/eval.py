"""`edge0verify eval`: questions put to one configuration or to two, and what the answers prove."""

from __future__ import annotations

from pathlib import Path

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar
from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError


def _endpoint_options(command):
    for option in reversed((
        click.option("--endpoint", "--endpoint-a", "endpoint", metavar="URL", help="Ask an OpenAI-compatible server: http://HOST/v1."),
        click.option("--endpoint-b", metavar="URL", help="Compare with the answers of this server."),
        click.option("--api-model", default="default", show_default=True, metavar="NAME", help="The model's name on the server."),
        click.option("--api-model-b", metavar="NAME", help="Its name on the second server.  [default: the same]"),
        click.option("--key-variable", metavar="NAME", help="Environment variable that holds the key; the key is never shown."),
        click.option("--timeout", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True, metavar="SECONDS",
                     help="Limit of one attempt, to its last byte."),
        click.option("--retries", type=click.IntRange(0), default=3, show_default=True, help="After a failure that may pass."),
    )):
        command = option(command)
    return command


@click.command("eval")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[EVAL.json ...]")
@options.model_options
@click.option("--questions", "which", default=None, metavar="N|A:B", help="The first N, or those from A to B-1.  [default: all]")
@click.option("-f", "--file", "file", type=click.Path(path_type=Path), help="Questions of your own, a {prompt, answer} a line.")
@click.option("--set", "--set-a", "chosen", metavar="STAGE=VARIANT,...", help="Variants: D=w11,A=mmq.  [default: mmvq everywhere]")
@click.option("--flags", "--flags-a", "flags", metavar="'NAME=VALUE ...'", help="Choose variants and routes by engine flags.")
@click.option("-b", "--model-b", type=click.Path(path_type=Path), help="Compare with this model.  [default: the same]")
@click.option("--set-b", "chosen_b", metavar="STAGE=VARIANT,...", help="Compare with these variants.")
@click.option("--flags-b", metavar="'NAME=VALUE ...'", help="Compare with these engine flags.")
@_endpoint_options
@click.option("--drafter/--no-drafter", default=False, show_default=True, help="Let the drafter propose; no answer changes by it.")
@click.option("--at-least", type=click.IntRange(0), metavar="N", help="Exit with 1 when fewer are right, on either side.")
@click.option("--max-loss", type=click.FloatRange(0, 1), metavar="SHARE", help="Exit with 3 when a greater loss could hide.")
@click.option("--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True)
@click.option("--dump", type=click.Path(path_type=Path), metavar="X.h5", help="Write a's first-token top 8 as a dump.")
@click.option("--dump-b", type=click.Path(path_type=Path), metavar="Y.h5", help="And b's.")
@click.option("--overwrite", is_flag=True, help="Replace dumps of those names.")
@click.option("--merge", "merging", is_flag=True, help="Ask nothing; join the items of the files named.")
@options.threads_option
@click.option("--json", "json_to", is_flag=False, flag_value="-", metavar="[FILE]", help="As JSON, to a file or standard output.")
def command(
    files, model, projection, which, file, chosen, flags, model_b, chosen_b, flags_b, endpoint, endpoint_b, api_model, api_model_b,
    key_variable, timeout, retries, drafter, at_least, max_loss, confidence, dump, dump_b, overwrite, merging, threads, json_to,
) -> int:
    """Greedy answers, each printed, right only if the first line is exactly the one expected.

    With a second configuration (--set-b, --flags-b, --model-b, --endpoint-b) both are asked the same questions: item by item, exact
    McNemar test, paired bootstrap interval, and the loss that so many questions could hide. Route flags (STRATA_ROUTE_TAIL_SKIP,
    STRATA_ROUTE_PRIOR with STRATA_ROUTE_RESIDENT) change answers by design; how often they acted is said.

    \b
    Examples:
      edge0verify eval --questions 40 --drafter
      edge0verify eval --set-a D=mmvq --set-b D=w11,A=mmq
      edge0verify eval --flags-a "" --flags-b "STRATA_ROUTE_TAIL_SKIP=0.2"
      edge0verify eval --endpoint http://127.0.0.1:8080/v1 --endpoint-b http://127.0.0.1:8081/v1
      edge0verify eval --endpoint http://127.0.0.1:8080/v1 --dump dumps/e.h5
      edge0verify eval --questions 0:20 --json part1.json
      edge0verify eval --merge part1.json part2.json

    \b
    Exit code: 0 no loss was shown, 1 b loses (or fewer than --at-least are right), 2 input error,
    3 nothing was proven (endpoint unreachable, a variant or flag that did not act, a loss above --max-loss could hide).
    """
    from edge0verify.report.answers import evaluation_text
    from edge0verify.study.evaluation_record import merge, settle

    limits = {"confidence": confidence, "max_loss": max_loss, "at_least": at_least}
    if merging:
        found = merge(files, **limits)
    elif files:
        raise click.UsageError(f"unexpected argument {files[0]}; did you mean --merge {files[0]}?")
    else:
        asked = _questions(which, file)
        remote = {"key_variable": key_variable, "timeout_s": timeout, "retries": retries}
        local = {"drafter": drafter, "threads": options.thread_count(threads)}
        first = _side("a", endpoint, api_model, (model, projection, chosen, flags), remote, local)
        second = None
        if any(x is not None for x in (model_b, chosen_b, flags_b, endpoint_b)):
            same = chosen_b is None and flags_b is None and endpoint is None
            words = (model if model_b is None else model_b, projection, chosen if same else chosen_b, flags if same else flags_b)
            given = (model_b, None, chosen_b, flags_b) if endpoint_b is not None else words
            second = _side("b", endpoint_b, api_model_b or api_model, given, remote, local)
        if dump_b is not None and second is None:
            raise InputError("--dump-b: expected a second configuration with it")
        sides = [side for side in (first, second) if side is not None]
        _check_outputs(overwrite, dump, dump_b)
        results = _ask(sides, asked)
        found = settle(results, **limits)
        for path, side, result in zip((dump, dump_b), sides, results):
            if path is not None:
                _write_dump(path, side, result, overwrite)
    if json_to != "-":
        click.echo(evaluation_text(found, confidence=confidence))
    if json_to is not None:
        options.write_text(json_to, found.dumps())
    return statuses.exit_code(found.status)


def _questions(which: str | None, file: Path | None):
    from edge0verify.study.evaluation import embedded_questions, read_questions, select

    return select(embedded_questions() if file is None else read_questions(file), which)


def _side(name: str, url, api_model, words, remote, local):
    """One configuration: an endpoint where an address is given, else a model here."""
    from edge0verify.model import load_model
    from edge0verify.study.endpoint import Endpoint
    from edge0verify.study.evaluation_sides import EndpointSide, LocalSide

    model, projection, chosen, flags = words
    if url is not None:
        given = [f"--{option}" for option, word in zip(("model", "projection", "set", "flags"), words) if word is not None]
        if given and name == "a":
            raise InputError(f"--endpoint and {given[0]}: expected one of them for {name}, found both")
        if given:
            raise InputError(f"--endpoint-b and {given[0]}-b: expected one of them, found both")
        return EndpointSide(endpoint=Endpoint(url=url, model=api_model, **remote))
    loaded = load_model(model, projection)
    set_by_flags, variants = options.read_variants(chosen, flags)
    options.read_route(set_by_flags, loaded)
    return LocalSide(model=loaded, variants=variants, flags=set_by_flags, **local)


def _ask(sides, asked):
    """Answers of every side; what an endpoint refuses ends the program with the reason."""
    from edge0verify.study.evaluation import Interrupted

    results = []
    try:
        with progress_bar() as progress:
            for name, side in zip("ab", sides):
                what = "questions" if len(sides) == 1 else f"questions, {name}"
                results.append(side.run(asked, lambda done, total, what=what: progress(what, done, total)))
    except Interrupted as error:
        if not error.transient:
            raise
        click.echo(f"INCONCLUSIVE: {error}", err=True)
        raise click.exceptions.Exit(3) from error
    return results


def _check_outputs(overwrite: bool, *paths: Path | None) -> None:
    """Before anything is asked: a dump that cannot be written would cost all the answers."""
    for path in paths:
        if path is not None:
            options.make_parent(path)
            if path.exists() and not overwrite:
                raise InputError(f"{path}: exists already; expected a new name, or --overwrite")


def _write_dump(path: Path, side, result, overwrite: bool) -> None:
    from edge0verify.cli.origin import origin
    from edge0verify.study.evaluation_dump import write_first_tokens

    commit, dirty = origin()
    made = write_first_tokens(path, side, result, commit=commit, dirty=dirty, overwrite=overwrite)
    click.echo(f"{path}: first-token log-probs of {len(result.answers)} questions, {', '.join(made.signature.tensors)}", err=True)
