"""Does a head have a good record? Coverage by commit, the newest covering record by time, and whether that one is good.

Everything here is a decision from values; git is asked through one object that a test can replace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edge0verify.gate.git import Git, GitError
from edge0verify.gate.policy import LegRules, Policy
from edge0verify.gate.record import INFO, GateRecord
from edge0verify.gate.store import Stored
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS

SHORT_HASH = 10
"""Hex digits that suffice to call two commits the same where git cannot be asked."""


@dataclass(frozen=True)
class Coverage:
    """Whether a record speaks for a head, and why."""

    covered: bool
    why: str


@dataclass(frozen=True)
class LegDecision:
    """The answer for one leg."""

    leg: str
    status: str
    reasons: tuple[str, ...]
    deciding: Stored | None
    coverage: Coverage | None
    remarks: tuple[str, ...]

    def to_json(self) -> dict:
        return {
            "leg": self.leg,
            "status": self.status,
            "reasons": list(self.reasons),
            "record": str(self.deciding.path) if self.deciding else None,
            "commit": self.deciding.record.commit if self.deciding else None,
            "covered": self.coverage.why if self.coverage else None,
            "remarks": list(self.remarks),
        }


def coverage(commit: str | None, head: str, git: Git | None, policy: Policy, *, own: Sequence[str] = ()) -> Coverage:
    """Whether a record of `commit` speaks for `head`: the same commit, or an ancestor with no invalidating path between.

    `own`: folders of the store itself, from the root of the tree; a record that is committed must not void itself.
    git None, or any failure of git, means not covered unless the hashes are the same.
    """
    if commit is None:
        return Coverage(False, "the record names no commit")
    if same_commit(commit, head):
        return Coverage(True, "same commit")
    if git is None:
        return Coverage(False, f"{commit[:10]} is another commit and there is no git to ask")
    try:
        old, new = git.resolve(commit), git.resolve(head)
        if old == new:
            return Coverage(True, "same commit")
        if not git.is_ancestor(old, new):
            return Coverage(False, f"{commit[:10]} is no ancestor")
        void = invalidating(git.changed(old, new), policy, own=own)
    except GitError as error:
        return Coverage(False, f"git cannot tell: {error}")
    if void:
        more = f" and {len(void) - 1} more" if len(void) > 1 else ""
        return Coverage(False, f"{void[0]}{more} changed since {commit[:10]}")
    return Coverage(True, f"ancestor {commit[:10]}, no invalidating path between")


def same_commit(one: str, other: str) -> bool:
    """Whether two hashes, of which either may be shortened to ten digits or more, name one commit."""
    shorter, longer = sorted((one, other), key=len)
    return len(shorter) >= SHORT_HASH and longer.startswith(shorter)


def invalidating(paths: Iterable[str], policy: Policy, *, own: Sequence[str] = ()) -> list[str]:
    """Those of the paths that make a record void."""
    return [path for path in paths if not any(path.startswith(folder) for folder in own) and policy.invalidates(path)]


def shortcomings(record: GateRecord, rules: LegRules) -> list[tuple[str, str]]:
    """(status, why) for everything that keeps a record from being good; empty when it is good."""
    found = []
    if record.status == FAIL:
        found.append((FAIL, "the record says FAIL" + (f": {record.reasons[0]}" if record.reasons else "")))
    elif record.status != PASS:
        found.append((INCONCLUSIVE, f"the record says {record.status}" + (f": {record.reasons[0]}" if record.reasons else "")))
    if record.kind == "info" and record.status != INFO:
        found.append((INCONCLUSIVE, "an info record never opens a gate"))
    if record.dirty:
        found.append((INCONCLUSIVE, f"measured on a dirty tree: {record.dirty[0]}" + _more(record.dirty)))
    missing = [name for name in rules.required_metrics if name not in record.metrics]
    if missing:
        found.append((INCONCLUSIVE, f"metric {missing[0]} is missing" + _more(missing)))
    state = state_shortcoming(record, rules)
    if state is not None:
        found.append((INCONCLUSIVE, state))
    return found


def state_shortcoming(record: GateRecord, rules: LegRules) -> str | None:
    """Why the measurement itself may not stand, by the validity that the run recorded, or None."""
    if record.validity == "invalid":
        # The last concern is the most specific one in the records that this was learnt from.
        return f"the {record.status} stands on an invalid measurement" + (f": {record.concerns[-1]}" if record.concerns else "")
    if record.kind != "speed" or record.validity == "valid":
        return None
    if record.validity == "unmeasured" and rules.allow_unmeasured_state:
        return None
    return f"a speed run whose own state is {record.validity}: expected valid"


def decide(
    leg: str, stored: Sequence[Stored], head: str, git: Git | None, policy: Policy, *, own: Sequence[str] = ()
) -> LegDecision:
    """The answer for one leg from its records. The newest covering record decides; of two at one time, the worse."""
    rules = policy.rules(leg)
    if not stored:
        return LegDecision(leg, INCONCLUSIVE, ("nothing is recorded",), None, None, ())
    known: dict[str | None, Coverage] = {}
    for item in stored:
        commit = item.record.commit
        if commit not in known:
            known[commit] = coverage(commit, head, git, policy, own=own)
    covering = [item for item in stored if known[item.record.commit].covered]
    if not covering:
        newest = max(stored, key=lambda item: item.record.recorded_at)
        why = f"no record covers this head; the newest does not: {known[newest.record.commit].why}"
        return LegDecision(leg, INCONCLUSIVE, (why,), None, None, ())
    newest = max(covering, key=lambda item: (item.record.recorded_at, _badness(item.record, rules)))
    found = shortcomings(newest.record, rules)
    status = FAIL if any(kind == FAIL for kind, _ in found) else INCONCLUSIVE if found else PASS
    reasons = [why for _, why in found]
    remarks = list(newest.record.remarks)
    failed = [item for item in covering if item is not newest and item.record.status == FAIL]
    if failed and status == INCONCLUSIVE and not _cleared(failed[-1], covering, rules):
        # A rerun that proves nothing does not take back what failed before it.
        status = FAIL
        reasons.insert(0, f"an earlier record says FAIL and no valid one followed: {failed[-1].path.name}")
    elif failed:
        remarks.append(f"{len(failed)} earlier FAIL of a covering commit kept beside it, last {failed[-1].path.name}")
    return LegDecision(leg, status, tuple(reasons), newest, known[newest.record.commit], tuple(remarks))


def _cleared(failed: Stored, covering: Sequence[Stored], rules: LegRules) -> bool:
    return any(item.record.recorded_at > failed.record.recorded_at and not shortcomings(item.record, rules) for item in covering)


def _badness(record: GateRecord, rules: LegRules) -> int:
    found = [kind for kind, _ in shortcomings(record, rules)]
    return 2 if FAIL in found else 1 if found else 0


def _more(items: Sequence) -> str:
    return f" and {len(items) - 1} more" if len(items) > 1 else ""
