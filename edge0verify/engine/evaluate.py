"""Questions put to a model: exact match of the greedy answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edge0verify.engine.decode import Generation, generate
from edge0verify.engine.forward import Engine
from edge0verify.model import Question, decode, encode

MAX_ANSWER = 48


@dataclass(frozen=True)
class Answer:
    """One question with what the model said: `text` is all up to and including the line's end."""

    question: Question
    text: str
    right: bool
    generation: Generation


def ask(engine: Engine, question: Question, *, drafter: bool = True) -> Answer:
    """Greedy answer to one question, up to the line's end, the end token, or 48 tokens; right if it is ' ANSWER' and a newline."""
    prompt = encode(question.prompt)
    run = generate(engine, prompt, max_tokens=MAX_ANSWER, drafter=drafter, stop=(10, engine.config.eos))
    text = decode(run.tokens[run.tokens <= engine.config.eos]).decode("utf-8", "replace")
    return Answer(question, text, text == f" {question.answer}\n", run)


def evaluate(
    engine: Engine, questions: Sequence[Question], *, drafter: bool = True, progress: Callable[[int, int], None] | None = None
) -> list[Answer]:
    """Every question in order.  progress(done, total) after each."""
    answers = []
    for i, question in enumerate(questions, 1):
        answers.append(ask(engine, question, drafter=drafter))
        if progress is not None:
            progress(i, len(questions))
    return answers
