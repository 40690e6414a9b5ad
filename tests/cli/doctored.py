"""Dumps made by the command line, and changes to them that keep every hash right: faults that only a comparison can find."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import h5py
import numpy as np

from edge0verify.cli.main import run


def dump(path: Path, *more: str, prompt: str = "prose", tokens: int = 24) -> Path:
    """A dump written by `edge0verify run`."""
    assert run(["run", "--prompt", prompt, "--tokens", str(tokens), "--threads", "2", "-o", str(path), *more]) == 0
    return path


def change(source: Path, target: Path, edit) -> Path:
    """A copy of `source` with `edit(h5py.File)` done to it and the hash of every array set anew."""
    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file:
        edit(file)

        def rehash(_, item):
            if isinstance(item, h5py.Dataset):
                item.attrs["sha256"] = np.bytes_(hashlib.sha256(np.ascontiguousarray(item[...])).hexdigest())

        file.visititems(rehash)
    return target


def manifest(file: h5py.File, edit) -> None:
    """Change the manifest: edit(dict) in place."""
    data = json.loads(file.attrs["manifest"])
    edit(data)
    file.attrs["manifest"] = np.bytes_(json.dumps(data))


def swap(file: h5py.File, x: str, y: str) -> None:
    """Put two groups or arrays in each other's place."""
    file.move(x, "spare")
    file.move(y, x)
    file.move("spare", y)


def empty(file: h5py.File, path: str) -> None:
    """Replace an array by one without rows."""
    old = file[path]
    shape, dtype = (0, *old.shape[1:]), old.dtype
    del file[path]
    file.create_dataset(path, shape, dtype)


def fewer_rows(file: h5py.File, tokens: int, *, last: bool = False) -> None:
    """Keep the first (or last) `tokens` of every array, pairs and the drafter's rows with them; the manifest says what it said."""
    slots = file["layers/000/route-ids"].shape[1]
    arrays = {"rows": tokens}
    for layer, group in file["layers"].items():
        kept = tokens - 1 if layer == "mtp" else tokens
        for tensor in group:
            n = kept * (slots if tensor in ("a-h", "pairs") else 1)
            parts = [f"/{part}" for part in group[tensor]] if isinstance(group[tensor], h5py.Group) else [""]
            arrays |= {f"layers/{layer}/{tensor}{part}": n for part in parts}
    for path, n in arrays.items():
        x = file[path][...]
        del file[path]
        file[path] = x[-n:] if last else x[:n]


def verdict(capsys, *words: str | Path) -> tuple[int, dict]:
    """(exit code, verdict as JSON) of `edge0verify compare ...`."""
    capsys.readouterr()
    code = run(["compare", *map(str, words), "--threads", "2", "--json", "-"])
    return code, json.loads(capsys.readouterr().out)


def reasons(found: dict) -> str:
    """The reasons of a verdict, one a line."""
    return "\n".join(found["reasons"])
