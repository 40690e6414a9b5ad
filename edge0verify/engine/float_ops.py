"""The float mode: decoded weights, no activation quantisation, every product a serial fma over K in float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edge0verify.engine import native
from edge0verify.model import Model

Emit = Callable[[str, object], None]


class FloatOps:
    """The products of a model in float32.  Stands beside QuantOps: the forward pass knows only `linear` and `experts`."""

    def __init__(self, model: Model, threads: int) -> None:
        self._model = model
        self._threads = threads
        self._packed: dict[str, native.Dense] = {}

    def _dense(self, name: str) -> native.Dense:
        if name not in self._packed:
            values = np.ascontiguousarray(self._model.tensor(name).values())
            self._packed[name] = native.Dense(values if values.ndim == 3 else values[None])
        return self._packed[name]

    def _of(self, layer: int | str, part: str) -> native.Dense:
        return self._dense(self._model.layer(layer, part).name)

    def linear(self, layer: int | str, part: str, x: np.ndarray) -> np.ndarray:
        """x times attn_q, attn_k, attn_v, attn_output or fc of a layer: float32 [n, K] -> float32 [n, M]."""
        return native.dense(self._dense("mtp.fc.weight") if part == "fc" else self._of(layer, part), x, self._threads)

    def experts(
        self, layer: int | str, h: np.ndarray, ids: np.ndarray, weights: np.ndarray, emit: Emit, capture: bool
    ) -> np.ndarray:
        """D, A1, A2, U of one layer: h float32 [n, hidden], ids int32 [n, k], weights float32 [n, k] -> u float32 [n, hidden]."""
        threads = self._threads
        n, k = ids.shape
        expert = ids.reshape(-1)
        xl = native.dense(self._dense("latent_down.weight"), h, threads)
        emit("d-xl", xl)
        token = np.repeat(np.arange(n, dtype=np.int32), k)
        gate = native.dense_experts(self._of(layer, "ffn_gate_exps"), xl, expert, token, threads)
        up = native.dense_experts(self._of(layer, "ffn_up_exps"), xl, expert, token, threads)
        emit("a-gate", gate)
        emit("a-up", up)
        act = native.swiglu(gate, up, threads)
        emit("a-h", act)
        y = native.dense_experts(self._of(layer, "ffn_down_exps"), act, expert, np.arange(n * k, dtype=np.int32), threads)
        emit("a-y", y)
        yl = native.weighted_sum(y, weights, threads)
        emit("a-yl", yl)
        u = native.dense(self._dense("latent_up.weight"), yl, threads)
        emit("u", u)
        return u
