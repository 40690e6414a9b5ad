"""One side of a dumped layer, judged alone: its own operands, own oracle and bound for each tensor that a stage writes.

Operands are formed from the dumped stage inputs by the declared quantiser; where an input was not dumped but its quantised form
was, that form is taken. What cannot be formed is left out, and the comparison then says that nothing bounds the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge0verify.engine.route_flags import PLAIN, RouteFlags
from edge0verify.model import Model
from edge0verify.numerics.blocks import Blocks
from edge0verify.numerics.contracts import Contract, contract
from edge0verify.numerics.quantise import quantise
from edge0verify.records.evidence import Side
from edge0verify.study import bias, oracle
from edge0verify.study.misread import misreadings

EPS = 2.0**-24
Value = np.ndarray | Blocks


@dataclass(frozen=True)
class Own:
    """A side of one tensor, and the value that its stage's f32 input gives without quantised activations."""

    side: Side
    truth: np.ndarray | None = None


class Shared:
    """Results by what they were formed from; both sides of a layer use one, so equal inputs are worked on once."""

    def __init__(self) -> None:
        self._known: dict[tuple, tuple[Any, tuple]] = {}

    def get(self, what: tuple, inputs: tuple, make: Callable[[], Any]) -> Any:
        """`make()`, or what it gave for the same `what` and the very same input objects."""
        key = (*what, *(id(part) for part in inputs))
        if key not in self._known:
            self._known[key] = (make(), inputs)           # holds the inputs, so that no id is given away again
        return self._known[key][0]


