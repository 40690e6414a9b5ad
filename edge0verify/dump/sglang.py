"""Directories as SGLang's dumper lays them out: one file per tensor, named `key=value___key=value...`.

Tags read here: name, layer_id, rank, step (earlier: forward_pass_id) and dump_index; others are left alone. The dumper itself
writes .pt files, which are pickles; what can be read are directories whose tensors were saved as .npy or .safetensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge0verify.dump.arrays import PICKLES, SUFFIXES
from edge0verify.records.errors import InputError


@dataclass(frozen=True)
class PlannedFile:
    """One file and the place of its rows in a dump."""

    path: Path
    layer: int | str
    tensor: str
    order: tuple[int, int]
    """(step, dump_index): rows of one tensor are put together in this order."""


@dataclass(frozen=True)
class Plan:
    files: tuple[PlannedFile, ...]
    skipped: tuple[tuple[Path, str], ...]
    """Files that were left out, each with the reason."""


def tags(path: Path) -> dict[str, str] | None:
    """Tags in a file's name, or None for a name of another kind."""
    parts = path.name[: -len(path.suffix)].split("___") if path.suffix else []
    pairs = [part.partition("=") for part in parts]
    if not pairs or any(not key or not equals for key, equals, _ in pairs):
        return None
    return {key: value for key, _, value in pairs}


def plan(folder: str | Path, *, names: Mapping[str, str] | None = None, rank: int | None = None) -> Plan:
    """Where each file of a directory belongs.

    names: the engine's name for a tensor -> the schema's; a name not listed is kept. rank: which rank's files to take. InputError
    for a directory that holds no such file, only pickles, or several ranks when none is chosen.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a directory, found none")
    files = sorted(path for path in folder.iterdir() if path.is_file() and tags(path) is not None)
    pickles = [path for path in files if path.suffix in PICKLES]
    plain = [path for path in files if path.suffix in SUFFIXES]
    if not plain:
        if pickles:
            raise InputError(f"{folder}: {pickles[0].name}: a pickle is not read; expected tensors saved as .npy or .safetensors")
        raise InputError(f"{folder}: expected files named key=value___key=value, found none")
    ranks = sorted({_number(path, "rank", 0) for path in plain})
    if rank is None and len(ranks) > 1:
        raise InputError(f"{folder}: expected the files of one rank, found ranks {', '.join(map(str, ranks))}; name one")
    planned, skipped = [], [(path, "a pickle is not read") for path in pickles]
    for path in plain:
        found = tags(path)
        name = found.get("name")
        if rank is not None and _number(path, "rank", 0) != rank:
            skipped.append((path, f"rank {found.get('rank')}"))
        elif name is None:
            skipped.append((path, "no name tag"))
        elif found.get("layer_id", "None") == "None":
            skipped.append((path, "no layer_id tag"))
        else:
            step = _number(path, "step", None)
            step = _number(path, "forward_pass_id", 0) if step is None else step
            order = (step, _number(path, "dump_index", 0))
            layer = "mtp" if found["layer_id"] == "mtp" else _number(path, "layer_id", 0)
            planned.append(PlannedFile(path, layer, (names or {}).get(name, name), order))
    planned.sort(key=lambda f: (isinstance(f.layer, str), f.layer, f.tensor, f.order))
    return Plan(tuple(planned), tuple(skipped))


def _number(path: Path, tag: str, default: int | None) -> int | None:
    value = tags(path).get(tag)
    if value is None:
        return default
    try:
        return int(value)
    except ValueError:
        raise InputError(f"{path}: tag {tag}: expected a whole number, found {value}") from None
