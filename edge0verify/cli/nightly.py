"""`edge0verify nightly`: a matrix of cells, every night."""

from __future__ import annotations

from pathlib import Path

import click

from edge0verify.cli.progress import progress_bar


@click.command("nightly")
@click.argument("config", type=click.Path(path_type=Path), default=Path("nightly.toml"))
@click.option("--fresh", is_flag=True, help="Begin anew though the last nightly was interrupted.")
@click.option("--list", "only_list", is_flag=True, help="Only list the cells.")
@click.option("--junit", "junit_to", metavar="FILE", help="Write the JUnit XML here too.")
def command(config, fresh, only_list, junit_to) -> int:
    """Run the cells of CONFIG: goldens on their committed inputs, pairs of variants, stability from run to run.

    Every cell runs in a process of its own with a time limit, so that a crash is a result. Each result is in the history
    (OUT/history.db, append-only) before the next cell begins; a nightly that was interrupted goes on where it stopped. OUT/run-N
    holds JUnit, JSON lines, the report and the dumps of failures. A cell that fails on the base commit too is not this change.

    \b
    Example:
      edge0verify nightly nightly.toml

    \b
    Exit code: the worst of all cells: 70, 1, 2, 3, 0. A cell that was skipped, and no cell at all, is 3.
    """
    from edge0verify.cli.options import write_text
    from edge0verify.cli.origin import origin
    from edge0verify.nightly.config import load
    from edge0verify.nightly.outputs import junit
    from edge0verify.nightly.run import run
    from edge0verify.report.nightly_text import night_text

    asked = load(config)
    if only_list:
        for cell in asked.cells:
            click.echo(cell.name)
        click.echo(f"{len(asked.cells)} cells")
        return 0
    commit, dirty = origin()
    with progress_bar() as progress:
        night = run(asked, commit=commit, dirty=dirty, fresh=fresh, progress=progress)
    click.echo(night_text(night))
    for path in night.pruned:
        click.echo(f"removed, too old or too much: {path}")
    click.echo(f"kept in {night.folder}: {', '.join(p.name for p in night.written)}")
    if junit_to is not None:
        write_text(junit_to, junit(night.results, night.missing))
    return night.exit_code
