"""The commit this program runs from, where it runs from a working tree."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def origin() -> tuple[str | None, bool | None]:
    """(commit, dirty) of the tree the package lies in; (None, None) for an installed package, or without git.

    A package inside another project's tree (its virtual environment) has nothing to do with that project's commit.
    """
    from edge0verify.gate.git import Git, GitError

    git = Git(PACKAGE.parent)
    try:
        if git.top().resolve() != PACKAGE.parent:
            return None, None
        return git.resolve("HEAD"), bool(git.dirty())
    except GitError:
        return None, None
