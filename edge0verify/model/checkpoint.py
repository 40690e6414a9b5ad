"""Tensors of an unquantised checkpoint: a folder with safetensors files and a config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from edge0verify.model.tensor import Tensor
from edge0verify.records.errors import InputError


def checkpoint_files(folder: str | Path) -> tuple[Path, ...]:
    """The files a checkpoint consists of, config.json first.  InputError where one of the two kinds is missing."""
    folder = Path(folder)
    config, shards = folder / "config.json", sorted(folder.glob("*.safetensors"))
    if not config.is_file():
        raise InputError(f"{config}: expected a checkpoint's configuration, it is missing")
    if not shards:
        raise InputError(f"{folder}: expected at least one *.safetensors file, found none")
    return (config, *shards)


def read_checkpoint(folder: str | Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, str]]:
    """(fields of config.json, tensors, tensor name -> its file).  BF16 and F32 only; InputError otherwise."""
    config, *shards = checkpoint_files(folder)
    try:
        fields = json.loads(config.read_text("utf-8"))
    except (ValueError, OSError) as e:
        raise InputError(f"{config}: expected JSON, found: {' '.join(str(e).split())}") from None
    if not isinstance(fields, dict):
        raise InputError(f"{config}: expected a JSON object, found {type(fields).__name__}")
    tensors: dict[str, Tensor] = {}
    origin: dict[str, str] = {}
    for shard in shards:
        for name, array in _read_shard(shard):
            if name in tensors:
                raise InputError(f"{shard}: tensor {name}: expected once, found in {origin[name]} too")
            tensors[name] = _tensor(name, array, shard)
            origin[name] = str(shard)
    return fields, tensors, origin


def _read_shard(path: Path) -> list[tuple[str, np.ndarray]]:
    try:
        with safe_open(path, framework="numpy") as file:
            return [(name, file.get_tensor(name)) for name in file.keys()]  # noqa: SIM118 - the reader is no mapping
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as e:
        raise InputError(f"{path}: expected a complete safetensors file, found: {' '.join(str(e).split())}") from None


def _tensor(name: str, array: np.ndarray, path: Path) -> Tensor:
    if array.dtype == np.float32:
        raw, fmt = array, "F32"
    elif array.dtype == ml_dtypes.bfloat16:
        raw, fmt = array.view(np.uint16), "BF16"
    else:
        raise InputError(f"{path}: tensor {name}: expected bfloat16 or float32, found {array.dtype}")
    raw = np.ascontiguousarray(raw)
    raw.setflags(write=False)
    return Tensor(name, fmt, array.shape, raw)
