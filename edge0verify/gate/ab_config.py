"""One arm of an A/B benchmark, read from TOML.

name = "w11"
command = ["build/engine", "--prompt", "{prompt}"]  # {prompt}: one run per entry of `prompts`
differs_by = "build"            # what A and B differ by: "build" (two binaries) or "settings" (one binary)
binaries = ["build/engine"]     # hashed before and after; default: the program of `command`
cwd = "."                       # default: the folder of this file, to which the paths here are relative
timeout_s = 600                 # per run
inherit = ["PATH"]              # variables taken over from the caller; whatever is not named is unset
engaged = ["A1/w11/*"]          # kernels this arm must launch; * and ? as in a shell
output_files = ["out.bin"]      # compared byte for byte between the arms; each run must write them anew

[env]
STRATA_LATENT_FUSED = "1"

[[prompts]]
tokens = 512
value = "prompts/512.txt"

[patterns]                      # regular expressions with named groups, over what the command prints
ttft = 'prompt (?P<tokens>\\d+) tokens, first token after (?P<ms>[\\d.]+) ms'
decode = '(?P<tok_s>[\\d.]+) tok/s'
launch = 'launches (?P<kernel>\\S+) (?P<count>\\d+)'
output = 'reply: (?P<text>.*)'  # the part of the text that is the answer

[counters]                      # each must be above 0, or the arm did nothing; one group, summed
generated = 'generated (\\d+) tokens'

[faults]                        # counted; any is a FAIL
gpu = 'illegal memory access|page fault'
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge0verify.records.errors import InputError

GROUPS = {"ttft": {"ms"}, "decode": {"tok_s"}, "launch": {"kernel", "count"}, "output": {"text"}}
"""The named groups that each pattern must have."""

PLACE = "{prompt}"


@dataclass(frozen=True)
class Prompt:
    """One prompt length: what stands in for {prompt}."""

    tokens: int
    value: str


@dataclass(frozen=True, kw_only=True)
class Arm:
    """How one side is run and read."""

    name: str
    command: tuple[str, ...]
    differs_by: str
    binaries: tuple[Path, ...]
    cwd: Path
    env: Mapping[str, str]
    """The whole environment of the command."""
    inherited: tuple[str, ...]
    """Those names in `env` whose values came from the caller."""
    timeout_s: float
    prompts: tuple[Prompt, ...] = ()
    engaged: tuple[str, ...] = ()
    output_files: tuple[Path, ...] = ()
    patterns: Mapping[str, re.Pattern] = field(default_factory=dict)
    counters: Mapping[str, re.Pattern] = field(default_factory=dict)
    faults: Mapping[str, re.Pattern] = field(default_factory=dict)

    def runs(self) -> tuple[tuple[Prompt | None, tuple[str, ...]], ...]:
        """(prompt, argument list) of each process that one turn of this arm starts."""
        if not self.prompts:
            return ((None, self.command),)
        return tuple((prompt, tuple(part.replace(PLACE, prompt.value) for part in self.command)) for prompt in self.prompts)


def load_pair(a: Path, b: Path) -> tuple[Arm, Arm]:
    """Both arms, checked to be arms of one comparison."""
    arms = load_arm(a), load_arm(b)
    for name in ("differs_by", "prompts"):
        values = [getattr(arm, name) for arm in arms]
        if values[0] != values[1]:
            raise InputError(f"{b}: {name}: expected {_words(values[0])} as in {a}, found {_words(values[1])}")
    for name in ("ttft", "decode", "output"):
        if (name in arms[0].patterns) != (name in arms[1].patterns):
            raise InputError(f"{b}: patterns.{name}: expected in both files or in none, found in one")
    if len(arms[0].output_files) != len(arms[1].output_files):
        raise InputError(f"{b}: output_files: expected {len(arms[0].output_files)} as in {a}, found {len(arms[1].output_files)}")
    return arms


def load_arm(path: Path) -> Arm:
    """One arm. A key that is not understood is refused: a misspelt setting must not be no setting."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: expected the TOML of an arm, found: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected TOML, found: {error}") from error
    known = {"name", "command", "differs_by", "binaries", "cwd", "timeout_s", "inherit", "engaged", "output_files"}
    known |= {"env", "prompts", "patterns", "counters", "faults"}
    _known(data, known, path)
    command = _strings(data, "command", path, needed=True)
    cwd = (path.parent / _typed(data, "cwd", str, ".", path)).resolve()
    if not cwd.is_dir():
        raise InputError(f"{path}: cwd: expected a folder, found {cwd}")
    env = _environment(data, path)
    differs_by = _typed(data, "differs_by", str, "build", path)
    if differs_by not in ("build", "settings"):
        raise InputError(f"{path}: differs_by: expected 'build' or 'settings', found {differs_by!r}")
    timeout_s = data.get("timeout_s", 600)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s < float("inf"):
        raise InputError(f"{path}: timeout_s: expected seconds above 0, found {timeout_s!r}")
    prompts = _prompts(data, path)
    if bool(prompts) != any(PLACE in part for part in command):
        raise InputError(f"{path}: expected {PLACE} in command and [[prompts]] together, found one without the other")
    patterns = _patterns(data, "patterns", path)
    for name, pattern in patterns.items():
        missing = GROUPS.get(name, {""}) - set(pattern.groupindex)
        if name not in GROUPS:
            raise InputError(f"{path}: patterns: expected {', '.join(GROUPS)}, found an unknown {name!r}")
        if missing:
            raise InputError(f"{path}: patterns.{name}: expected a group (?P<{min(missing)}>...), found none")
    if "ttft" in patterns and not prompts and "tokens" not in patterns["ttft"].groupindex:
        raise InputError(f"{path}: patterns.ttft: expected a group (?P<tokens>...) or [[prompts]], found neither")
    counters = _patterns(data, "counters", path)
    wrong = [name for name, pattern in counters.items() if pattern.groups != 1]
    if wrong:
        raise InputError(f"{path}: counters.{wrong[0]}: expected one group that holds a number, found {counters[wrong[0]].groups}")
    engaged = _strings(data, "engaged", path)
    if engaged and "launch" not in patterns:
        raise InputError(f"{path}: engaged: expected patterns.launch, which counts the launches, found none")
    program = (_program(command[0], cwd, env, path),)
    named = tuple(cwd / name for name in _strings(data, "binaries", path))
    return Arm(
        name=_typed(data, "name", str, path.stem, path),
        command=(str(program[0]), *command[1:]),
        differs_by=differs_by,
        binaries=named or program,
        cwd=cwd,
        env=env,
        inherited=tuple(sorted(set(env) - set(data.get("env", {})))),
        timeout_s=float(timeout_s),
        prompts=prompts,
        engaged=engaged,
        output_files=tuple(cwd / name for name in _strings(data, "output_files", path)),
        patterns=patterns,
        counters=counters,
        faults=_patterns(data, "faults", path),
    )


