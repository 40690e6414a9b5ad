"""Decoded weights in files, one held against the values that it was made from: which mistake in the layout fits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge0verify.compare.layout import Layout, diagnose
from edge0verify.dump.arrays import read_arrays
from edge0verify.model.layout import read_layout
from edge0verify.numerics import formats
from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import plain

SCHEMA = "edge0verify.layout/1"


@dataclass(frozen=True)
class Weights:
    """A tensor of a file, its leading dimensions joined to rows."""

    source: str
    """'w.gguf:blk.0.ffn_up_exps.weight'."""
    values: np.ndarray
    """float [rows, K]"""
    fmt: str | None = None
    """Storage format, where the file says it."""
    raw: np.ndarray | None = None
    """uint8 [rows, bytes]: the stored bytes, of quantised weights."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of it."""

    status: str
    reasons: tuple[str, ...]
    found: str
    reference: str
    fmt: str | None
    layout: Layout

    @property
    def exit_code(self) -> int:
        return statuses.exit_code(self.status)

    def to_json(self) -> dict[str, Any]:
        return plain({"schema": SCHEMA, "status": self.status, "reasons": list(self.reasons), "found": self.found,
                      "reference": self.reference, "format": self.fmt, **asdict(self.layout)})


def read(text: str) -> Weights:
    """The tensor that FILE or FILE:TENSOR names, of a .npy, .npz, .safetensors or .gguf file.

    InputError for a file that is not whole, a tensor that is not there, a format that is not decoded here.
    """
    path, name = _split(text)
    if path.suffix == ".gguf":
        return _gguf(path, name)
    arrays = read_arrays(path)
    if name is None and len(arrays) != 1:
        raise InputError(f"{path}: expected FILE:TENSOR with one of {', '.join(sorted(arrays)[:8])}, found no tensor named")
    name = next(iter(arrays)) if name is None else name
    if name not in arrays:
        raise InputError(f"{path}: expected a tensor {name}, found {', '.join(sorted(arrays)[:8])}")
    return Weights(f"{path}:{name}" if name else str(path), _rows(arrays[name], text))


def judge(found: Weights, reference: Weights, fmt: str | None = None) -> Answer:
    """`found` against `reference`; fmt is the format that `found` was stored in, unless its file says so."""
    fmt = fmt or found.fmt
    if fmt is not None and fmt not in formats.FORMATS:
        raise InputError(f"--format {fmt}: expected one of {', '.join(formats.FORMATS)}")
    made = diagnose(found.values, reference.values, fmt=fmt, raw=found.raw)
    if made.hypothesis is not None or (made.wrong and made.expected is not None):
        status = FAIL
    elif made.expected is None and made.rel_l2 > 0:
        status = INCONCLUSIVE
    else:
        status = PASS
    reasons = [] if status == PASS else [made.text()]
    if status == INCONCLUSIVE:
        reasons.append("no format is named whose own loss the error could be set beside")
    return Answer(status=status, reasons=tuple(reasons), found=found.source, reference=reference.source, fmt=fmt, layout=made)


def _split(text: str) -> tuple[Path, str | None]:
    """(file, tensor): a file's own name may hold a colon."""
    if Path(text).is_file() or ":" not in text:
        return Path(text), None
    file, name = text.rsplit(":", 1)
    return Path(file), name


def _gguf(path: Path, name: str | None) -> Weights:
    entries = {entry.name: entry for entry in read_layout(path)}
    if name not in entries:
        some = ", ".join(list(entries)[:6])
        raise InputError(f"{path}: expected FILE:TENSOR, a tensor of the file ({some}, ...), found {name or 'none named'}")
    entry = entries[name]
    fmt = entry.type.name
    if fmt not in formats.FORMATS:
        raise InputError(f"{path}: {name}: expected one of {', '.join(formats.FORMATS)}, found {fmt}")
    data = np.fromfile(path, np.uint8, entry.nbytes, offset=entry.offset)
    raw = data.reshape(int(np.prod(entry.shape[:-1])), -1)
    quantised = formats.FORMATS[fmt].values > 1
    return Weights(f"{path}:{name}", formats.decode(fmt, raw), fmt, raw if quantised else None)


def _rows(array: np.ndarray, source: str) -> np.ndarray:
    if array.dtype.kind != "f" or array.ndim < 2 or not array.size:
        raise InputError(f"{source}: expected floats [rows, K], found {array.dtype} of shape {list(array.shape)}")
    return array.reshape(-1, array.shape[-1])
