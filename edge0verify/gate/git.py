"""What git says of a repository; every failure is a GitError, which the rules read as 'not covered'."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 60.0


class GitError(RuntimeError):
    """git is absent, is no help here, or does not know the commit."""


@dataclass(frozen=True)
class Git:
    """One working tree. The caller's GIT_* variables are not passed on: the answer must be about this folder."""

    folder: Path

    def resolve(self, revision: str) -> str:
        """The full hash of a commit."""
        if revision.startswith("-"):
            raise GitError(f"not a revision: {revision}")
        return self._text("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").strip()

    def top(self) -> Path:
        """The root of the working tree."""
        return Path(self._text("rev-parse", "--show-toplevel").rstrip("\n"))

    def is_ancestor(self, old: str, new: str) -> bool:
        """Whether `new` was built on `old`; a shallow clone that cannot tell is an error."""
        done = self._run("merge-base", "--is-ancestor", old, new)
        if done.returncode not in (0, 1):
            raise GitError(_words("merge-base", done))
        return done.returncode == 0

    def changed(self, old: str, new: str) -> tuple[str, ...]:
        """Paths whose content or mode differs between two commits; a rename counts under both names."""
        return _split(
            self._text("diff", "--name-only", "--no-renames", "--no-ext-diff", "--ignore-submodules=none", "-z", old, new)
        )

    def dirty(self) -> tuple[str, ...]:
        """Paths that differ from HEAD, untracked ones included, ignored ones not."""
        status = self._text("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
        return tuple(entry[3:] for entry in _split(status))

    def _text(self, *arguments: str) -> str:
        done = self._run(*arguments)
        if done.returncode:
            raise GitError(_words(arguments[0], done))
        return os.fsdecode(done.stdout)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        # Reading must not take the index lock from somebody who works in the tree.
        environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        command = ["git", "--no-replace-objects", "-C", str(self.folder), *arguments]
        try:
            return subprocess.run(command, capture_output=True, env=environment, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GitError(f"git does not answer: {error}") from error


def _split(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split("\0") if part)


def _words(what: str, done: subprocess.CompletedProcess) -> str:
    said = os.fsdecode(done.stderr).strip().splitlines()
    return f"git {what} exited with {done.returncode}" + (f": {said[0]}" if said else "")
