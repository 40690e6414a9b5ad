"""Greedy decode, plain and with the drafter.

The drafter proposes, the main layers decide: a window of up to eight tokens goes through them in one batch, the proposals that the
main layers would have chosen themselves are kept, and both caches go back to what was kept.  Since no kernel's bits depend on the
width of a batch, the tokens are those of plain greedy decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge0verify.engine import native
from edge0verify.engine.forward import Engine, Names, Tap
from edge0verify.engine.step import Step, row_keys
from edge0verify.records.errors import InputError

WINDOW = 8
CONFIDENCE = 0.5
WORTH = 0.6


@dataclass(frozen=True)
class Generation:
    """Outcome of a decode.

    tokens int32 [n]: what was generated, the end token included where it came.  main_forwards: forwards of the main layers, prefill
    included.  drafted: proposals that a window verified; accepted: those kept.  first: the prefill's Step.  rows and mtp_rows int32
    [n, 3]: (pass, position, accepted) of every row that went through the main layers and the drafter layer, in the order in which
    a tap saw them.
    """

    tokens: np.ndarray
    main_forwards: int
    drafted: int
    accepted: int
    first: Step
    rows: np.ndarray
    mtp_rows: np.ndarray

    @property
    def acceptance(self) -> float | None:
        """accepted / drafted, None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None


def generate(
    engine: Engine,
    prompt: Sequence[int] | np.ndarray,
    *,
    max_tokens: int,
    drafter: bool = True,
    window: int = WINDOW,
    confidence: float = CONFIDENCE,
    worth: float = WORTH,
    stop: Sequence[int] | None = None,
    tap: Tap | None = None,
    names: Names = None,
) -> Generation:
    """Greedy continuation of `prompt` (token ids) by at most `max_tokens`, up to and including the first token of `stop`.

    stop: default the model's end token.  window: most tokens of one verifying forward, 1 to 8; one of them is certain, the others
    are proposals.  confidence: drafting stops at a proposal to which the drafter gives less than this probability.  worth: drafts
    go one re-application deeper after every window that was kept whole, and no deeper than where at least this share of the
    proposals was kept; 0 drafts the whole window always (a drafter trained for one step ahead seldom hits the one after).  None of
    the three changes a token, only how many forwards it takes.  tap, names: as in `Engine.prefill`, for every pass.
    """
    if not 1 <= window <= WINDOW:
        raise InputError(f"verify window: expected 1..{WINDOW} tokens, found {window}")
    if max_tokens < 1:
        raise InputError(f"tokens to generate: expected at least 1, found {max_tokens}")
    stop = frozenset((engine.config.eos,) if stop is None else stop)
    drafter = drafter and window > 1 and engine.config.mtp_layers > 0
    run = _Run(engine, np.asarray(prompt), drafter, tap, names)
    run.confidence, run.worth = confidence, worth
    out = [run.next_token]
    while len(out) < max_tokens and out[-1] not in stop:
        width = min(window, max_tokens - len(out)) if drafter else 1
        for token in run.window(width):
            out.append(token)
            if token in stop:
                break
    return run.result(out)


class _Run:
    """The state between two windows: the caches hold exactly what was accepted, `next_token` is decided and not yet read."""

    def __init__(self, engine: Engine, prompt: np.ndarray, drafter: bool, tap: Tap | None, names: Names) -> None:
        self.engine, self.drafter, self.tap, self.names = engine, drafter, tap, names
        self.first = engine.prefill(prompt, tap=tap, names=names, mtp=drafter)
        self.next_token = _best(self.first.logits_last)
        self.pending_hidden = self.first.hidden[-1:]         # main rows that the drafter layer has not read yet
        self.pending_next: list[int] = [self.next_token]     # and the token after each
        self.rows = [self.first.rows]
        self.mtp_rows = [row_keys(0, 0, engine.mtp_length)] if drafter else []
        self.forwards, self.drafted, self.accepted = 1, 0, 0
        self.confidence, self.worth = CONFIDENCE, WORTH
        self.deepest = 1                                      # grows by one with every window that is kept whole
        self.tried, self.hit = [0] * WINDOW, [0] * WINDOW    # per depth of re-application

    def window(self, width: int) -> list[int]:
        """One forward of at most `width` tokens; the tokens it decided (at least one)."""
        engine, first = self.engine, self.engine.length
        proposals = self._propose(width - 1) if self.drafter else []
        step = engine.forward([self.next_token, *proposals], tap=self.tap, names=self.names)
        chosen = [_best(row) for row in step.logits]
        kept = 0
        while kept < len(proposals) and proposals[kept] == chosen[kept]:
            kept += 1
        engine.truncate(first + kept + 1)
        step.rows[kept + 1 :, 2] = 0
        self.rows.append(step.rows)
        self.forwards += 1
        self.drafted += len(proposals)
        self.accepted += kept
        for depth in range(len(proposals)):
            self.tried[depth] += 1
            self.hit[depth] += depth < kept
        if proposals:
            self.deepest = len(proposals) + 1 if kept == len(proposals) else max(kept, 1)
        decided = chosen[: kept + 1]
        self.pending_hidden = step.hidden[: kept + 1]
        self.pending_next = decided
        self.next_token = decided[-1]
        return decided

    def _propose(self, count: int) -> list[int]:
        """Drafts up to `count` tokens after `next_token`.

        The drafter layer first reads the accepted rows with the main layers' hidden state; from there on it reads its own, and
        those rows are taken back."""
        engine = self.engine
        hidden, logits = self._draft_rows(self.pending_hidden, self.pending_next, accepted=True)
        true_rows = engine.mtp_length
        proposals: list[int] = []
        while len(proposals) < count and self._worth(len(proposals)):
            ids, logprobs = native.top_logprobs(logits[-1:], 1)
            if float(logprobs[0, 0]) < np.log(self.confidence):
                break
            proposals.append(int(ids[0, 0]))
            if len(proposals) < count and self._worth(len(proposals)):
                hidden, logits = self._draft_rows(hidden[-1:], proposals[-1:], accepted=False)
        engine.truncate_mtp(true_rows)
        return proposals

    def _worth(self, depth: int) -> bool:
        """Whether to draft at this depth: 0 is the drafter on the main layers' hidden state, n its n-th re-application."""
        return self.worth == 0 or (
            depth < self.deepest and (self.hit[depth] + 1) / (self.tried[depth] + 1) >= self.worth)

    def _draft_rows(self, hidden: np.ndarray, next_tokens: list[int], *, accepted: bool) -> tuple[np.ndarray, np.ndarray]:
        keys = row_keys(self.engine.passes, self.engine.mtp_length, len(next_tokens))
        keys[:, 2] = accepted
        self.mtp_rows.append(keys)
        return self.engine.draft(hidden, next_tokens, tap=self.tap, names=self.names)

    def result(self, tokens: list[int]) -> Generation:
        mtp_rows = np.concatenate(self.mtp_rows) if self.mtp_rows else np.empty((0, 3), np.int32)
        return Generation(np.array(tokens, np.int32), self.forwards, self.drafted, self.accepted, self.first,
                          np.concatenate(self.rows), mtp_rows)


def _best(logits: np.ndarray) -> int:
    """The largest logit, ties to the lower id, NaN last."""
    return int(native.top_logprobs(np.ascontiguousarray(logits)[None], 1)[0][0, 0])