def _program(name: str, cwd: Path, env: Mapping[str, str], path: Path) -> Path:
    """The file that will run: by its path below cwd, or found on the PATH that the arm itself names."""
    found = cwd / name if "/" in name else shutil.which(name, path=env.get("PATH", ""))
    if found is None or not Path(found).is_file() or not os.access(found, os.X_OK):
        where = f"below {cwd}" if "/" in name else "on the arm's own PATH (name it in env or inherit)"
        raise InputError(f"{path}: command: expected a program {name!r} {where}, found none")
    return Path(found)


def _environment(data: Mapping, path: Path) -> dict[str, str]:
    env = {name: os.environ[name] for name in _strings(data, "inherit", path) if name in os.environ}
    named = _typed(data, "env", dict, {}, path)
    for name, value in named.items():
        if not isinstance(value, str):
            raise InputError(f"{path}: env.{name}: expected a text, found {value!r}")
    return {**env, **named}


def _prompts(data: Mapping, path: Path) -> tuple[Prompt, ...]:
    found = []
    for number, item in enumerate(_typed(data, "prompts", list, [], path), 1):
        place = f"{path}: prompts {number}"
        if not isinstance(item, dict) or set(item) != {"tokens", "value"}:
            raise InputError(f"{place}: expected tokens and value, found {item!r}")
        if isinstance(item["tokens"], bool) or not isinstance(item["tokens"], int) or item["tokens"] < 1:
            raise InputError(f"{place}: tokens: expected a count, found {item['tokens']!r}")
        found.append(Prompt(item["tokens"], _typed(item, "value", str, "", place)))
    if len({prompt.tokens for prompt in found}) != len(found):
        raise InputError(f"{path}: prompts: expected each length once")
    return tuple(found)


def _patterns(data: Mapping, name: str, path: Path) -> dict[str, re.Pattern]:
    found = {}
    for key, text in _typed(data, name, dict, {}, path).items():
        try:
            found[key] = re.compile(text, re.MULTILINE)
        except (re.error, TypeError) as error:
            raise InputError(f"{path}: {name}.{key}: expected a regular expression, found {text!r}: {error}") from error
    return found


def _known(data: Mapping, names: set[str], path: Path) -> None:
    unknown = sorted(set(data) - names)
    if unknown:
        raise InputError(f"{path}: expected {', '.join(sorted(names))}, found an unknown {unknown[0]!r}")


def _typed(data: Mapping, name: str, kind: type, default: Any, where: Path | str) -> Any:
    value = data.get(name, default)
    if not isinstance(value, kind):
        raise InputError(f"{where}: {name}: expected {kind.__name__}, found {value!r}")
    return value


def _strings(data: Mapping, name: str, path: Path, *, needed: bool = False) -> tuple[str, ...]:
    value = data.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value) or (needed and not value):
        raise InputError(f"{path}: {name}: expected a list of texts, found {value!r}")
    return tuple(value)


def _words(value: Any) -> str:
    return f"{[prompt.tokens for prompt in value]} tokens" if isinstance(value, tuple) else repr(value)
