"""`edge0verify selftest`: the suite tried on faults and on legitimate changes."""

from __future__ import annotations

import json

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar


@click.command()
@click.option("--quick", is_flag=True, help="The reduced form: a few faults of each cause, a few changes, all broken comparators.")
@click.option("--all", "every", is_flag=True, help="List every trial, not only what came out wrong.")
@click.option("--criteria", is_flag=True, help="Stage D's faults and changes under the criteria that people use today instead.")
@click.option("--json", "json_to", metavar="FILE|-", help="Write everything as JSON to a file, or to standard output.")
def command(quick: bool, every: bool, criteria: bool, json_to: str | None) -> int:
    """Try the suite itself: does it catch what is wrong and pass what is right?

    Faults compiled into the kernels, made in their outputs or in the router, and runs that prove nothing must be caught and named;
    other variants, operands, orders, threads and batch widths must pass. Each fault is shown to change output bits first. Then the
    comparators are broken on purpose: the self test must notice each.

    \b
    Examples:
      edge0verify selftest
      edge0verify selftest --quick --json -
      edge0verify selftest --criteria

    \b
    Exit code: 0 nothing missed, no false alarm, at most 2 misnamed, all exercised; 1 otherwise; 2 input error.
    """
    from edge0verify.report.selftest_text import criteria_text, selftest_text
    from edge0verify.study.selftest.criteria import SUITE, scores
    from edge0verify.study.selftest.runner import selftest

    if criteria:
        if quick:
            raise click.UsageError("--criteria and --quick: expected one of them, found both")
        with progress_bar() as progress:
            found = scores(progress)
        suite = next(s for s in found if s.name == SUITE)
        _write(json_to, {"schema": "edge0verify.criteria/1", "stage": "D", "criteria": [s.to_json() for s in found]})
        if json_to != "-":
            click.echo(criteria_text(found, every=every))
        return 0 if suite.caught == suite.faults and not suite.false_alarms else 1
    with progress_bar() as progress:
        report = selftest(quick=quick, progress=progress)
    _write(json_to, report.to_json())
    if json_to != "-":
        click.echo(selftest_text(report, every=every))
    return 0 if report.ok else 1


def _write(json_to: str | None, data: dict) -> None:
    if json_to is not None:
        options.write_text(json_to, json.dumps(data, indent=1) + "\n")
