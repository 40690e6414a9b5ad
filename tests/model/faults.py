"""Copies of the embedded model file with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter

Change = Callable[[str, np.ndarray, GGMLQuantizationType], list[tuple[str, np.ndarray, GGMLQuantizationType]]]


def rewrite(source: Path, target: Path, *, arch: str = "edge0", drop_key: str | None = None,
            set_key: tuple[str, object] | None = None, tensor: Change | None = None) -> Path:
    """Write `source` again as `target`, leaving out or replacing a metadata key, and passing every tensor through `tensor`."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, arch)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", drop_key):
            continue
        value = set_key[1] if set_key and set_key[0] == key else field.contents()
        kind = field.types[0]
        if set_key and set_key[0] == key and isinstance(value, str):
            kind = GGUFValueType.STRING
        writer.add_key_value(key, value, kind)
    for t in reader.tensors:
        entries = [(t.name, np.array(t.data), t.tensor_type)]
        for name, data, kind in tensor(*entries[0]) if tensor else entries:
            writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
