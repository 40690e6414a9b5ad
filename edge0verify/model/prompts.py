"""The prompts and questions that ship with the package, and prompts from a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from edge0verify.records.errors import InputError

DATA = Path(__file__).resolve().parent.parent / "data"
NAMES = ("prose", "questions", "code", "list")
ALIASES = {f"p{i}": name for i, name in enumerate(NAMES, 1)} | {"p5268": "long"}


@dataclass(frozen=True)
class Question:
    """A question with the answer the model should give; `held_out` means it was never trained on."""

    prompt: str
    answer: str
    kind: str
    held_out: bool


@cache
def _short() -> dict[str, str]:
    rows = [json.loads(line) for line in (DATA / "prompts4.jsonl").read_text("utf-8").splitlines() if line.strip()]
    return {row["name"]: row["prompt"] for row in rows}


def prompt_names() -> tuple[str, ...]:
    """Every name `prompt` knows, aliases left out."""
    return (*NAMES, "long")


def prompt(name: str) -> str:
    """The text of a prompt by name or alias (p1..p4 are the four short ones).  InputError for a name it does not know."""
    name = ALIASES.get(name, name)
    if name == "long":
        # Read as bytes: newline translation would change the text, and with it the token count.
        return (DATA / "prompt5268.txt").read_bytes().decode("utf-8")
    if name not in NAMES:
        raise InputError(f"prompt {name!r}: expected one of {', '.join(prompt_names())} or p1..p4, or a file with -f")
    return _short()[name]


def prompt_file(path: str | Path) -> bytes:
    """A prompt from a file, its bytes as they are.  InputError where it cannot be read or is empty."""
    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise InputError(f"{path}: expected a readable prompt file, found: {e.strerror or e}") from None
    if not data:
        raise InputError(f"{path}: expected a prompt of at least one byte, found an empty file")
    return data


@cache
def questions() -> tuple[Question, ...]:
    """The forty questions, in file order."""
    lines = (DATA / "questions40.jsonl").read_text("utf-8").splitlines()
    return tuple(Question(**json.loads(line)) for line in lines if line.strip())
