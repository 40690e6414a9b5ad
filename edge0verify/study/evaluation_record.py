"""What questions gave: one side or two, as JSON that can be merged, and what it makes of a verdict.

Merging concatenates items, so that every count is a count of items again; a mean of percentages never enters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge0verify.compare import movement
from edge0verify.model import Question
from edge0verify.numerics.stats import PairedResult
from edge0verify.records import schema
from edge0verify.records.errors import InputError
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import plain
from edge0verify.study.evaluation import Asked, by_text, first_tokens, item_of, paired, score

SCHEMA = "edge0verify.eval/1"
SIGNIFICANT = 0.05
"""McNemar p below which a loss is a loss."""

_ANSWER = schema.record(
    {"item": {"type": "string"}, "question": {"type": "string"}, "kind": {"type": "string"}, "held_out": {"type": "boolean"},
     "expected": {"type": "string"}, "answer": {"type": "string"}, "right": {"type": "boolean"}},
    closed=False,
)
_SIDE = schema.record(
    {"configuration": {"type": "object"}, "not_engaged": {"type": "array", "items": {"type": "string"}}, "asked": schema.COUNT,
     "right": schema.COUNT, "answers": {"type": "array", "items": _ANSWER}},
    closed=False,
)
COUNTED = ("tokens", "forwards", "drafted", "accepted", "attempts")


@dataclass(frozen=True, kw_only=True)
class SideResult:
    """One configuration and its answers."""

    configuration: Mapping[str, Any]
    """What was asked: kind ('local' or 'endpoint') and what tells it from another."""
    answers: tuple[Asked, ...]
    not_engaged: tuple[str, ...] = ()
    """A sentence for each variant or flag that was asked for and did not act."""
    launches: Mapping[str, int] | None = None
    """Per kernel; None where nobody counted."""
    routed: Mapping[str, int] | None = None
    """What route flags did, where some were set."""

    def to_json(self) -> dict[str, Any]:
        sums = {name: sum(getattr(a, name) or 0 for a in self.answers) for name in COUNTED}
        return {
            "configuration": dict(self.configuration),
            "not_engaged": list(self.not_engaged),
            "launches": None if self.launches is None else dict(self.launches),
            "routed": None if self.routed is None else dict(self.routed),
            "asked": len(self.answers),
            "right": sum(a.right for a in self.answers),
            "still_allows": score(self.answers).still_allows(),
            **sums,
            "answers": [_answer(a) for a in self.answers],
        }


def _answer(a: Asked) -> dict[str, Any]:
    return {
        "item": a.item, "question": a.question.prompt, "kind": a.question.kind, "held_out": a.question.held_out,
        "expected": a.question.answer, "answer": a.text, "right": a.right,
        "top8": [[int(i), float(lp)] for i, lp in zip(a.ids, a.logprobs)],
        **{name: getattr(a, name) for name in COUNTED},
    }


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One side or two with what they prove."""

    sides: tuple[SideResult, ...]
    status: str
    reasons: tuple[str, ...]
    paired: PairedResult | None = None
    top8: Mapping[str, Any] | None = None
    """Movement of the first token's candidates from a to b, where both have them."""
    merged: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        head = {"schema": SCHEMA, "status": self.status, "reasons": list(self.reasons), "merged": list(self.merged)}
        if len(self.sides) == 1:
            return plain({**head, **self.sides[0].to_json()})
        return plain({
            **head, "a": self.sides[0].to_json(), "b": self.sides[1].to_json(), "paired": self.paired.to_json(),
            "sentences": self.paired.sentences(), "top8": self.top8,
        })

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"


def settle(
    sides: Sequence[SideResult], *, confidence: float = 0.95, max_loss: float | None = None, at_least: int | None = None,
    merged: Sequence[str] = (),
) -> Evaluation:
    """The evaluation of one side or two.

    INCONCLUSIVE first where both sides are one configuration; FAIL where b loses items by the exact McNemar test, or a side has
    fewer than `at_least` right; INCONCLUSIVE where a side was not engaged, or where the loss that the counts still allow is above
    `max_loss` (a share of items); else PASS, which says no more than that no loss was shown.
    """
    sides = tuple(sides)
    failing = [
        f"{_name(i, sides)}{score(side.answers).right} of {len(side.answers)} right, expected at least {at_least}"
        for i, side in enumerate(sides)
        if at_least is not None and score(side.answers).right < at_least
    ]
    unproven = [f"{_name(i, sides)}{text}" for i, side in enumerate(sides) for text in side.not_engaged]
    if len(sides) == 1:
        if not sides[0].answers:
            unproven.append("nothing was asked")
        return Evaluation(sides=sides, merged=tuple(merged), **_status([], failing, unproven))
    if not sides[0].answers:
        raise InputError("questions: expected at least one, found none")
    try:
        result = paired(sides[0].answers, sides[1].answers, confidence=confidence)
    except ValueError as error:
        raise InputError(f"a and b: expected answers to the same questions, found: {error}") from None
    first = []
    if dict(sides[0].configuration) == dict(sides[1].configuration):
        first.append("a and b are one configuration: it was compared with nothing but itself")
    counts = result.counts
    if counts.only_a > counts.only_b and result.p < SIGNIFICANT:
        alone = f"{counts.only_a} items right in a alone, {counts.only_b} in b alone"
        failing.append(f"b loses: {alone}, exact McNemar p = {result.p:.4g}")
    if max_loss is not None and result.hidden_loss > max_loss:
        unproven.append(
            f"{counts.n} questions still allow a loss of {100 * result.hidden_loss:.1f} % at {100 * confidence:g} %, "
            f"more than the {100 * max_loss:g} % asked for"
        )
    status = _status(first, failing, unproven)
    return Evaluation(sides=sides, paired=result, top8=_moved(*sides), merged=tuple(merged), **status)


