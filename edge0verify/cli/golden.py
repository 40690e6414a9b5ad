"""`edge0verify golden`: keep an accepted run, and hold what runs now against it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar
from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError

STORE = "golden"


@click.group("golden")
def command() -> None:
    """Goldens: accepted runs, repeated on their committed inputs.

    `record` puts a run into the store, `accept` makes it the golden and asks for the reason, `check` repeats it and holds every bit
    (or, by policy, every contract) against it. The first accepted run stays beside it as the anchor, so that small changes add up.

    \b
    Example:
      edge0verify golden list
    """


def store_option(function):
    return click.option(
        "--store", type=click.Path(path_type=Path), default=Path(STORE), show_default=True, help="Folder of goldens."
    )(function)


@command.command("record")
@click.argument("name")
@options.model_options
@click.option("--prompt", default="prose", show_default=True, help="An embedded prompt: long, prose, questions, code, list.")
@click.option("-f", "--file", "prompt_file", type=click.Path(path_type=Path), help="Take the prompt from a text file.")
@click.option("--tokens", type=click.IntRange(min=1), help="Use only the first tokens of the prompt.")
@click.option("--set", "chosen", metavar="STAGE=VARIANT,...", help="Variants, e.g. D=w11,A=mmq.  [default: mmvq everywhere]")
@click.option("--flags", metavar="'NAME=VALUE ...'", help="Choose the variants by engine flags instead; '' means all unset.")
@click.option("--device", default="cpu", show_default=True, help="Where to run: cpu, cuda:0, hip:0, sim:0.")
@click.option(
    "--level",
    type=click.Choice(["outputs", "replay", "full", "sketch", "hash"]),
    help="What to keep.  [default: all of a run up to 4 MiB at level replay, else a sketch]",
)
@click.option(
    "--policy",
    metavar="exact|conform|FILE",
    help="What a later run may show: no changed bit, what the contracts allow, or TOML rules.  [default: exact]",
)
@click.option("--drift-top8", metavar="X|none", help="Largest movement of the top-8 log-probs from the anchor.  [default: none]")
@click.option("--drift-l2", metavar="X|none", help="Largest rel-L2 from the anchor in the first layer.  [default: 0.001]")
@click.option("--dump", "dump_file", type=click.Path(path_type=Path), help="Take this dump instead of running.")
@options.threads_option
@store_option
@click.pass_context
def record(
    ctx,
    name,
    model,
    projection,
    prompt,
    prompt_file,
    tokens,
    chosen,
    flags,
    device,
    level,
    policy,
    drift_top8,
    drift_l2,
    dump_file,
    threads,
    store,
) -> int:
    """Run the engine and put the run into the store, as a candidate for `accept`.

    A golden that is there already is run again with its own prompt, variants, level and policy. Every element is held against its
    contract on the way. With --dump another engine's run is taken; then later dumps are held against it, and nothing is repeated.

    \b
    Examples:
      edge0verify golden record prose-w11 --prompt prose --set D=w11,A=w11,U=w11
      edge0verify golden record long --prompt long --level sketch

    \b
    Exit code: 0 recorded, 1 recorded and something breaks its contract, 2 input error, 3 the device is not here.
    """
    from edge0verify.golden.record import Wanted, record_again, record_new
    from edge0verify.golden.store import Store
    from edge0verify.golden.types import CONFORM, Rules
    from edge0verify.runtime.detect import Absent

    kept, count = Store(store), options.thread_count(threads)
    given = [p for p in ctx.params if ctx.get_parameter_source(p) is not click.core.ParameterSource.DEFAULT]
    fixed = [p for p in given if p in ("prompt", "prompt_file", "tokens", "chosen", "flags", "level")]
    try:
        if kept.has(name):
            if fixed:
                raise InputError(
                    f"golden {name}: expected its own inputs, found --{fixed[0].replace('_', '-')}: record another name for others"
                )
            rules = _rules(policy, (drift_top8, drift_l2), kept.open(name).recorded[-1].rules)
            made = record_again(
                kept,
                name,
                model=_given_model(model, projection),
                device=device if "device" in given else None,
                dump=dump_file,
                rules=rules,
                threads=count,
                origin=_origin(),
            )
        else:
            by_flags, variants = options.read_variants(chosen, flags)
            loaded = options.open_model(model, projection)
            named, ids = options.read_prompt(loaded, prompt, prompt_file)
            wanted = Wanted(
                name=name,
                model=loaded,
                prompt=named,
                tokens=ids[:tokens],
                variants=variants,
                flags=by_flags,
                device=device,
                level=level,
                rules=_rules(policy, (drift_top8, drift_l2), Rules()),
                dump=dump_file,
                threads=count,
                inputs_named=bool(fixed),
            )
            with progress_bar():
                made = record_new(kept, wanted, origin=_origin())
    except Absent as absent:
        click.echo(f"golden {name}: not recorded: {absent}")
        return statuses.EXIT_INCONCLUSIVE
    judged = {True: "every element keeps its contract", False: "NOT CONFORMING", None: "nothing could judge it"}[made.conforming]
    if made.rules.mode == CONFORM:
        judged += ", policy conform"
    click.echo(f"{name}: run {made.n}, level {made.level}, {made.bytes} bytes for {made.whole_bytes}; {judged}")
    for complaint in made.complaints:
        click.echo(f"  - {complaint}")
    click.echo(f"not yet the golden: edge0verify golden accept {name} --reason '...'")
    return statuses.EXIT_FAIL if made.conforming is False else 0


@command.command("accept")
@click.argument("name")
@click.option("--reason", required=True, help="Why it is right that the numbers changed.")
@click.option("--reanchor", is_flag=True, help="Make it the anchor too; drift counts from here.")
@click.option("--anyway", is_flag=True, help="Also where elements break their contract.")
@store_option
def accept(name, reason, reanchor, anyway, store) -> int:
    """Make the newest recorded run the golden. The reason stays in the log for good.

    \b
    Example:
      edge0verify golden accept prose-w11 --reason "first run after the store of D was fixed"
    """
    from edge0verify.golden.record import accept_candidate
    from edge0verify.golden.store import Store

    golden, done = accept_candidate(Store(store), name, reason=reason, reanchor=reanchor, anyway=anyway, commit=_origin()[0])
    click.echo(f"{name}: run {done.recorded} is the golden{' and the anchor' if done.anchor else ''}: {done.reason}")
    if not done.anchor:
        click.echo(f"  the anchor stays run {golden.anchor.n}, {golden.since_anchor} accepted since")
    return 0


@command.command("check")
@click.argument("names", nargs=-1)
@options.model_options
@click.option("--dump", "dump_file", type=click.Path(path_type=Path), help="Hold this dump against the golden instead of running.")
@click.option("--device", help="Where to run.  [default: where it was recorded, or the processor]")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder for the dumps of runs that do not pass.")
@click.option("--junit", "junit_to", metavar="FILE", help="Write JUnit XML too.")
@click.option(
    "--confirm", metavar="REASON", help="Write into the log of stale goldens that pass: these sources give the same bits."
)
@options.threads_option
@options.json_option
@store_option
def check(names, model, projection, dump_file, device, keep, junit_to, confirm, threads, json_to, store) -> int:
    """Repeat goldens on their committed inputs and hold every bit against them. Without NAMES: all of the store.

    A change is named by layer, stage and cause. A golden of another model, prompt or signature is refused. One whose kernels'
    source changed since is called stale; its bits decide.

    \b
    Examples:
      edge0verify golden check
      edge0verify golden check prose-w11 --dump dumps/x.h5

    \b
    Exit code: 0 PASS, 1 FAIL, 2 input error, 3 INCONCLUSIVE (unlike runs, not accepted, nothing compared), of many the worst.
    """
    from edge0verify.golden.check import SCHEMA, Asked, Runs
    from edge0verify.golden.check import check as check_one
    from edge0verify.golden.store import Store
    from edge0verify.report.golden_text import checks_text
    from edge0verify.report.junit import junit
    from edge0verify.variants.kernels import kernel_source_sha256

    kept = Store(store)
    wanted = list(names) or kept.names()
    if dump_file is not None and len(names) != 1:
        raise click.UsageError(f"--dump: expected one golden with it, found {len(names)}")
    if not wanted:
        click.echo(f"nothing was checked: no goldens in {store}")
        return statuses.EXIT_INCONCLUSIVE
    commit, dirty = _origin()
    found = []
    with Runs() as shared, progress_bar() as progress:
        asked = Asked(
            model=_given_model(model, projection),
            dump=dump_file,
            device=device,
            threads=options.thread_count(threads),
            keep=keep,
            shared=shared,
            commit=commit,
            dirty=dirty,
        )
        for at, name in enumerate(wanted):
            progress("goldens", at, len(wanted))
            found.append(check_one(kept, name, asked))
    for c in found if confirm is not None and dump_file is None else ():
        if c.stale and c.status == statuses.PASS:
            kept.confirm(c.name, source=kernel_source_sha256(), reason=confirm, commit=commit)
    status = statuses.worst_status(c.status for c in found)
    if json_to != "-":
        click.echo(checks_text(found))
    if json_to is not None:
        document = {"schema": SCHEMA, "status": status, "goldens": [c.to_json() for c in found]}
        options.write_text(json_to, json.dumps(document, indent=1, allow_nan=False) + "\n")
    if junit_to is not None:
        options.write_text(junit_to, junit([c.verdict for c in found if c.verdict is not None]))
    return statuses.exit_code(status)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@store_option
def list_goldens(as_json, store) -> int:
    """List the goldens of the store.

    \b
    Example:
      edge0verify golden list
    """
    from edge0verify.golden.store import Store
    from edge0verify.report.golden_text import list_text
    from edge0verify.variants.kernels import kernel_source_sha256

    kept = Store(store)
    goldens = [kept.open(name) for name in kept.names()]
    if as_json:
        click.echo(json.dumps([{"name": g.name, "events": [e.to_json() for e in g.events]} for g in goldens], indent=1))
        return 0
    source = kernel_source_sha256()
    stale = [g.source not in (None, source) for g in goldens]
    click.echo(list_text(goldens, stale) if goldens else f"no goldens in {store}")
    return 0


@command.command("show")
@click.argument("name")
@click.option("--dump", "dump_to", type=click.Path(path_type=Path), help="Write the golden's dump to this file.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@store_option
def show(name, dump_to, as_json, store) -> int:
    """What happened to a golden: runs, reasons, anchor.

    \b
    Example:
      edge0verify golden show prose-w11
    """
    from edge0verify.golden.store import Store
    from edge0verify.report.golden_text import show_text

    kept = Store(store)
    golden = kept.open(name)
    click.echo(json.dumps([e.to_json() for e in golden.events], indent=1) if as_json else show_text(golden))
    if dump_to is not None:
        options.make_parent(dump_to)
        run = golden.current or golden.recorded[-1]
        with kept.dump(golden, run) as path, tempfile.TemporaryDirectory(dir=dump_to.parent) as folder:
            copy = Path(folder) / "dump"
            copy.write_bytes(path.read_bytes())
            copy.replace(dump_to)
        click.echo(f"{dump_to}: the dump of run {run.n}")
    return 0


@command.command("prune")
@click.argument("names", nargs=-1)
@click.option(
    "--keep", type=click.IntRange(min=0), default=3, show_default=True, help="Newest runs to keep beside golden and anchor."
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@store_option
def prune(names, keep, dry_run, store) -> int:
    """Remove dumps that are neither golden nor anchor nor among the newest, and what a killed run left behind.

    \b
    Example:
      edge0verify golden prune --keep 1 --dry-run
    """
    from edge0verify.golden.store import Store

    kept, gone = Store(store), 0
    for name in names or kept.names():
        objects = kept.prune(name, keep=keep, dry_run=dry_run)
        gone += len(objects)
        for sha in objects:
            click.echo(f"{name}: {sha}")
    click.echo(f"{gone} objects {'would go' if dry_run else 'removed'}")
    return 0


def _origin() -> tuple[str | None, bool | None]:
    from edge0verify.cli.origin import origin

    return origin()


def _given_model(model, projection):
    """The model that was named, or None to let each golden find its own."""
    return None if model is None and projection is None else options.open_model(model, projection)


def _rules(policy: str | None, limits: tuple[str | None, str | None], before):
    """The golden's rules with what was given changed."""
    from dataclasses import replace

    from edge0verify.golden.types import CONFORM, EXACT

    if policy is not None:
        if policy in (EXACT, CONFORM):
            before = replace(before, mode=policy, text=None)
        else:
            from edge0verify.compare import load_policy

            load_policy(Path(policy))
            before = replace(before, mode=CONFORM, text=Path(policy).read_text(encoding="utf-8"))
    for name, text in zip(("top8", "l2"), limits):
        if text is not None:
            try:
                limit = None if text == "none" else float(text)
            except ValueError:
                raise InputError(f"--drift-{name} {text}: expected a number or none") from None
            before = replace(before, **{name: limit})
    return before
