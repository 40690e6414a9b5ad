"""`make` says what a machine lacks before it downloads or builds anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APT = "apt-get install -y git make g++ python3-venv python3-dev"
NEEDED = ("sh", "make", "git", "g++", "python3", "find", "touch", "echo")


def make(tmp_path: Path, *targets: str, without: str = "") -> subprocess.CompletedProcess:
    """Run make with a PATH that holds the needed tools alone, one of them left out."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in NEEDED:
        if name != without:
            found = os.path.realpath(sys.executable) if name == "python3" else shutil.which(name)
            (tools / name).symlink_to(found)
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in ("Makefile", "pyproject.toml", "CMakeLists.txt"):
        shutil.copy(ROOT / name, clone)
    (clone / "kernels").mkdir()
    environment = {"PATH": str(tools), "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        [shutil.which("make"), *targets], cwd=clone, env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("target", ["compare", "test", "install", "lint", "bench"])
@pytest.mark.parametrize("tool", ["g++", "git"])
def test_a_missing_tool_is_named_with_the_line_that_mends_it(tmp_path: Path, target: str, tool: str) -> None:
    done = make(tmp_path, target, without=tool)
    assert done.returncode != 0
    assert f"missing: {tool}" in done.stdout
    assert APT in done.stdout
    assert not (tmp_path / "clone" / ".venv").exists()


def test_a_machine_that_has_all_is_let_through(tmp_path: Path) -> None:
    done = make(tmp_path, "prerequisites")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "missing" not in done.stdout


def test_help_shows_the_line() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert APT in done.stdout
