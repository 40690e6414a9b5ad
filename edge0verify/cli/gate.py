"""`edge0verify gate`: keep verdicts per commit and machine, and ask whether a head has a good one for each leg."""

from __future__ import annotations

import json
from pathlib import Path

import click
from tabulate import tabulate

from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError

STORE = "gate-records"


@click.group("gate")
def command() -> None:
    """Gate records: verdicts stamped with commit, machine and configuration.

    Records are files below --store, only ever added. `check` says for each leg whether a commit has a good record: made on
    that commit, or on an ancestor with no invalidating path changed since, by the rules in gate.toml.

    \b
    Example:
      edge0verify gate list
    """


def store_option(function):
    return click.option(
        "--store", type=click.Path(path_type=Path), default=Path(STORE), show_default=True, help="Folder of records."
    )(function)


def repo_option(function):
    return click.option("--repo", type=click.Path(path_type=Path), default=Path("."), show_default=True, help="Git working tree.")(
        function
    )


@command.command("record")
@click.argument("leg")
@click.argument("run", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--verdict", "verdicts", multiple=True, required=True, type=click.Path(path_type=Path), help="JSON the record rests on."
)
@click.option(
    "--kind", type=click.Choice(["correctness", "speed", "info"]), default="correctness", show_default=True, help="Kind of leg."
)
@click.option("--metric", "metrics", multiple=True, metavar="NAME=NUMBER", help="A measured value.")
@click.option("--count", "counts", multiple=True, metavar="NAME=K/N", help="K right of N, kept with what that still allows.")
@click.option("--config", "configuration", multiple=True, metavar="NAME=TEXT", help="A setting of the run.")
@click.option(
    "--binary", "binaries", multiple=True, type=click.Path(path_type=Path), help="A file to hash before and after the run."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    help="Seconds for RUN.",
)
@store_option
@repo_option
def record(leg, run, verdicts, kind, metrics, counts, configuration, binaries, timeout_s, store, repo) -> int:
    """Add a record of LEG from verdict files.

    With `-- RUN...` the command is run first, with the machine's throttle counters read before and after it, and the
    verdicts must be its own. A speed leg needs that: without it nothing says that the machine did not throttle.
    Exits with 0, 1 or 3 as what was recorded is PASS, FAIL, or proves nothing.

    \b
    Example:
      edge0verify gate record d --verdict v.json -- edge0verify compare --stage D --a mmvq --b w11 --prompt prose --json v.json
    """
    from edge0verify.gate import gather, policy, validity
    from edge0verify.gate.store import Store

    request = gather.Request(
        leg=leg,
        kind=kind,
        verdicts=verdicts,
        metrics={name: _number(name, value) for name, value in map(_pair, metrics)},
        counts={name: _count(name, value) for name, value in map(_pair, counts)},
        configuration=dict(map(_pair, configuration)),
        binaries=binaries,
        command=run,
        timeout_s=timeout_s,
        repository=repo,
        store=store,
    )
    made = gather.record(request, show=lambda text: click.echo(text, err=True, nl=False))
    path, _ = Store(store).append(made)
    click.echo(path)
    found = validity.shortcomings(made, policy.LegRules())
    for _, why in found:
        click.echo(f"  {why}")
    return statuses.exit_code(statuses.worst_status([status for status, _ in found] or [statuses.PASS]))


@command.command("check")
@click.argument("legs", nargs=-1)
@click.option("--head", metavar="REVISION", help="The commit to ask for.  [default: HEAD, and the working tree must be clean]")
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(path_type=Path),
    help="Rules.  [default: gate.toml of the tree; else every change voids]",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@store_option
@repo_option
def check(legs, head, policy_file, as_json, store, repo) -> int:
    """Ask whether a head has a good record for each leg.

    Without LEGS: those that the policy requires, or else all that the store holds. Exits with 0 when every leg is good,
    1 when one says FAIL, 3 when nothing is proven (no record, not covered, dirty, throttled, a metric missing).

    \b
    Example:
      edge0verify gate check --head HEAD
    """
    from edge0verify.gate import check as checks

    answer = checks.check(store=store, repository=repo, head=head, policy_file=policy_file, legs=legs)
    if as_json:
        click.echo(json.dumps(answer.to_json(), indent=2))
    else:
        rows = [
            (d.leg, d.status, d.coverage.why if d.coverage else "", "\n".join((*d.reasons, *(f"({r})" for r in d.remarks))))
            for d in answer.legs
        ]
        click.echo(tabulate(rows, headers=("leg", "status", "covered", "why"), tablefmt="plain", maxcolwidths=[None, None, 40, 70]))
        click.echo(f"{answer.status}: {answer.summary}")
    return statuses.exit_code(answer.status)


@command.command("list")
@click.argument("leg", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON lines, the records whole.")
@store_option
def list_records(leg, as_json, store) -> int:
    """List the records, oldest first.

    \b
    Example:
      edge0verify gate list
    """
    from edge0verify.gate import policy, validity
    from edge0verify.gate.store import Store

    rows = []
    for item in Store(store).records(leg):
        kept = item.record
        if as_json:
            click.echo(kept.canonical().decode(), nl=False)
            continue
        found = validity.shortcomings(kept, policy.LegRules())
        rows.append(_row(kept, found))
    if not as_json:
        click.echo(_table(rows) if rows else f"no records in {store}")
    return 0


@command.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Read and show, store nothing.")
@store_option
def import_records(files, dry_run, store) -> int:
    """Import gate records of the atlas engine (schema 1: LEG__DATE-SHA.json).

    Each file is checked first (its name against what is inside, delta = after - before); if one is wrong nothing is
    stored. What the source called PASS is kept, and shown with what its own state and counts make of it.

    \b
    Example:
      edge0verify gate import --dry-run tests/data/atlas_benchmarks/concurrency-sweep__2026-10-09-0ad9897308.json
    """
    from edge0verify.gate import policy, validity
    from edge0verify.gate.importer import read_atlas
    from edge0verify.gate.store import Store

    read = [read_atlas(path) for path in files]
    stored = 0 if dry_run else sum(Store(store).append(item)[1] for item in read)
    click.echo(_table([_row(item, validity.shortcomings(item, policy.LegRules())) for item in read]))
    click.echo(f"{len(read)} read, {stored} new in {store}" if not dry_run else f"{len(read)} read, nothing stored")
    return 0


def _row(kept, found) -> tuple:
    notes = [why for _, why in found] + [f"({remark})" for remark in kept.remarks]
    moment = kept.date
    return (
        moment,
        kept.leg,
        (kept.commit or "none")[:10],
        kept.kind,
        kept.status,
        kept.validity,
        "no" if found else "yes",
        "\n".join(notes),
    )


def _table(rows) -> str:
    headers = ("date", "leg", "commit", "kind", "says", "state", "good", "why")
    return tabulate(rows, headers=headers, tablefmt="plain", maxcolwidths=[None] * 7 + [60])


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InputError(f"{text}: expected NAME=VALUE")
    return name, value


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--metric {name}: expected a number, found {text!r}") from None


def _count(name: str, text: str) -> tuple[int, int]:
    right, _, n = text.partition("/")
    if not (right.isdecimal() and n.isdecimal() and int(right) <= int(n) and int(n) > 0):
        raise InputError(f"--count {name}: expected K/N with whole numbers, K at most N, found {text!r}")
    return int(right), int(n)
