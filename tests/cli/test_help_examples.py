"""Every command shows an example, and what it shows runs: small inputs by the names of the examples, in a folder of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest

from edge0verify.cli.main import cli, run
from edge0verify.dump.reader import open_dump
from edge0verify.model import DEFAULT_MODEL, load_model
from edge0verify.numerics import formats
from tests.cli.doctored import dump
from tests.study.copies import copy, flip

ROOT = Path(__file__).parents[2]
PARSED = {
    "selftest": "minutes; its reduced form is a test of its own",
    "selftest --quick --json -": "a test of its own",
    "selftest --criteria": "a test of its own",
    "bench kernels": "minutes",
    "isa ": "no device code is built here",
    "bisect --a mmvq --b w11 --attribute": "a test of its own",
    "probe memory": "tests of their own",
    "probe capture --devices sim:1": "tests of their own",
}
"""Beginnings of examples whose words are only parsed, and why."""
EXIT = {
    "bisect --a mmvq --b mmvq --model-b copy.gguf": 1,
    "triage engine.log": 1,
    "gate check": 3,
}
"""Beginnings of examples that end in another exit code than 0 on the inputs here."""


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below one, itself first."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), (*path, name))


def examples(command: click.Command) -> list[str]:
    """The command lines under 'Example:' or 'Examples:' of a help text, without the program's name."""
    found: list[str] = []
    for paragraph in (command.help or "").split("\b\n")[1:]:
        lines = paragraph.strip("\n").split("\n\n")[0].splitlines()
        if not lines[0].strip().startswith("Example"):
            continue
        for line in (text.strip().split("   (")[0] for text in lines[1:]):
            if line.startswith("edge0verify "):
                found.append(line.removeprefix("edge0verify "))
            elif line:
                found[-1] += " " + line
    return found


COMMANDS = list(walk(cli, ()))
SHOWN = list(dict.fromkeys(line for _, command in COMMANDS for line in examples(command)))


def named(line: str, table: dict):
    """The entry of `table` whose key begins the line, the longest one; None where there is none."""
    keys = [key for key in table if line == key or line.startswith(key if key.endswith(" ") else key + " ")]
    return table[max(keys, key=len)] if keys else None


