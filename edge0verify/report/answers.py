"""Answers to questions as text: of one configuration, or of two side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

from edge0verify.report.tables import WIDTH, figure
from edge0verify.study.evaluation import Asked, expected, score
from edge0verify.study.evaluation_record import Evaluation, SideResult


def evaluation_text(found: Evaluation, *, confidence: float = 0.95) -> str:
    """A line per question, the sums, what they prove, and the verdict where there is more to say than the sums."""
    if len(found.sides) == 1:
        lines = [_one(found.sides[0].answers), _sums(found.sides[0], confidence)]
        if found.reasons:
            lines.append(_verdict(found))
        return "\n\n".join(lines)
    a, b = found.sides
    heads = [f"a = {describe(a.configuration)}", f"b = {describe(b.configuration)}"]
    parts = ["\n".join(line for head in heads for line in _wrapped(head)), _two(a.answers, b.answers), "\n".join(_proof(found))]
    return "\n\n".join([*parts, _verdict(found)])


def describe(configuration: Mapping[str, Any]) -> str:
    """A configuration in one line."""
    if configuration.get("kind") == "endpoint":
        return f"endpoint {configuration['url']}, model {configuration['model']}"
    words = [f"{configuration['model']} ({str(configuration['sha256'])[:12]})"]
    if configuration.get("projection"):
        words.append(f"projection {configuration['projection']}")
    words += [f"{stage}={name}" for stage, name in configuration.get("variants", {}).items()]
    words += [f"{name}={value}" for name, value in configuration.get("flags", {}).items()]
    return " ".join(words)


def _visible(text: str) -> str:
    return repr(text)[1:-1]


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _said(a: Asked) -> str:
    return "right" if a.right else "WRONG"


def _one(answers: Sequence[Asked]) -> str:
    lines = [
        (i, _said(a), a.question.kind, _visible(a.question.prompt)[-60:], _short(_visible(a.text), 40),
         "" if a.right else _visible(expected(a.question)))
        for i, a in enumerate(answers, 1)
    ]
    return tabulate(lines, ("", "", "kind", "question", "answer", "expected"), tablefmt="simple", disable_numparse=True)


def _two(a: Sequence[Asked], b: Sequence[Asked]) -> str:
    """Both answers of every item; where they are the same text it stands once."""
    by_item = {answer.item: answer for answer in b}
    lines = []
    for i, x in enumerate(a, 1):
        y = by_item[x.item]
        other = "" if x.text == y.text else _short(_visible(y.text), 26)
        lines.append((i, _said(x), _said(y), _visible(x.question.prompt)[-48:], _short(_visible(x.text), 26), other))
    heads = ("", "a", "b", "question", "a says", "b says, where it differs")
    return tabulate(lines, heads, tablefmt="simple", disable_numparse=True)


def _sums(side: SideResult, confidence: float) -> str:
    answers = side.answers
    right, held = sum(a.right for a in answers), [a for a in answers if a.question.held_out]
    text = f"{right} of {len(answers)} right"
    if held:
        text += f", of the {len(held)} never trained on {sum(a.right for a in held)}"
    tokens, forwards = sum(a.tokens or 0 for a in answers), sum(a.forwards or 0 for a in answers)
    if forwards:
        text += f"; {tokens} tokens in {forwards} forwards of the main layers"
    drafted, accepted = sum(a.drafted or 0 for a in answers), sum(a.accepted or 0 for a in answers)
    text += f"; {accepted} of {drafted} drafted tokens accepted ({100 * accepted / drafted:.1f} %)" if drafted else ""
    return "\n".join([text, *_routed(side, ""), score(answers).sentence(confidence=confidence)])


def _routed(side: SideResult, name: str) -> list[str]:
    found = side.routed
    if not found:
        return []
    share = 100 * found["acted"] / found["rows"] if found["rows"] else 0.0
    return [
        f"{name}by design: route flags act in {found['acted']} of {found['rows']} places ({share:.3g} %), "
        f"{found['skipped']} experts skipped and {found['exchanged']} exchanged of {found['pairs']}"
    ]


def _proof(found: Evaluation) -> list[str]:
    assert found.paired is not None
    lines = list(found.paired.sentences())
    for name, side in zip("ab", found.sides):
        lines += _routed(side, f"{name}: ")
    if found.top8 is not None:
        moved = found.top8
        lines.append(
            f"first tokens: log-probs move by {figure(moved['max_move'])} at most over {moved['positions']} questions, "
            f"{moved['argmax_changes']} best changed"
        )
    return [part for line in lines for part in _wrapped(line)]


def _verdict(found: Evaluation) -> str:
    lines = [f"verdict: {found.status}"]
    for reason in found.reasons:
        lines += textwrap.wrap(reason, WIDTH - 4, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ") or [""]
