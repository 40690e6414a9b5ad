"""What the route flags do: a router that leaves small experts out, or favours experts that are at hand.

Both change the output by design, so a difference that they make is no fault; what they may do is still a rule, and a route that
does not follow it is one.

STRATA_ROUTE_TAIL_SKIP=x (0..1): of a token's chosen experts, those whose weight is below x times the largest are skipped.  Their
weight is +0 and the others are divided by their float32 sum, in slot order.  The rows of skipped experts are still formed, so that
a dump keeps its shape; fma(+0, y, acc) leaves every accumulator as it was.

STRATA_ROUTE_PRIOR=x (at least 0) with STRATA_ROUTE_RESIDENT=EXPERTS: x is added to the logits of the resident experts (float32)
before the largest k are chosen, ties to the lower id as ever.  The weights are those that the router's own logits give to the
chosen ones: the prior decides who is asked, not how much an answer counts.

A token that a flag leaves alone keeps every bit of its route.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edge0verify.engine import native
from edge0verify.model import Config
from edge0verify.records.errors import InputError
from edge0verify.variants.flags import PRIOR, RESIDENT, TAIL_SKIP


@dataclass(frozen=True, kw_only=True)
class RouteFlags:
    """The route flags of one run; the default changes nothing."""

    tail_skip: float = 0.0
    prior: float = 0.0
    resident: Mapping[int | str | None, tuple[int, ...]] = field(default_factory=dict)
    """Experts by layer; None stands for every layer that is not named."""

    @classmethod
    def of(cls, flags: Mapping[str, str | None], config: Config) -> RouteFlags:
        """From flags as `variants.flags.read_flags` gives them; InputError for a value that has no meaning here."""
        return cls(
            tail_skip=_number(TAIL_SKIP, flags.get(TAIL_SKIP), most=1.0),
            prior=_number(PRIOR, flags.get(PRIOR), most=math.inf),
            resident=read_resident(flags.get(RESIDENT), config),
        )

    @property
    def changes(self) -> bool:
        """Whether any route can come out other than without flags."""
        return self.tail_skip > 0 or (self.prior > 0 and any(self.resident.values()))

    def idle(self) -> str:
        """Why a flag that is set cannot act; empty where there is nothing to say."""
        if self.prior > 0 and not any(self.resident.values()):
            return f"{PRIOR}={self.prior:g}: no expert is resident ({RESIDENT} names none), so it changes nothing"
        return ""

    def residents(self, layer: int | str) -> tuple[int, ...]:
        """The experts that the prior favours in one layer."""
        return self.resident.get(layer, self.resident.get(None, ())) if self.prior > 0 else ()

    def favoured(self, layer: int | str, logits: np.ndarray) -> np.ndarray:
        """The logits that the choice is made from: float32 [n, experts], the given array where no prior acts."""
        resident = list(self.residents(layer))
        if not resident:
            return logits
        raised = logits.copy()
        raised[:, resident] += np.float32(self.prior)
        return raised

    def choose(self, layer: int | str, logits: np.ndarray, k: int, threads: int) -> Chosen:
        """Experts and weights of one layer's tokens from the router's logits float32 [n, experts]."""
        plain_ids, weights = native.route(logits, k, threads)
        ids = plain_ids
        if self.residents(layer):
            ids, _ = native.route(self.favoured(layer, logits), k, threads)
            other = (ids != plain_ids).any(axis=1)
            if other.any():
                weights[other] = _weights_of(np.take_along_axis(logits[other], ids[other], axis=1), threads)
        skipped = self.skipped(weights)
        short = skipped.any(axis=1)
        if short.any():
            left = np.where(skipped[short], np.float32(0), weights[short])
            weights[short] = left / _serial_sum(left)
        return Chosen(ids, weights, plain_ids, skipped)

    def skipped(self, weights: np.ndarray) -> np.ndarray:
        """bool like weights float32 [n, k]: below `tail_skip` times the row's largest.  A row with a NaN skips nothing."""
        if self.tail_skip <= 0:
            return np.zeros(weights.shape, bool)
        return weights < np.float32(self.tail_skip) * weights.max(axis=1, keepdims=True)