def quicker(words: list[str]) -> list[str]:
    """What makes an example quick without changing what it shows: fewer rows, layers and questions."""
    if words[0] == "compare" and not any(word.endswith(".h5") for word in words):
        if "--questions" in words:
            return ["--questions", "2"]
        return [*([] if "--prompt" in words else ["--prompt", "prose"]), *([] if "--split" in words else ["--layer", "0"])]
    if words[0] == "eval" and "--merge" not in words:
        return ["--questions", "0:1"]
    if words[0] in ("run", "golden") and "--prompt" in words:
        return ["--tokens", "24"]
    if words[0] == "drift":
        few = {"context": ["--contexts", "32", "--steps", "2"], "runs": ["--runs", "2"]}
        return [*([] if "--prompt" in words else ["-f", "short.txt"]), *few.get(words[words.index("--over") + 1], [])]
    if words[0] == "bisect" and "--check" not in words:
        return ["-f", "short.txt"]
    return []


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Path:
    """A folder with everything that the examples read."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "dumps").mkdir()
    shutil.copytree(ROOT / "edge0verify" / "data" / "tuning", folder / "tables")
    (folder / "short.txt").write_text("Three cranes stand at the river.")
    for name, more in (("a", ()), ("b", ("--set", "D=w11")), ("x", ("--set", "D=w11,A=w11,U=w11"))):
        dump(folder / "dumps" / f"{name}.h5", *more)
    os.symlink(DEFAULT_MODEL, folder / "model.gguf")
    copy(folder / "copy.gguf", flip("blk.3.ffn_gate_exps.weight", 5, 17, 0, byte=-2, bit=4))
    with open_dump(folder / "dumps" / "a.h5") as a:
        np.save(folder / "a-yl.npy", a.read(3, "a-yl"))
        np.savez(folder / "run.npz", **{"rows": a.rows(), "layers/000/d-xl": a.read(0, "d-xl")})
    (folder / "d-xlq.bin").write_bytes(bytes(5268 * 8 * 36))
    w = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    np.save(folder / "decoded.npy", formats.decode("Q4_0", formats.encode("Q4_0", w)))
    np.save(folder / "original.npy", w)
    (folder / "engine.log").write_text("[layer 12] timed out waiting for device 1\nan illegal memory access was encountered\n")
    (folder / "dmesg.txt").write_text("[Mon Nov 30 10:00:00 2026] amdgpu 0000:03:00.0: amdgpu: sq_intr: error, se 0, data 0x8\n")
    (folder / "nightly.toml").write_text('[[pairs]]\nprompts = ["list"]\nstages = ["D"]\nvariants = ["mmvq:w11"]\nlayers = [0]\n')
    for words in (
        ["record", "prose-w11", "--prompt", "prose", "--tokens", "24", "--set", "D=w11,A=w11,U=w11"],
        ["accept", "prose-w11", "--reason", "for an example"],
        ["record", "prose-w11"],
    ):
        assert run(["golden", *words, "--store", str(folder / "golden")]) == 0
    (folder / ".gitignore").write_text("v.json\ngate-records/\n")
    return folder


@pytest.fixture
def here(prepared, tmp_path, monkeypatch) -> Path:
    """A copy of it, as the working directory of a git tree, with the command on PATH."""
    folder = tmp_path / "here"
    shutil.copytree(prepared, folder, symlinks=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS], ids=lambda path: " ".join(path) or "edge0verify")
def test_every_command_shows_an_example_of_itself(path):
    lines = examples(dict(COMMANDS)[path])
    assert lines, "no example in --help"
    assert all(line.startswith(" ".join(path)) for line in lines) or path == ("report",)


def test_each_exception_is_of_an_example():
    for table in (PARSED, EXIT):
        assert [key for key in table if not any(named(line, {key: 1}) for line in SHOWN)] == []


def _parse(words: list[str]) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group):
        command, words = command.get_command(click.Context(command), words[0]), words[1:]
    command.make_context("edge0verify", words, obj=())


@pytest.mark.parametrize("line", SHOWN)
def test_it_runs(line, here, capsys):
    words = shlex.split(line)
    if named(line, PARSED):
        return _parse(words)
    needs(line, here)
    capsys.readouterr()
    code = run([*words, *quicker(words)])
    out = capsys.readouterr()
    assert "internal error" not in out.err and code not in (70, 130), out.err
    if "cuda:0" in line:
        assert code == 0 or (code == 3 and "cuda:0" in out.out + out.err)
    elif "--endpoint" in line:
        assert code in (2, 3) and "127.0.0.1:8080" in out.out + out.err
    else:
        assert code == (named(line, EXIT) or 0), out.out[-2000:] + out.err


def needs(line: str, here: Path) -> None:
    """What an earlier example would have left behind."""
    if line.startswith("gate"):
        for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
            subprocess.run(["git", *words], check=True)
        if line.startswith("gate import"):
            os.chdir(ROOT)                                   # the record that it names is one of the project's
    elif line.startswith("golden record"):
        shutil.rmtree("golden")
    elif line.startswith("run"):
        (here / "dumps" / "x.h5").unlink()
    elif line.startswith("layout model.gguf"):
        np.save("original.npy", load_model().tensor("blk.0.ffn_down_exps.weight").values())
    elif line.startswith("eval --merge"):
        for part, span in (("part1", "0:1"), ("part2", "1:2")):
            assert run(["eval", "--questions", span, "--json", f"{part}.json"]) == 0
    elif line.startswith("report"):
        assert run(["compare", "--stage", "D", "--a", "mmq", "--b", "w11", "--prompt", "prose", "--layer", "0", "--grids",
                    "--json", "verdict.json"]) == 0
        if "history.db" in line:
            assert run(["nightly", "nightly.toml"]) == 0
    elif line.startswith("kernel") and "--library" in line:
        build(here)


def build(folder: Path) -> None:
    """k.so from the example that the command prints, under the name that the help uses."""
    if shutil.which("gcc") is None:
        pytest.skip("not run: no gcc here to build a user's kernel with")
    for what, name in (("header", "edge0_kernel.h"), ("example", "k.c")):
        done = subprocess.run(["edge0verify", "kernel", "--print", what], capture_output=True, text=True, check=True)
        (folder / name).write_text(done.stdout.replace("d_mmvq", "my_kernel"))
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-ffp-contract=off", "-o", "k.so", "k.c", "-lm"], check=True)
