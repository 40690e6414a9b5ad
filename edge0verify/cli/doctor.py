"""`edge0verify doctor`: what is here."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click


@click.command("doctor")
@click.option("--tuning", type=click.Path(path_type=Path), metavar="FILE|DIR", help="Check hipBLASLt tuning tables instead.")
@click.option("--engine", type=click.Path(path_type=Path), metavar="DIR", help="Check an engine's build and tables.")
@click.option("--arch", metavar="NAME", help="The card's architecture, as gfx1100.  [default: the first device's]")
@click.option("--hipblaslt", metavar="VERSION", help="The library's version, as 100202 or 1.2.2.")
@click.option("--product", "products", multiple=True, metavar="'dtype N K ld T'", help="Look a product up; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(tuning, engine, arch, hipblaslt, products, as_json) -> int:
    """What is built, which devices, compilers and tools are found, and what each absence means.

    Exit code 1 where something is missing without which nothing works, else 0: an absent device is no fault.

    With --tuning or --engine only those are looked at; exit code 1 where no table fits the card, or a build has no code for it.

    \b
    Examples:
      edge0verify doctor
      edge0verify doctor --tuning tables/ --arch gfx1100 --hipblaslt 1.2.2 --product "bf16 48 2560 96 5000"
    """
    from edge0verify.records.errors import InputError
    from edge0verify.report.findings import findings_text
    from edge0verify.study.doctor import findings

    if tuning is None and engine is None and (arch or hipblaslt or products):
        raise InputError("--arch, --hipblaslt and --product: expected with --tuning or --engine, found neither")
    if tuning is not None or engine is not None:
        found = _engine_findings(tuning, engine, arch, hipblaslt, products)
    else:
        found = list(findings())
    click.echo(json.dumps([asdict(f) for f in found], indent=1) if as_json else findings_text(found))
    return 1 if any(f.required and not f.found for f in found) else 0


def _engine_findings(tuning, engine, arch, hipblaslt, products) -> list:
    from edge0verify.records.errors import InputError
    from edge0verify.runtime.survey import survey
    from edge0verify.runtime.tuning import read_product, read_version
    from edge0verify.study.engine_check import build_findings, find_tables, tuning_findings

    if arch is None:
        devices = next((s.devices for s in (survey("hip"), survey("cuda")) if s.devices), ())
        arch = devices[0].arch if devices else None
    version = None if hipblaslt is None else read_version(hipblaslt)
    tables = find_tables(tuning) if tuning is not None else []
    if tuning is not None and not tables:
        raise InputError(f"{tuning}: expected a tuning table, found none")
    if engine is not None and engine.is_dir():
        tables += find_tables(engine)
    found = list(tuning_findings(tables, arch, version, [read_product(text) for text in products]))
    return found + (list(build_findings(engine, arch)) if engine is not None else [])