@dataclass(frozen=True, kw_only=True)
class OwnLayer:
    """One layer of one side. `tensors` holds what was dumped, whole; pairs token-major."""

    model: Model | None
    layer: int | str
    tensors: Mapping[str, Value]
    variants: Mapping[str, str]
    """Variant of D, A1, A2, U; a stage that is not named has no contract to be judged by."""
    token: np.ndarray | None
    """int [pairs]: token row of each pair."""
    experts: np.ndarray | None
    shared: Shared
    threads: int
    route: RouteFlags | None = PLAIN
    """By which rule experts are chosen; None where it is not known."""

    def of(self, tensor: str) -> Own:
        """The side of one tensor; unknown names have neither oracle nor bound."""
        makers = {
            "route-logits": self._logits, "route-ids": self._ids, "route-weights": self._weights,
            "d-hq": lambda: self._operand("D", "ffn-in", "d-hq"), "d-xl": lambda: self._product("D", "d-xl"),
            "d-xlq": self._latent, "a-gate": lambda: self._half("gate"), "a-up": lambda: self._half("up"), "a-h": self._hidden,
            "a-y": self._expert_rows, "a-yl": self._expert_sum,
            "u-ylq": lambda: self._operand("U", "a-yl", "u-ylq"), "u": lambda: self._product("U", "u"),
        }
        return makers[tensor]() if tensor in makers else Own(self._plain(tensor))

    def _plain(self, tensor: str, **more: Any) -> Side:
        value = self.tensors[tensor]
        if isinstance(value, Blocks):
            return Side(blocks=value, **more)
        return Side(ids=value, **more) if value.dtype.kind in "iu" else Side(rows=value, **more)

    def _contract(self, stage: str) -> Contract | None:
        return contract(stage, self.variants[stage]) if stage in self.variants else None

    # ---- D and U -----------------------------------------------------------------------------------------------------------

    def _declared(self, stage: str, source: str) -> Blocks | None:
        c = self._contract(stage)
        if c is None or source not in self.tensors:
            return None
        x = self.tensors[source]
        return self.shared.get(("quantise", c.operand), (x,), lambda: quantise(c.operand, x))

    def _operands(self, stage: str) -> Blocks | None:
        """What the product of D or U read: the declared quantiser of its input, else the operand that was dumped."""
        source, stored = ("ffn-in", "d-hq") if stage == "D" else ("a-yl", "u-ylq")
        declared = self._declared(stage, source)
        return self.tensors.get(stored) if declared is None else declared

    def _operand(self, stage: str, source: str, tensor: str) -> Own:
        c, exact = self._contract(stage), self._declared(stage, source)
        return Own(self._plain(tensor) if exact is None else self._plain(tensor, exact=exact, store=c.operand))

    def _rows_of(self, stage: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
        """(t, bound, truth) of d-xl or u."""
        source, weight = ("ffn-in", "latent_down.weight") if stage == "D" else ("a-yl", "latent_up.weight")
        c, operands = self._contract(stage), self._operands(stage)
        if c is None or operands is None or self.model is None:
            return None
        tensor = self.model.tensor(weight)
        t, s = self._sums(c, tensor, operands, None)
        x = self.tensors.get(source)
        truth = None if x is None else self.shared.get(
            ("truth", weight), (x,), lambda: oracle.float_rows(tensor, x, threads=self.threads)
        )
        return t, oracle.bound_of(c, tensor, s), truth

    def _product(self, stage: str, tensor: str) -> Own:
        found = self._rows_of(stage)
        if found is None:
            return Own(self._plain(tensor))
        weights = self.model.tensor("latent_down.weight" if stage == "D" else "latent_up.weight")
        operands = self._operands(stage)
        tested = self._bias(self._contract(stage), weights, operands, tensor)
        asked = _asked(weights, operands)
        return Own(self._plain(tensor, t=found[0], bound=found[1], bias=tested, **asked), found[2])

    def _bias(
        self, c: Contract, weights, operands: Blocks, tensor: str, experts: np.ndarray | None = None
    ) -> dict[str, Any] | None:
        """The bias test of a row tensor; None of rows that were not dumped as the kernel wrote them."""
        rows = self.tensors[tensor]
        if rows.dtype != np.float32 or rows.shape != (operands.rows, weights.shape[-2]):
            return None
        return bias.rows_bias(c, weights, operands, rows, experts=experts, threads=self.threads)

    def _latent(self) -> Own:
        c, found = self._contract("D"), self._rows_of("D")
        more: dict[str, Any] = {} if c is None else {"store": c.store, "rows": self.tensors.get("d-xl")}
        if found is None:
            return Own(self._plain("d-xlq", **more))
        more |= _asked(self.model.tensor("latent_down.weight"), self._operands("D"))
        return Own(self._plain("d-xlq", t=found[0], bound=found[1], **more), found[2])

    def _sums(self, c: Contract, tensor, blocks: Blocks, experts: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        inputs = (blocks,) if experts is None else (blocks, experts)
        what = ("sums", tensor.name, c.granularity)
        return self.shared.get(what, inputs, lambda: oracle.own_sums(c, tensor, blocks, experts=experts, threads=self.threads))

    # ---- A1 ----------------------------------------------------------------------------------------------------------------

    def _pair_operands(self) -> Blocks | None:
        """What A1's products read, a row per pair."""
        c = self._contract("A1")
        source = "d-xl" if c is not None and c.operand == "mmq" else "d-xlq"
        if c is None or self.model is None or self.token is None or source not in self.tensors:
            return None
        x, token = self.tensors[source], self.token

        def operands() -> Blocks:
            return (quantise("mmq", x) if c.operand == "mmq" else x).take(token)

        return self.shared.get(("operands", c.operand), (x, token), operands)

    def _half_sums(self, part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
        """(t, bound, truth) of the gate or up rows."""
        c, operands = self._contract("A1"), self._pair_operands()
        if operands is None:
            return None
        tensor = self.model.layer(self.layer, f"ffn_{part}_exps")
        t, s = self._sums(c, tensor, operands, self.experts)
        return t, oracle.bound_of(c, tensor, s), self._half_truth(part)

    def _half_truth(self, part: str) -> np.ndarray | None:
        xl, token, experts = self.tensors.get("d-xl"), self.token, self.experts
        if xl is None or self.model is None or token is None:
            return None
        tensor = self.model.layer(self.layer, f"ffn_{part}_exps")
        return self.shared.get(
            ("truth", part), (xl, token, experts),
            lambda: oracle.float_rows(tensor, xl[token], experts=experts, threads=self.threads),
        )

    def _half(self, part: str) -> Own:
        found = self._half_sums(part)
        if found is None:
            return Own(self._plain(f"a-{part}"))
        weights = self.model.layer(self.layer, f"ffn_{part}_exps")
        operands = self._pair_operands()
        tested = self._bias(self._contract("A1"), weights, operands, f"a-{part}", self.experts)
        asked = _asked(weights, operands, self.experts)
        return Own(self._plain(f"a-{part}", t=found[0], bound=found[1], bias=tested, **asked), found[2])

    def _hidden_truth(self) -> np.ndarray | None:
        gate, up = self._half_truth("gate"), self._half_truth("up")
        if gate is None or up is None:
            return None
        return self.shared.get(("truth", "h"), (gate, up), lambda: oracle.swiglu_value(gate, up, threads=self.threads))

    def _hidden(self) -> Own:
        c, gate, up = self._contract("A1"), self._half_sums("gate"), self._half_sums("up")
        if gate is None or up is None:
            return Own(self._plain("a-h"))
        t, bound = oracle.swiglu(*gate[:2], *up[:2], threads=self.threads)
        return Own(self._plain("a-h", t=t, bound=bound, store=c.store), self._hidden_truth())

    # ---- A2 ----------------------------------------------------------------------------------------------------------------

    def _expert_sums(self) -> tuple[Contract, Any, np.ndarray, np.ndarray] | None:
        c = self._contract("A2")
        if c is None or self.model is None or self.token is None or "a-h" not in self.tensors:
            return None
        tensor = self.model.layer(self.layer, "ffn_down_exps")
        return c, tensor, *self._sums(c, tensor, self.tensors["a-h"], self.experts)

    def _row_truth(self) -> np.ndarray | None:
        h, experts = self._hidden_truth(), self.experts
        if h is None or self.model is None:
            return None
        tensor = self.model.layer(self.layer, "ffn_down_exps")
        return self.shared.get(
            ("truth", "y"), (h, experts), lambda: oracle.float_rows(tensor, h, experts=experts, threads=self.threads)
        )

    def _expert_rows(self) -> Own:
        found = self._expert_sums()
        if found is None:
            return Own(self._plain("a-y"))
        c, tensor, t, s = found
        tested = self._bias(c, tensor, self.tensors["a-h"], "a-y", self.experts)
        asked = _asked(tensor, self.tensors["a-h"], self.experts)
        return Own(self._plain("a-y", t=t, bound=oracle.bound_of(c, tensor, s), bias=tested, **asked), self._row_truth())

    def _expert_sum(self) -> Own:
        found, weights = self._expert_sums(), self.tensors.get("route-weights")
        if found is None or weights is None or weights.size != len(found[2]):
            return Own(self._plain("a-yl"))
        c, tensor, t, s = found
        ty, by = oracle.expert_sum(c, tensor, t, s, weights, threads=self.threads)
        truth = self._row_truth()
        if truth is not None:
            truth = np.einsum("nk,nkm->nm", weights.astype(np.float64), truth.reshape(*weights.shape, -1))
        return Own(self._plain("a-yl", t=ty, bound=by, bias=self._sum_bias(c, weights)), truth)

    def _sum_bias(self, c: Contract, weights: np.ndarray) -> dict[str, Any] | None:
        """The bias test of a-yl over the dumped a-y; None where that is not there."""
        y, yl, ids = (self.tensors.get(name) for name in ("a-y", "a-yl", "route-ids"))
        if y is None or ids is None or ids.shape != weights.shape or len(yl) != len(ids) or y.shape != (ids.size, yl.shape[1]):
            return None
        if not (y.dtype == yl.dtype == weights.dtype == np.float32):
            return None
        return bias.expert_sum_bias(c, y, weights, ids, yl, threads=self.threads)

    # ---- route -------------------------------------------------------------------------------------------------------------

    def _logits(self) -> Own:
        """Serial fma over K in float32: K roundings on the longest path."""
        x = self.tensors.get("ffn-in")
        if x is None or self.model is None:
            return Own(self._plain("route-logits"))
        weights = self.model.layer(self.layer, "ffn_gate_inp").values().astype(np.float64)
        t, s = self.shared.get(("router",), (x,), lambda: router_sums(weights, x))
        n = weights.shape[1]
        bound = s * (n * EPS / (1 - n * EPS)) + n * 2.0**-149
        return Own(self._plain("route-logits", t=t, bound=bound), t)

    def _ids(self) -> Own:
        logits = self.tensors.get("route-logits")
        chosen = None
        if logits is not None and self.route is not None:
            chosen = largest(self.route.favoured(self.layer, logits), self.tensors["route-ids"].shape[1])
        return Own(self._plain("route-ids", chosen=chosen))

    def _weights(self) -> Own:
        """Softmax over all experts, the chosen ones made to add up to 1: E within an ulp, each sum and quotient a rounding. Experts
        that a flag skips have weight 0, and the others add up to 1 again."""
        logits, ids = self.tensors.get("route-logits"), self.tensors.get("route-ids")
        known = logits is not None and ids is not None and self.route is not None
        if not known or not ((ids >= 0) & (ids < logits.shape[1])).all():
            return Own(self._plain("route-weights"))
        chosen = np.take_along_axis(logits.astype(np.float64), ids, axis=1)
        with np.errstate(invalid="ignore", over="ignore"):
            spread = logits.astype(np.float64).max(axis=1, keepdims=True) - chosen
            e = np.exp(chosen - chosen.max(axis=1, keepdims=True))
        # The difference to the largest logit is rounded before E takes it, which E scales by its size; the sum over the experts
        # cancels between numerator and denominator.
        n = 2 * (2 + spread.max(axis=1, keepdims=True)) + 2 + ids.shape[1]
        if self.route.tail_skip > 0:
            e = np.where(self._skipped(e, n * EPS), 0.0, e)
            n = n + 1 + ids.shape[1]
        with np.errstate(invalid="ignore"):
            t = e / e.sum(axis=1, keepdims=True)
        return Own(self._plain("route-weights", t=t, bound=t * (n * EPS / (1 - n * EPS)) + 4 * logits.shape[1] * 2.0**-149))

    def _skipped(self, e: np.ndarray, reach: np.ndarray) -> np.ndarray:
        """bool [n, k]: experts with less than the flag's share e of the largest; within `reach` of the border, those that were."""
        border = float(np.float32(self.route.tail_skip))
        near = np.abs(e - border) <= 2 * border * reach
        return np.where(near, self.tensors["route-weights"] == 0, e < border)


def _asked(tensor, blocks: Blocks, experts: np.ndarray | None = None) -> dict[str, Any]:
    """What is asked of a product only where it is wrong."""
    return {"terms": oracle.block_terms(tensor, blocks, experts=experts), "misread": misreadings(tensor, blocks, experts=experts)}


def router_sums(weights: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(t, s) float64 [n, experts]: x float32 [n, K] times weights float64 [experts, K], and the sums of magnitudes."""
    wide = x.astype(np.float64)
    return np.einsum("nk,ek->ne", wide, weights), np.einsum("nk,ek->ne", np.abs(wide), np.abs(weights))


def largest(logits: np.ndarray, k: int) -> np.ndarray:
    """int32 [n, k]: the k largest of each row, ties to the lower id, NaN last."""
    key = np.where(np.isnan(logits), -np.inf, logits)
    return np.argsort(-key, axis=1, kind="stable")[:, :k].astype(np.int32)
