"""Tensors and metadata of a GGUF file, through the `gguf` package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader

from edge0verify.model.layout import read_layout
from edge0verify.model.plan import BLOCK
from edge0verify.model.tensor import Tensor
from edge0verify.records.errors import InputError

ARCHITECTURE = "edge0"


def read_gguf(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Metadata and tensors of one file; the tensors are read-only views of the mapped file.

    A tensor whose type this project does not decode is an InputError here, as is a file of another architecture; whether the
    tensors are those of a model is checked by `load_model`.
    """
    entries = read_layout(path)
    try:
        reader = GGUFReader(path)
        metadata = {key: field.contents() for key, field in reader.fields.items()}
    except (ValueError, KeyError, IndexError, OSError, UnicodeDecodeError) as e:
        raise InputError(f"{path}: expected a GGUF file that gguf can read, found: {' '.join(str(e).split())}") from None
    found = metadata.get("general.architecture")
    if found != ARCHITECTURE:
        raise InputError(f"{path}: metadata key general.architecture: expected {ARCHITECTURE!r}, "
                         + ("it is missing" if found is None else f"found {found!r}"))
    data = {t.name: t.data for t in reader.tensors}
    return metadata, {e.name: Tensor(e.name, _format(e.type, e.name, path), e.shape, _raw(data[e.name], e)) for e in entries}


def _format(kind: GGMLQuantizationType, name: str, path: str | Path) -> str:
    if kind.name not in BLOCK:
        raise InputError(f"{path}: tensor {name}: expected a type among {', '.join(BLOCK)}, found {kind.name}")
    return kind.name


def _raw(data: np.ndarray, entry: Any) -> np.ndarray:
    flat = np.asarray(data).view(np.ndarray)
    if entry.type is GGMLQuantizationType.F32:
        return flat.reshape(entry.shape)
    if entry.type is GGMLQuantizationType.BF16:
        return flat.view(np.uint16).reshape(entry.shape)
    return flat.reshape(*entry.shape[:-1], -1)
