"""Every command of the README and of docs/ runs, ends as the text says, and prints what the text shows.

A block fenced as `console` holds commands after `$ `, each followed by its output. A line `...` in the output stands for any number
of lines, and ` ... ` inside a line for any text. A comment `# exit N` after a command says how it ends (0 where there is none).
The blocks of one file run in order in one folder, so that a later command can read what an earlier one wrote.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Shown:
    command: str
    exit_code: int
    output: tuple[str, ...]


def shown(text: str) -> list[Shown]:
    """The commands of a document, with the exit code and the output that it promises."""
    found: list[Shown] = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            code = re.search(r"\s+# exit (\d+)\s*$", command)
            found.append(
                Shown(
                    command[: code.start()] if code else command,
                    int(code.group(1)) if code else 0,
                    tuple(output.rstrip("\n").split("\n")) if output.strip() else (),
                )
            )
    return found


def fits(line: str, pattern: str) -> bool:
    """Whether a printed line is the one shown; ` ... ` in the pattern stands for any text."""
    parts = [re.escape(" ".join(p.split())) for p in pattern.split("...")]
    return re.fullmatch(r"\s*" + ".*".join(parts) + r"\s*", " ".join(line.split())) is not None


def mismatch(printed: list[str], expected: tuple[str, ...]) -> str | None:
    """None where the output is the one shown, else the first line of the document that did not come."""
    at, free = 0, False
    for pattern in expected:
        if pattern.strip() == "...":
            free = True
            continue
        if free:
            while at < len(printed) and not fits(printed[at], pattern):
                at += 1
        if at >= len(printed) or not fits(printed[at], pattern):
            return f"expected {pattern!r}, found {printed[at] if at < len(printed) else 'the end'!r}"
        at, free = at + 1, False
    rest = [line for line in printed[at:] if line.strip()]
    return None if free or not rest else f"expected the end, found {rest[0]!r}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_command_runs_and_prints_what_is_shown(path: Path, tmp_path: Path) -> None:
    commands = shown(path.read_text())
    # `make test` hands its own flags down, and a make below it would then print the folder it enters.
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment = {**outer, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "132"}
    for item in commands:
        words = shlex.split(item.command)
        where = ROOT if words[0] == "make" else tmp_path
        done = subprocess.run(
            item.command,
            shell=True,
            executable="/bin/bash",
            cwd=where,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == item.exit_code, (
            f"{item.command}: exit {done.returncode}, shown {item.exit_code}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
        if item.output:
            printed = (done.stdout + (done.stderr if done.returncode else "")).rstrip("\n").split("\n")
            wrong = mismatch(printed, item.output)
            assert wrong is None, f"{item.command}: {wrong}"


def test_the_readme_shows_commands() -> None:
    assert len(shown((ROOT / "README.md").read_text())) >= 5


def test_commands_are_only_shown_in_blocks_that_run() -> None:
    """A command in a block of another kind would never be run; only the one apt line stands outside."""
    for path in FILES:
        for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
            if kind != "console":
                stray = [line for line in block.split("\n") if re.match(r"\s*(\$ |edge0verify |make )", line)]
                assert not stray, f"{path.name}: {stray[0]!r} stands in a block that no test runs"


def test_the_apt_line_is_the_one_that_make_prints() -> None:
    line = "apt-get install -y git make g++ python3-venv python3-dev"
    assert line in (ROOT / "README.md").read_text()
    assert line in (ROOT / "Makefile").read_text()


class TestTheReaderOfDocuments:
    """The test above must be able to fail."""

    def test_other_output_is_seen(self) -> None:
        assert mismatch(["verdict  FAIL"], ("verdict  PASS",))

    def test_missing_and_further_lines_are_seen(self) -> None:
        assert mismatch(["a"], ("a", "b"))
        assert mismatch(["a", "b"], ("a",))

    def test_dots_stand_for_lines_and_text(self) -> None:
        assert mismatch(["a", "x", "y", "b 3 c"], ("a", "...", "b ... c")) is None
        assert mismatch(["a", "x", "y"], ("a", "...", "b")) is not None

    def test_a_promised_exit_code_is_read(self) -> None:
        assert shown("```console\n$ false # exit 1\n```\n") == [Shown("false", 1, ())]
