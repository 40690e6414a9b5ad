"""Arrays from .npy, .npz and safetensors files, without ever unpickling: object arrays and torch files are refused."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import numpy as np

from edge0verify.numerics.rounding import bf16_decode
from edge0verify.records.errors import InputError

SUFFIXES = (".npy", ".npz", ".safetensors")
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt")
_SAFETENSORS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "i1", "U8": "u1", "I32": "<i4", "I64": "<i8"}
_HEADER_LIMIT = 100 << 20


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Arrays of a file by name ('' for a .npy file), mapped where the format allows; bfloat16 is widened to f32.

    InputError for a pickle, an object array, a truncated or malformed file, or another suffix.
    """
    path = Path(path)
    if path.suffix in PICKLES:
        raise InputError(f"{path}: a {path.suffix} file is a pickle and is not read; expected .npy, .npz or .safetensors")
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: expected {', '.join(SUFFIXES)}, found {path.suffix or 'no suffix'}")
    if not path.is_file():
        raise InputError(f"{path}: expected a file, found none")
    try:
        if path.suffix == ".safetensors":
            return _safetensors(path)
        loaded = np.load(path, allow_pickle=False, mmap_mode="r" if path.suffix == ".npy" else None)
        if path.suffix == ".npy":
            return {"": _plain(loaded, str(path))}
        with loaded:
            return {name: _plain(loaded[name], f"{path}: {name}") for name in loaded.files}
    except InputError:
        raise
    except (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile) as wrong:
        if any(word in str(wrong).lower() for word in ("pickle", "python objects")):
            raise InputError(f"{path}: holds objects that need unpickling, which is never done; expected plain arrays") from None
        raise InputError(f"{path}: damaged or truncated: {wrong}") from None


def _plain(x: np.ndarray, source: str) -> np.ndarray:
    if x.dtype.hasobject or x.dtype.kind not in "fiuV" or (x.dtype.kind == "V" and x.dtype.names is None):
        raise InputError(f"{source}: expected numbers, found {x.dtype}")
    return x


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(_HEADER_LIMIT, size - 8):
            raise InputError(f"{path}: expected a safetensors header of 2 to {max(0, size - 8)} bytes, found {length}")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise InputError(f"{path}: expected a safetensors header, found {type(header).__name__}")
    arrays, base = {}, 8 + length
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if not isinstance(entry, dict) or entry.get("dtype") not in _SAFETENSORS:
            found = entry.get("dtype") if isinstance(entry, dict) else entry
            raise InputError(f"{path}: {name}: expected dtype {', '.join(_SAFETENSORS)}, found {found}")
        shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
        dtype = np.dtype(_SAFETENSORS[entry["dtype"]])
        expected = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not 0 <= begin <= end <= size - base or end - begin != expected:
            raise InputError(f"{path}: {name}: expected {expected} bytes, found {begin} to {end} of {size - base}")
        data = np.memmap(path, dtype, "r", base + begin, shape) if expected else np.empty(shape, dtype)
        arrays[name] = bf16_decode(data) if entry["dtype"] == "BF16" else data
    return arrays
