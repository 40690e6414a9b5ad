#!/usr/bin/env python3
"""Run every command of the README and docs/ and write what it prints back into its `console` block.

  tools/refresh_docs.py [FILE ...]

Outputs that hold a wildcard (`...`) are left as they are: they were shortened by hand. Run it from the virtual environment, then
read the diff: a change in a number is a change in the product.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = re.compile(r"^\$ (.*)$")


def run(command: str, where: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = ROOT if command.startswith("make") else where
    done = subprocess.run(
        command.split(" # exit ")[0],
        shell=True,
        executable="/bin/bash",
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "132"},
        capture_output=True,
        text=True,
    )
    return "\n".join(line.rstrip() for line in (done.stdout + (done.stderr if done.returncode else "")).rstrip("\n").split("\n"))


def refresh(text: str, where: Path) -> str:
    def block(match: re.Match) -> str:
        parts = re.split(r"^(?=\$ )", match.group(1), flags=re.MULTILINE)
        fresh = []
        for part in parts:
            if not part.startswith("$ "):
                fresh.append(part)
                continue
            first, _, output = part.partition("\n")
            printed = run(first[2:], where)
            keep = "..." in output or (not output.strip() and "--quiet" in first)
            fresh.append(first + "\n" + (output if keep else printed + "\n" if printed else ""))
        return "```console\n" + "".join(fresh) + "```"

    return re.sub(r"^```console\n(.*?)^```", block, text, flags=re.MULTILINE | re.DOTALL)


def main() -> None:
    files = [Path(f) for f in sys.argv[1:]] or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            file.write_text(refresh(file.read_text(), Path(folder)))
        print(file)


if __name__ == "__main__":
    main()