def _status(first: list[str], failing: list[str], unproven: list[str]) -> dict[str, Any]:
    status = INCONCLUSIVE if first else FAIL if failing else INCONCLUSIVE if unproven else PASS
    return {"status": status, "reasons": (*first, *failing, *unproven)}


def _name(i: int, sides: Sequence[SideResult]) -> str:
    return f"{'ab'[i]}: " if len(sides) > 1 else ""


def _moved(a: SideResult, b: SideResult) -> dict[str, Any] | None:
    """Where both sides name first tokens, and in one way."""
    by_item = {answer.item: answer for answer in b.answers}
    x, y = first_tokens(a.answers), first_tokens([by_item[answer.item] for answer in a.answers])
    if x is None or y is None or by_text(x) != by_text(y):
        return None
    k = min(x.ids.shape[1], y.ids.shape[1])
    cut = [type(t)(ids=t.ids[:, :k], logprobs=t.logprobs[:, :k], names=t.names) for t in (x, y)]
    return movement(*cut)


def read_sides(path: Path) -> tuple[SideResult, ...]:
    """The sides of an evaluation that was written as JSON; InputError for anything else, and for sums that are not its items'."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected an evaluation as JSON, found: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise InputError(f"{path}: expected schema {SCHEMA}, found {found!r}")
    parts = [data[name] for name in "ab" if name in data] or [data]
    sides = []
    for part in parts:
        schema.check(part, _SIDE, str(path))
        answers = tuple(_read_answer(row, path) for row in part["answers"])
        counted = {"asked": len(answers), "right": sum(a.right for a in answers)}
        for name, n in counted.items():
            if part[name] != n:
                raise InputError(f"{path}: {name}: expected the {n} of its answers, found {part[name]}")
        sides.append(
            SideResult(
                configuration=part["configuration"], answers=answers, not_engaged=tuple(part["not_engaged"]),
                launches=part.get("launches"), routed=part.get("routed"),
            )
        )
    return tuple(sides)


def _read_answer(row: Mapping[str, Any], path: Path) -> Asked:
    question = Question(row["question"], row["expected"], row["kind"], row["held_out"])
    if row["item"] != item_of(question):
        raise InputError(f"{path}: item {row['item']}: expected {item_of(question)}, which its question and answer make")
    top = row.get("top8") or []
    try:
        ids, logprobs = np.array([i for i, _ in top], np.int32), np.array([lp for _, lp in top], np.float32)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{path}: top8 of item {row['item']}: expected pairs of id and log-prob") from None
    counted = {name: row.get(name) if isinstance(row.get(name), int) else None for name in COUNTED}
    return Asked(row["item"], question, row["answer"], row["right"], ids, logprobs, **counted)


def merge(paths: Sequence[Path], **options: Any) -> Evaluation:
    """The evaluation of all items of several files, of one configuration (or one pair) each; `options` as in `settle`.

    InputError for files of unlike configurations, and for an item that two of them hold.
    """
    if not paths:
        raise InputError("--merge: expected files of evaluations, found none")
    parts = [read_sides(path) for path in paths]
    for path, sides in zip(paths, parts):
        if len(sides) != len(parts[0]):
            raise InputError(f"{path}: expected {len(parts[0])} sides as in {paths[0]}, found {len(sides)}")
        for name, one, other in zip("ab", parts[0], sides):
            if one.configuration != other.configuration:
                raise InputError(f"{path}: side {name}: expected the configuration of {paths[0]}, found {other.configuration}")
    whole = []
    for columns in zip(*parts):
        held: dict[str, Path] = {}
        for path, side in zip(paths, columns):
            for answer in side.answers:
                if answer.item in held:
                    text = answer.question.prompt[:60]
                    raise InputError(f"{path}: expected items that no other file holds, found {text!r} in {held[answer.item]} too")
                held[answer.item] = path
        whole.append(
            SideResult(
                configuration=columns[0].configuration,
                answers=tuple(answer for side in columns for answer in side.answers),
                not_engaged=tuple(dict.fromkeys(text for side in columns for text in side.not_engaged)),
                launches=_summed([side.launches for side in columns]),
                routed=_summed([side.routed for side in columns]),
            )
        )
    return settle(whole, merged=[str(path) for path in paths], **options)


def _summed(parts: Sequence[Mapping[str, int] | None]) -> dict[str, int] | None:
    if any(part is None for part in parts):
        return None
    return {name: sum(part.get(name, 0) for part in parts) for name in sorted({name for part in parts for name in part})}
