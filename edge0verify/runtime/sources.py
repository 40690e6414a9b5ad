"""Where the kernel sources are, and which: the folder that ships in the package, or the one beside it in a working tree."""

from __future__ import annotations

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def kernel_folder() -> Path:
    """The folder that holds port/ and portable/."""
    for folder in (PACKAGE / "kernels", PACKAGE.parent / "kernels"):
        if (folder / "portable" / "all.h").is_file():
            return folder
    raise FileNotFoundError(f"no kernel sources beside {PACKAGE}")


def source_hash() -> str:
    """sha256 over the names and bytes of every source a GPU build reads."""
    folder = kernel_folder()
    digest = hashlib.sha256()
    for part in ("port", "portable", "cuda", "hip"):
        for path in sorted((folder / part).glob("*.*")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
