"""Where the kernel sources and the compiled parts of this folder are: in the package, or where a working tree keeps them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def kernel_folder() -> Path:
    """The folder that holds port/ and portable/."""
    for folder in (PACKAGE / "kernels", PACKAGE.parent / "kernels"):
        if (folder / "portable" / "all.h").is_file():
            return folder
    raise FileNotFoundError(f"no kernel sources beside {PACKAGE}")


def native_file(name: str) -> Path | None:
    """A compiled part of this folder ('_phase'): in the tree, or where an editable install put it; None where it was not built."""
    found = importlib.util.find_spec(f"edge0verify.runtime.{name}")
    return Path(found.origin) if found is not None and found.origin else None
