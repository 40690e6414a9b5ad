"""Questions put to a model or to an endpoint, item by item, and what two sets of answers prove.

An answer is right if the text, up to and including its first line's end, is a space, the expected text and a newline, exactly.
What a side is asked comes back as `Asked`; everything that is said of two sides is computed from those, by integer counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edge0verify import model as models
from edge0verify.engine import Engine
from edge0verify.engine.evaluate import MAX_ANSWER, ask
from edge0verify.model import Question
from edge0verify.numerics.stats import PairedResult, Score, pair_items, paired_result
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Tokens
from edge0verify.study.dump_head import BY_TEXT
from edge0verify.study.endpoint import Endpoint, EndpointError

TOP = 8


@dataclass(frozen=True)
class Asked:
    """One question with the answer. `ids` i32 [k] and `logprobs` f32 [k]: the first token's candidates, best first; k may be 0."""

    item: str
    question: Question
    text: str
    right: bool
    ids: np.ndarray
    logprobs: np.ndarray
    tokens: int | None = None
    forwards: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    attempts: int | None = None


class Asker(Protocol):
    """Something that answers."""

    name: str

    def ask(self, question: Question) -> Asked: ...


class Local:
    """An engine of this process."""

    def __init__(self, engine: Engine, *, name: str, drafter: bool = False) -> None:
        self.engine, self.name, self.drafter = engine, name, drafter

    def ask(self, question: Question) -> Asked:
        """Greedy answer; forwards and drafts are counted."""
        found = ask(self.engine, question, drafter=self.drafter)
        run = found.generation
        return Asked(
            item_of(question), question, found.text, found.right, run.first.top8_ids, run.first.top8_logprobs,
            tokens=len(run.tokens), forwards=run.main_forwards, drafted=run.drafted, accepted=run.accepted,
        )


class Remote:
    """A model behind an endpoint."""

    def __init__(self, endpoint: Endpoint, *, name: str) -> None:
        self.endpoint, self.name = endpoint, name

    def ask(self, question: Question) -> Asked:
        """The completion, cut after its first line. EndpointError where there is none."""
        found = self.endpoint.complete(question.prompt, max_tokens=MAX_ANSWER)
        line, newline, _ = found.text.partition("\n")
        text = line + newline
        candidates = found.first[:TOP]
        by_text = any(candidate.id is None for candidate in candidates)
        ids = [id_of_text(c.token) if by_text else c.id for c in candidates]
        return Asked(
            item_of(question), question, text, text == expected(question),
            np.array(ids, np.int32), np.array([c.logprob for c in candidates], np.float32), attempts=found.attempts,
        )


def expected(question: Question) -> str:
    """The text of a right answer."""
    return f" {question.answer}\n"


def item_of(question: Question) -> str:
    """What an item is known by wherever it is asked: 16 hex digits of its prompt and answer."""
    return hashlib.sha256(json.dumps([question.prompt, question.answer]).encode()).hexdigest()[:16]


def id_of_text(token: str) -> int:
    """An id for a token that is known by its text only; equal texts have equal ids, above every vocabulary's."""
    return BY_TEXT | int.from_bytes(hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()[:4], "big") & (BY_TEXT - 1)


class Interrupted(InputError):
    """An endpoint failed while questions were being asked; `transient` as in EndpointError, `done` were answered."""

    def __init__(self, error: EndpointError, done: int, total: int) -> None:
        super().__init__(f"{error} ({done} of {total} questions were answered)")
        self.transient = error.transient


def ask_all(
    asker: Asker, asked: Sequence[Question], progress: Callable[[int, int], None] | None = None
) -> tuple[Asked, ...]:
    """Every question in order. Interrupted where an endpoint gives up."""
    found: list[Asked] = []
    for question in asked:
        try:
            found.append(asker.ask(question))
        except EndpointError as error:
            raise Interrupted(error, len(found), len(asked)) from None
        if progress is not None:
            progress(len(found), len(asked))
    return tuple(found)


def score(answers: Sequence[Asked]) -> Score:
    """Right answers of all."""
    return Score(sum(a.right for a in answers), len(answers))


def paired(a: Sequence[Asked], b: Sequence[Asked], *, confidence: float = 0.95, seed: int = 0) -> PairedResult:
    """What b's answers say against a's, to the same items."""
    counts = pair_items([(x.item, x.right) for x in a], [(x.item, x.right) for x in b])
    return paired_result(counts, seed=seed, confidence=confidence)


def first_tokens(answers: Sequence[Asked]) -> Tokens | None:
    """Candidates of the first token at every item, as many as all items have; None where an item has none."""
    k = min((len(a.ids) for a in answers), default=0)
    if not k:
        return None
    return Tokens(
        ids=np.stack([a.ids[:k] for a in answers]),
        logprobs=np.stack([a.logprobs[:k] for a in answers]),
        names=tuple(a.question.prompt for a in answers),
    )


def by_text(tokens: Tokens) -> bool:
    """Whether the ids were made of texts."""
    return bool((tokens.ids >= BY_TEXT).any())


def embedded_questions(count: int | None = None) -> tuple[Question, ...]:
    """The embedded ones, or the first `count`; InputError for more than there are."""
    return select(models.questions(), None if count is None else str(count))


def select(known: Sequence[Question], which: str | None) -> tuple[Question, ...]:
    """All, the first N ('N'), or those from A to B-1 ('A:B'); InputError for more than there are, or none."""
    if which is None:
        return tuple(known)
    first, colon, last = which.rpartition(":")
    try:
        start, stop = int(first or 0) if colon else 0, int(last) if last else len(known)
    except ValueError:
        raise InputError(f"--questions {which}: expected a number N, or A:B") from None
    if stop > len(known):
        raise InputError(f"--questions {which}: expected at most {len(known)}, the number there are")
    if start < 0 or start >= stop:
        raise InputError(f"--questions {which}: expected at least one question, found none")
    return tuple(known[start:stop])


def read_questions(path: Path) -> tuple[Question, ...]:
    """Questions of a file with {"prompt": ..., "answer": ...} a line, and `kind` where there is one. InputError names the line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a readable file of questions, found: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path} line {number}: expected JSON, found {error}") from None
        if not isinstance(row, Mapping) or not all(isinstance(row.get(key), str) and row[key] for key in ("prompt", "answer")):
            raise InputError(f"{path} line {number}: expected prompt and answer as texts, found {line[:60]!r}")
        found.append(Question(row["prompt"], row["answer"], str(row.get("kind", "")), False))
    if not found:
        raise InputError(f"{path}: expected at least one question, found none")
    items = [item_of(question) for question in found]
    twice = next((q for q, item in zip(found, items) if items.count(item) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: expected each question once, found {twice.prompt[:60]!r} twice")
    return tuple(found)
