"""`edge0verify bench`: a group whose subcommands are files named bench_NAME.py, found when they are asked for."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import click


class BenchGroup(click.Group):
    """Subcommands are the modules edge0verify/cli/bench_*.py; a new one is a new file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(path.stem.removeprefix("bench_").replace("_", "-") for path in Path(__file__).parent.glob("bench_*.py"))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        return importlib.import_module(f"edge0verify.cli.bench_{name.replace('-', '_')}").command


@click.command("bench", cls=BenchGroup)
def command() -> None:
    """Benchmarks that say what they measured.

    \b
    Example:
      edge0verify bench ab --example
    """
