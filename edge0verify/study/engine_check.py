"""An engine's folder against a card: tuning tables, build options, compiled architectures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from edge0verify.records.errors import InputError
from edge0verify.runtime.builds import binaries, build_options, unsafe_options
from edge0verify.runtime.tuning import Geometry, Table, is_table, read_table
from edge0verify.study.doctor import Finding


def tuning_findings(
    tables: Sequence[Table], arch: str | None, version: int | None, products: Sequence[tuple[Geometry, int]] = ()
) -> Iterator[Finding]:
    """Each table: whether an engine on that card would use it; then each product: its solution, or the fallback.

    Tables for other cards may lie beside the one that fits; none that fits is required to be found.
    """
    usable = [table for table in tables if table.refused(arch, version) is None]
    for table in tables:
        refused = table.refused(arch, version)
        about = f"{table}, {table.rows} rows, {len(table.solutions)} geometries"
        detail = f"{about}; refused: {refused}" if refused else about
        if refused is None and (arch is None or version is None):
            unknown = " and ".join(
                w for w, known in (("the card's architecture", arch), ("the library's version", version)) if known is None
            )
            detail += f"; not compared: {unknown} unknown"
        means = "an engine ignores the table: its products run by the library's heuristic"
        yield Finding(group="tuning", name=table.path.name, found=refused is None, detail=detail, means=means, required=not usable)
    for geometry, t in products:
        yield _product(usable, geometry, t)


def _product(usable: Sequence[Table], geometry: Geometry, t: int) -> Finding:
    """The solution of a product; of each table where several may be the one that an engine reads."""
    name = f"{geometry} T={t}"
    matches = [(table, match) for table in usable if (match := table.find(geometry, t)) is not None]
    if not matches:
        detail = "no entry of that geometry" if usable else "no usable table"
        means = "falls back to the library's heuristic: other speed, and other bits are possible"
        return Finding(group="tuning", name=name, found=False, detail=detail, means=means)
    said = {f"{table}": f"solution {m.solution}" + ("" if m.exact else f", nearest T {m.t}") for table, m in matches}
    if len(matches) == len(usable) == 1:
        return Finding(group="tuning", name=name, found=True, detail=next(iter(said.values())), means="")
    each = "; ".join(f"{table}: {solution}" for table, solution in said.items())
    without = [str(table) for table in usable if str(table) not in said]
    each += "".join(f"; {table}: no entry" for table in without)
    return Finding(group="tuning", name=name, found=True, detail=each, means="")


def find_tables(place: Path) -> list[Table]:
    """The table in a file, or those in a folder."""
    if place.is_file():
        return [read_table(place)]
    if not place.is_dir():
        raise InputError(f"{place}: expected a tuning table or a folder, found nothing")
    return [read_table(path) for path in sorted(place.rglob("*.txt"))[:1000] if is_table(path)]


def build_findings(folder: Path, arch: str | None) -> Iterator[Finding]:
    """Compiled architectures of an engine's binaries against the card's, and options that change results."""
    if not folder.exists():
        raise InputError(f"{folder}: expected an engine's folder or binary, found nothing")
    here = list(binaries(folder))
    for binary in here:
        fits = arch is None or arch in binary.archs
        detail = ", ".join(binary.archs) + ("" if arch is not None else "; the card's architecture is unknown (--arch)")
        means = f"no code for {arch}: the driver refuses its kernels, or they are compiled anew at the first run"
        yield Finding(group="build", name=binary.path.name, found=fits, detail=detail, means=means, required=True)
    if not here:
        means = "compiled architectures are not known"
        yield Finding(group="build", name=folder.name, found=False, detail="no code for any card found in it", means=means)
    options = build_options(folder) if folder.is_dir() else {}
    for name, value in options.items():
        yield Finding(group="build", name=name, found=True, detail=value, means="")
    for text in unsafe_options(options):
        means = "the compiler may reorder, fuse or drop operations: results leave their contracts"
        yield Finding(group="build", name="floating point", found=False, detail=text, means=means, required=True)
