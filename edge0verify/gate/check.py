"""`gate check` as a function: the answer for every leg that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge0verify.gate import policy as policies
from edge0verify.gate.gather import store_prefix
from edge0verify.gate.git import Git, GitError
from edge0verify.gate.policy import Policy
from edge0verify.gate.store import Store
from edge0verify.gate.validity import LegDecision, decide, invalidating
from edge0verify.records.errors import InputError
from edge0verify.records.status import INCONCLUSIVE, worst_status


@dataclass(frozen=True)
class Answer:
    """What the gate says of one head."""

    head: str
    status: str
    summary: str
    rules: str
    legs: tuple[LegDecision, ...]

    def to_json(self) -> dict:
        return {
            "schema": "edge0verify.gate-check/1",
            "status": self.status,
            "head": self.head,
            "summary": self.summary,
            "rules": self.rules,
            "legs": [leg.to_json() for leg in self.legs],
        }


def check(*, store: Path, repository: Path, head: str | None, policy_file: Path | None, legs: Sequence[str] = ()) -> Answer:
    """The answer for `head`; None means the working tree as it stands, which must then be clean where it matters."""
    git = Git(repository)
    policy, rules = _policy(git, repository, policy_file)
    own = store_prefix(git, store)
    trouble = None
    try:
        commit = git.resolve(head or "HEAD")
        dirty = invalidating(git.dirty(), policy, own=own) if head is None else []
        if dirty:
            trouble = f"the working tree is not the commit: {dirty[0]}" + (f" and {len(dirty) - 1} more" if len(dirty) > 1 else "")
    except GitError as error:
        if head is None:
            raise InputError(f"{repository}: expected a git working tree or --head, found: {error}") from error
        # A hash can still be compared as text: the same commit is the same commit.
        commit, git = head, None
    kept = Store(store).records()
    asked = tuple(legs) or tuple(policy.legs) or tuple(sorted({item.record.leg for item in kept}))
    decisions = tuple(decide(leg, [item for item in kept if item.record.leg == leg], commit, git, policy, own=own) for leg in asked)
    status = worst_status([leg.status for leg in decisions] + ([INCONCLUSIVE] if trouble else []))
    good = sum(leg.status == "PASS" for leg in decisions)
    summary = f"{good} of {len(decisions)} legs have a good record for {commit[:10]}" + (f"; {trouble}" if trouble else "")
    if not decisions:
        summary = f"no leg to check: {store} holds no record and the rules ({rules}) require none"
    return Answer(commit, status, summary, rules, decisions)


def _policy(git: Git, repository: Path, policy_file: Path | None) -> tuple[Policy, str]:
    if policy_file is not None:
        return policies.load(policy_file), str(policy_file)
    try:
        top = git.top()
    except GitError:
        top = repository
    found = top / policies.FILE_NAME
    return (policies.load(found), str(found)) if found.exists() else (policies.EVERYTHING, "every change makes a record void")