PLAIN = RouteFlags()
"""No flag is set."""


@dataclass(frozen=True)
class Chosen:
    """One layer's routes: ids int32 [n, k], weights float32 [n, k], the ids without flags, and which pairs are skipped."""

    ids: np.ndarray
    weights: np.ndarray
    plain_ids: np.ndarray
    skipped: np.ndarray


@dataclass
class RouteCount:
    """How much the flags did in a run so far, over all layers and passes.  A row is one token in one layer."""

    rows: int = 0
    acted: int = 0
    """Rows whose route the flags changed."""
    pairs: int = 0
    skipped: int = 0
    exchanged: int = 0
    """Pairs of an expert that the router alone would not have chosen."""

    def add(self, made: Chosen) -> None:
        new = ~(made.ids[:, :, None] == made.plain_ids[:, None, :]).any(axis=2)
        self.rows += len(made.ids)
        self.acted += int(((made.ids != made.plain_ids).any(axis=1) | made.skipped.any(axis=1)).sum())
        self.pairs += made.ids.size
        self.skipped += int(made.skipped.sum())
        self.exchanged += int(new.sum())


def read_resident(text: str | None, config: Config) -> dict[int | str | None, tuple[int, ...]]:
    """'0-7,12' for every layer, or 'LAYER:EXPERTS/LAYER:EXPERTS' with layers 0.. and mtp; {} for none.

    InputError for a layer or an expert that the model does not have, or one that is named twice.
    """
    found: dict[int | str | None, tuple[int, ...]] = {}
    for part in text.split("/") if text else ():
        where, colon, experts = part.rpartition(":")
        layer: int | str | None = None
        if colon:
            layer = int(where) if where.isdecimal() else where
            if layer not in config.layer_ids:
                known = ", ".join(map(str, config.layer_ids))
                raise InputError(f"flag {RESIDENT}: expected a layer of {known} before the colon, found {where!r}")
        if layer in found:
            raise InputError(f"flag {RESIDENT}: expected each layer once, found {where or 'a list for all layers'!r} twice")
        found[layer] = _experts(experts, config.experts)
    return found


def _experts(text: str, count: int) -> tuple[int, ...]:
    found: list[int] = []
    for word in text.split(","):
        first, _, last = word.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise InputError(f"flag {RESIDENT}: expected experts such as 0-7,12, found {word!r}")
        found += range(int(first), min(int(last or first), count) + 1)
        if int(last or first) >= count or int(first) > int(last or first):
            raise InputError(f"flag {RESIDENT}: expected experts 0 to {count - 1}, lowest first, found {word!r}")
    if len(set(found)) != len(found):
        raise InputError(f"flag {RESIDENT}: expected each expert once, found {text!r}")
    return tuple(sorted(found))


def _number(name: str, text: str | None, *, most: float) -> float:
    if text in (None, ""):
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value <= most) or math.isinf(value):
        wanted = f"a number from 0 to {most:g}" if most < math.inf else "a number of at least 0"
        raise InputError(f"flag {name}: expected {wanted}, found {text!r}")
    return value


def _weights_of(logits: np.ndarray, threads: int) -> np.ndarray:
    """The route weights of experts with these logits, float32 [n, k] in the order given: the router's own rule among them alone,
    so that experts far below the largest logit do not vanish together."""
    order, sorted_weights = native.route(logits, logits.shape[1], threads)
    weights = np.empty_like(sorted_weights)
    np.put_along_axis(weights, order.astype(np.int64), sorted_weights, axis=1)
    return weights


def _serial_sum(weights: np.ndarray) -> np.ndarray:
    """float32 [n, 1]: the sum in slot order; numpy's own order of a sum is not promised."""
    total = np.zeros(len(weights), np.float32)
    for slot in range(weights.shape[1]):
        total = total + weights[:, slot]
    return total[:, None]
