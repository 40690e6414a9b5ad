"""Compiled device code kept between processes: the CUDA kernels take ten seconds to compile, and a probe is many processes.

A file is named by everything that its content depends on (compiler, architecture, options, source, every kernel header) and starts
with the hash of its content, so one that is stale or damaged is never used.  EDGE0VERIFY_CACHE names the folder; 'off' keeps none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from edge0verify.runtime.sources import kernel_folder

VARIABLE = "EDGE0VERIFY_CACHE"
FOLDERS = ("port", "portable", "cuda", "probe", "hip")
"""Of the kernel sources: what device code can include."""


def cache_folder() -> Path | None:
    """Where images are kept, or None."""
    named = os.environ.get(VARIABLE)
    if named == "off":
        return None
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "edge0verify"


def cached(compile_image: Callable[[], bytes], *facts: str) -> bytes:
    """The image of these facts (compiler and version, architecture, options, source): kept, or compiled and kept."""
    folder = cache_folder()
    if folder is None:
        return compile_image()
    path = folder / f"{_key(facts)}.image"
    kept = _read(path)
    if kept is not None:
        return kept
    image = compile_image()
    _write(path, image)
    return image


def _key(facts: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for fact in facts:
        digest.update(f"{len(fact)}:{fact}".encode())
    root = kernel_folder()
    for name in FOLDERS:
        for file in sorted((root / name).glob("*")):
            if file.is_file():
                digest.update(f"{name}/{file.name}:{file.stat().st_size}:".encode() + file.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    image = data[32:]
    return image if image and hashlib.sha256(image).digest() == data[:32] else None


def _write(path: Path, image: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(hashlib.sha256(image).digest() + image)
        os.replace(partial, path)
    except OSError:  # a folder that cannot be written costs time, nothing else
        with contextlib.suppress(OSError):
            partial.unlink()
