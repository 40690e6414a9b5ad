"""nightly.toml: what to run, and the cells it comes to. A key that is not understood is refused: a misspelt one tests nothing."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge0verify.golden.store import Store
from edge0verify.records.errors import InputError
from edge0verify.study.pair import canonical
from edge0verify.study.replay import PARTS

SCHEMA = "edge0verify.nightly-config/1"
EMBEDDED, Q4_0 = "embedded", "embedded-q4_0"
TOP = ("schema", "out", "store", "threads", "timeout_s", "keep", "base", "goldens", "pairs", "stable")
TABLES = {
    "keep": ("days", "bytes"),
    "base": ("commit", "command", "timeout_s"),
    "goldens": ("names", "devices"),
    "pairs": ("models", "prompts", "stages", "variants", "devices", "layers", "policy"),
    "stable": ("prompts", "stages", "variants", "models"),
}


@dataclass(frozen=True, kw_only=True)
class Keep:
    """How much is kept of failing cells' dumps and of the reports of past nights."""

    days: float = 30.0
    bytes: int = 2_000_000_000


@dataclass(frozen=True, kw_only=True)
class Base:
    """Where the change began. commit: a revision; command: runs one cell there, with {commit}, {cell} and {out} in its words."""

    commit: str
    command: tuple[str, ...] = ()
    timeout_s: float = 1800.0


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One thing to judge. `spec` is all that its process is told."""

    name: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Config:
    """A nightly as it was asked for. Paths are absolute."""

    path: Path
    out: Path
    store: Path
    threads: int
    timeout_s: float
    keep: Keep
    base: Base | None
    cells: tuple[Cell, ...]
    text: str

    @property
    def sha256(self) -> str:
        """Identity of the plan: the cells and what they are told."""
        plan = json.dumps([[c.name, dict(c.spec)] for c in self.cells], sort_keys=True)
        return hashlib.sha256(plan.encode()).hexdigest()


def load(path: Path) -> Config:
    """Read a configuration and lay out its cells. InputError naming file and key for whatever is not understood."""
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as wrong:
        raise InputError(f"{path}: expected a configuration, found: {wrong.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise InputError(f"{path}: expected TOML, found: {wrong}") from None
    read = _Reader(path)
    read.known(data, TOP, "")
    if data.get("schema", SCHEMA) != SCHEMA:
        raise InputError(f"{path}: schema: expected {SCHEMA}, found {data['schema']!r}")
    store = read.folder(data.get("store", "golden"), "store")
    cells = [
        *(c for i, table in enumerate(read.tables(data, "goldens"), 1) for c in _goldens(read, table, f"goldens[{i}]", store)),
        *(c for i, table in enumerate(read.tables(data, "pairs"), 1) for c in _pairs(read, table, f"pairs[{i}]")),
        *(c for i, table in enumerate(read.tables(data, "stable"), 1) for c in _stable(read, table, f"stable[{i}]")),
    ]
    names = [c.name for c in cells]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice:
        raise InputError(f"{path}: expected every cell once, found {twice} twice")
    keep, base = read.table(data, "keep"), read.table(data, "base")
    return Config(
        path=path.resolve(),
        out=read.folder(data.get("out", "nightly"), "out"),
        store=store,
        threads=int(read.number(data.get("threads", 2), "threads", 1)),
        timeout_s=read.number(data.get("timeout_s", 600), "timeout_s", 0.001),
        keep=Keep(
            days=read.number(keep.get("days", Keep.days), "keep.days", 0), bytes=int(read.size(keep.get("bytes", Keep.bytes)))
        ),
        base=_base(read, base) if base else None,
        cells=tuple(cells),
        text=text,
    )


def _base(read: _Reader, data: Mapping[str, Any]) -> Base:
    commit = read.words(data.get("commit"), "base.commit", one=True)[0]
    command = tuple(read.words(data["command"], "base.command")) if "command" in data else ()
    if command and not all(any(place in word for word in command) for place in ("{cell}", "{out}")):
        raise InputError(f"{read.path}: base.command: expected {{cell}} and {{out}} in its words, found {' '.join(command)}")
    return Base(
        commit=commit, command=command, timeout_s=read.number(data.get("timeout_s", Base.timeout_s), "base.timeout_s", 0.001)
    )


def _goldens(read: _Reader, table: Mapping[str, Any], where: str, store: Path) -> list[Cell]:
    """A cell per golden and device. A pattern that matches no golden stays as a cell of its own, which then proves nothing."""
    known = Store(store).names()
    cells = []
    for pattern in read.words(table.get("names", ["*"]), f"{where}.names"):
        for name in fnmatch.filter(known, pattern) or [pattern]:
            for device in read.words(table.get("devices", ["cpu"]), f"{where}.devices"):
                cells.append(
                    Cell(
                        name=f"golden/{name}/{device}",
                        spec={"kind": "golden", "golden": name, "store": str(store), "device": device},
                    )
                )
    return list({c.name: c for c in cells}.values())


def _pairs(read: _Reader, table: Mapping[str, Any], where: str) -> list[Cell]:
    cells = []
    policy, layers = table.get("policy"), table.get("layers")
    if layers is not None and not (isinstance(layers, list) and layers and all(type(n) is int and n >= 0 for n in layers)):
        raise InputError(f"{read.path}: {where}.layers: expected layer numbers such as [0, 1], found {layers!r}")
    for model in read.words(table.get("models", [EMBEDDED]), f"{where}.models"):
        for prompt in read.words(table.get("prompts", ["prose"]), f"{where}.prompts"):
            for stage in _stages(read, table, where):
                for pair in read.words(table.get("variants"), f"{where}.variants"):
                    a, b = _sides(read, pair, stage, where)
                    for device in read.words(table.get("devices", ["cpu"]), f"{where}.devices"):
                        spec = {
                            "kind": "pair",
                            "model": read.model(model),
                            "prompt": prompt,
                            "stage": stage,
                            "a": a,
                            "b": b,
                            "device": device,
                            "layers": layers,
                            "policy": None if policy is None else str(read.folder(policy, f"{where}.policy")),
                        }
                        cells.append(Cell(name=f"pair/{_short(model)}/{prompt}/{stage}/{a}:{b}/{device}", spec=spec))
    return cells


def _stable(read: _Reader, table: Mapping[str, Any], where: str) -> list[Cell]:
    """Drift from run to run: the same run in fresh processes must give the same bits."""
    return [
        Cell(
            name=f"stable/{_short(model)}/{prompt}/{stage}/{variant}",
            spec={
                "kind": "stable",
                "model": read.model(model),
                "prompt": prompt,
                "stage": stage,
                "variant": canonical(stage, variant),
            },
        )
        for model in read.words(table.get("models", [EMBEDDED]), f"{where}.models")
        for prompt in read.words(table.get("prompts", ["prose"]), f"{where}.prompts")
        for stage in _stages(read, table, where)
        for variant in read.words(table.get("variants"), f"{where}.variants")
    ]


def _stages(read: _Reader, table: Mapping[str, Any], where: str) -> list[str]:
    stages = read.words(table.get("stages", list(PARTS)), f"{where}.stages")
    wrong = next((s for s in stages if s not in PARTS), None)
    if wrong:
        raise InputError(f"{read.path}: {where}.stages: expected {', '.join(PARTS)}, found {wrong}")
    return stages


def _sides(read: _Reader, pair: str, stage: str, where: str) -> tuple[str, str]:
    a, colon, b = pair.partition(":")
    if not colon:
        raise InputError(f"{read.path}: {where}.variants: expected pairs such as mmvq:w11, found {pair!r}")
    return canonical(stage, a), canonical(stage, b)


def _short(model: str) -> str:
    return model if model in (EMBEDDED, Q4_0) else Path(model).name


class _Reader:
    """Values of a configuration, checked; errors name the file and the key."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def known(self, data: Mapping[str, Any], names: Sequence[str], where: str) -> None:
        for key in data:
            if key not in names:
                raise InputError(f"{self.path}: {where}{key}: expected one of {', '.join(names)}, found this key")

    def table(self, data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        found = data.get(name, {})
        if not isinstance(found, dict):
            raise InputError(f"{self.path}: {name}: expected a table, found {found!r}")
        self.known(found, TABLES[name], f"{name}.")
        return found

    def tables(self, data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
        found = data.get(name, [])
        if not isinstance(found, list) or not all(isinstance(t, dict) for t in found):
            raise InputError(f"{self.path}: {name}: expected [[{name}]] tables, found {found!r}")
        for i, entry in enumerate(found, 1):
            self.known(entry, TABLES[name], f"{name}[{i}].")
        return found

    def words(self, value: Any, key: str, *, one: bool = False) -> list[str]:
        found = [value] if isinstance(value, str) else value
        if (
            not isinstance(found, list)
            or not found
            or not all(isinstance(w, str) and w for w in found)
            or (one and len(found) != 1)
        ):
            raise InputError(f"{self.path}: {key}: expected {'a word' if one else 'words'}, found {value!r}")
        return found

    def number(self, value: Any, key: str, least: float) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < float("inf"):
            raise InputError(f"{self.path}: {key}: expected a number of at least {least:g}, found {value!r}")
        return value

    def size(self, value: Any) -> float:
        """Bytes, as a number or as '500 MB'."""
        if isinstance(value, str):
            number, _, unit = value.partition(" ")
            units: dict[str, Callable[[float], float]] = {"kB": lambda x: x * 1e3, "MB": lambda x: x * 1e6, "GB": lambda x: x * 1e9}
            if unit in units and number.replace(".", "", 1).isdigit():
                return units[unit](float(number))
            raise InputError(f"{self.path}: keep.bytes: expected bytes or such as '500 MB', found {value!r}")
        return self.number(value, "keep.bytes", 0)

    def folder(self, value: Any, key: str) -> Path:
        if not isinstance(value, str) or not value:
            raise InputError(f"{self.path}: {key}: expected a path, found {value!r}")
        return (self.path.parent / value).resolve()

    def model(self, name: str) -> dict[str, str | None]:
        """Path and projection, None being the embedded ones' own."""
        if name == EMBEDDED:
            return {"path": None, "projection": None}
        if name == Q4_0:
            return {"path": None, "projection": "q4_0"}
        return {"path": str(self.folder(name, "models")), "projection": None}
