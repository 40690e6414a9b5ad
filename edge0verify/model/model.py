"""A loaded model: configuration and checked tensors."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from edge0verify.model.checkpoint import checkpoint_files, read_checkpoint
from edge0verify.model.config import Config, config_from_gguf, config_from_json
from edge0verify.model.gguf import read_gguf
from edge0verify.model.plan import Planned, layer_prefix, projection_plan, tensor_plan
from edge0verify.model.prompts import DATA
from edge0verify.model.tensor import Tensor
from edge0verify.records.errors import InputError

DEFAULT_MODEL = DATA / "edge0-mini-q3_k.gguf"
DEFAULT_Q4_PROJECTION = DATA / "edge0-mini-projection-q4_0.gguf"


@dataclass(frozen=True, eq=False)
class Model:
    """A model whose every tensor has the planned shape and a format that its role allows."""

    path: Path
    config: Config
    tensors: Mapping[str, Tensor]
    files: tuple[Path, ...]
    projection: Path | None = None

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name; InputError where the model has none."""
        try:
            return self.tensors[name]
        except KeyError:
            raise InputError(f"{self.path}: tensor {name}: expected by the caller, the model has none of that name") from None

    def layer(self, layer: int | str, part: str) -> Tensor:
        """A layer's tensor by its part, e.g. `layer(0, 'attn_q')` or `layer('mtp', 'ffn_down_exps')`."""
        return self.tensor(f"{layer_prefix(layer)}{part}.weight")

    @cached_property
    def quantised(self) -> bool:
        """Whether every weight that a variant multiplies by is quantised; if not, only the float mode can run it."""
        used = (p for p in tensor_plan(self.config) if p.role in ("projection", "attention", "expert"))
        return all(self.tensors[p.name].quantised for p in used)

    @cached_property
    def sha256(self) -> str:
        """Identity of the weights: a single file's sha256, or for several the sha256 of their digests, one a line."""
        digests = [file_sha256(path) for path in self.files]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(d + "\n" for d in digests).encode()).hexdigest()

    def describe(self) -> str:
        """One line: name, layers, sizes and how the weights are stored."""
        c = self.config
        counts = Counter(t.fmt for t in self.tensors.values())
        formats = ", ".join(f"{n} {fmt}" for fmt, n in sorted(counts.items()))
        drafter = " + drafter" if c.mtp_layers else ""
        over = f", projections from {self.projection.name}" if self.projection else ""
        return (f"{c.name}: {c.layers} layers{drafter}, hidden {c.hidden}, latent {c.latent}, "
                f"{c.k} of {c.experts} experts x {c.ff}; tensors: {formats}{over}")


def load_model(path: str | Path | None = None, projection: str | Path | None = None) -> Model:
    """Load a model: a GGUF file, or a folder with safetensors and config.json; by default the one in the package.

    `projection`: a GGUF file with latent_down and latent_up that replace the model's own; 'q4_0' names the one in the package.
    Every fault of a file is an InputError.
    """
    if projection is not None and str(projection) == "q4_0" and not Path(projection).exists():
        projection = DEFAULT_Q4_PROJECTION
    path = DEFAULT_MODEL if path is None else Path(path)
    if path.is_dir():
        fields, tensors, origin = read_checkpoint(path)
        config = config_from_json(fields, str(path / "config.json"))
        files = checkpoint_files(path)
    else:
        metadata, tensors = read_gguf(path)
        config, origin, files = config_from_gguf(metadata, str(path)), {}, (path,)
    checked = _checked(tensor_plan(config), tensors, str(path), origin)
    model = Model(path, config, checked, files)
    return model if projection is None else _overlay(model, Path(projection))


def _overlay(model: Model, projection: Path) -> Model:
    _, tensors = read_gguf(projection)
    checked = _checked(projection_plan(model.config), tensors, str(projection), {})
    return replace(model, tensors={**model.tensors, **checked}, files=(*model.files, projection), projection=projection)


def _checked(plan: Iterable[Planned], tensors: Mapping[str, Tensor], where: str, origin: Mapping[str, str]) -> dict[str, Tensor]:
    planned = {p.name: p for p in plan}
    for name, p in planned.items():
        if name not in tensors:
            raise InputError(f"{where}: tensor {name}: expected {list(p.shape)}, it is missing")
        t, file = tensors[name], origin.get(name, where)
        if t.shape != p.shape:
            raise InputError(f"{file}: tensor {name}: expected shape {list(p.shape)}, found {list(t.shape)}")
        if t.fmt not in p.formats:
            raise InputError(f"{file}: tensor {name}: expected {' or '.join(p.formats)} for the {p.role}, found {t.fmt}")
    # A tensor nobody reads would make a file look as if it were used in full: a misnamed layer, a bias that the engine ignores.
    for name in tensors:
        if name not in planned:
            raise InputError(f"{origin.get(name, where)}: tensor {name}: expected no such tensor in this architecture, found it")
    return {name: tensors[name] for name in planned}


def file_sha256(path: str | Path) -> str:
    """sha256 of a file's bytes as hex, computed once while its size and time of change stay the same."""
    try:
        stat = Path(path).stat()
    except OSError as e:
        raise InputError(f"{path}: expected a readable file, found: {e.strerror or e}") from None
    return _hash(str(Path(path).resolve()), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=64)
def _hash(path: str, size: int, mtime_ns: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
