"""Answers to questions as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from edge0verify.engine.evaluate import Answer


def _visible(text: str) -> str:
    return repr(text)[1:-1]


def answers_text(answers: Sequence[Answer]) -> str:
    """A line per question, then the sums."""
    lines = [
        (i, "right" if a.right else "WRONG", a.question.kind, _visible(a.question.prompt)[-60:], _visible(a.text),
         "" if a.right else _visible(f" {a.question.answer}\n"))
        for i, a in enumerate(answers, 1)
    ]
    table = tabulate(lines, ("", "", "kind", "question", "answer", "expected"), tablefmt="simple", disable_numparse=True)
    return f"{table}\n\n{_sums(answers)}"


def _sums(answers: Sequence[Answer]) -> str:
    right = sum(a.right for a in answers)
    held = [a for a in answers if a.question.held_out]
    text = f"{right} of {len(answers)} right"
    if held:
        text += f", of the {len(held)} never trained on {sum(a.right for a in held)}"
    tokens, forwards = sum(len(a.generation.tokens) for a in answers), sum(a.generation.main_forwards for a in answers)
    text += f"; {tokens} tokens in {forwards} forwards of the main layers"
    drafted, accepted = sum(a.generation.drafted for a in answers), sum(a.generation.accepted for a in answers)
    return text + (f"; {accepted} of {drafted} drafted tokens accepted ({100 * accepted / drafted:.1f} %)" if drafted else "")


def answers_json(answers: Sequence[Answer]) -> dict[str, Any]:
    return {
        "asked": len(answers),
        "right": sum(a.right for a in answers),
        "tokens": sum(len(a.generation.tokens) for a in answers),
        "forwards": sum(a.generation.main_forwards for a in answers),
        "drafted": sum(a.generation.drafted for a in answers),
        "accepted": sum(a.generation.accepted for a in answers),
        "answers": [
            {"question": a.question.prompt, "kind": a.question.kind, "held_out": a.question.held_out, "expected": a.question.answer,
             "answer": a.text, "right": a.right}
            for a in answers
        ],
    }
