"""Where the kernel sources are: the folder that ships in the package, or the one beside it in a working tree."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def kernel_folder() -> Path:
    """The folder that holds port/ and portable/."""
    for folder in (PACKAGE / "kernels", PACKAGE.parent / "kernels"):
        if (folder / "portable" / "all.h").is_file():
            return folder
    raise FileNotFoundError(f"no kernel sources beside {PACKAGE}")
