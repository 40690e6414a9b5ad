"""The forward pass: chunks of tokens through every layer, over caches that can be rolled back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edge0verify.engine import native
from edge0verify.engine.float_ops import FloatOps
from edge0verify.engine.rope import RopeTable, rotate
from edge0verify.engine.route_flags import RouteCount, RouteFlags
from edge0verify.engine.step import Step, row_keys
from edge0verify.model import Model
from edge0verify.records.errors import InputError

Tap = Callable[[Any, str, int, Any], None]
Names = frozenset[str] | None
TOP = 8


class Engine:
    """One model with its caches.

    model: from `load_model`.  kernels: compiled kernels of the stages (default: a `Kernels` of its own).  variants: names per
    stage, keys 'D', 'A' (both of A1 and A2), 'A1', 'A2', 'U', or (layer, stage) for one layer; default 'mmvq'.  float_mode:
    decoded weights, no activation quantisation.  threads: default all processors.  chunk: tokens that go through all layers
    together; no result depends on it.
    kernels_for(layer, stage): other kernels for one layer's stage ('D', 'A1', 'A2', 'U', 'linear'), or None.
    route: flags that change routes by design; `routed` counts what they did.

    Everything but the four stages is the same for every variant; see kernels/engine/README.md for the order of operations.
    """

    def __init__(
        self,
        model: Model,
        *,
        kernels: Any = None,
        variants: Mapping[Any, str] | None = None,
        float_mode: bool = False,
        threads: int | None = None,
        chunk: int = 512,
        kernels_for: Callable[[Any, str], Any] | None = None,
        route: RouteFlags | None = None,
    ) -> None:
        if chunk < 1:
            raise InputError(f"chunk: expected at least 1 token, found {chunk}")
        c = model.config
        self.model = model
        self.config = c
        self.chunk = chunk
        self.threads = native.default_threads() if threads is None else threads
        self.float_mode = float_mode
        self.route = route if route is not None and route.changes else None
        self.routed = RouteCount()
        if float_mode:
            self.ops: Any = FloatOps(model, self.threads)
        else:
            from edge0verify.engine.quant_ops import QuantOps  # the float mode needs none of the compiled variants

            self.ops = QuantOps(model, kernels=kernels, variants=variants, threads=self.threads, kernels_for=kernels_for)
        self._norms = {name: np.ascontiguousarray(model.tensor(name).values()) for name in model.tensors if "norm" in name}
        self._embedding = model.tensor("tok_embd.weight").values()
        self._routers = {layer: _packed(model, model.layer(layer, "ffn_gate_inp").name) for layer in c.layer_ids}
        self._output = _packed(model, "output.weight")
        self._rope = RopeTable(c.rope_theta, c.head_dim)
        self.reset()

    def reset(self) -> None:
        """Forgets everything that was read."""
        self._caches = {layer: native.KvCache(self.config.kv_heads, self.config.head_dim) for layer in self.config.layer_ids}
        self.passes = 0

    @property
    def length(self) -> int:
        """Tokens the main layers hold."""
        return self._caches[0].length

    @property
    def mtp_length(self) -> int:
        """Rows the drafter layer holds; row j belongs to position j."""
        return self._caches["mtp"].length

    def truncate(self, length: int) -> None:
        """Takes the main layers back to `length` tokens."""
        for layer in range(self.config.layers):
            self._caches[layer].truncate(length)

    def truncate_mtp(self, length: int) -> None:
        """Takes the drafter layer back to `length` rows."""
        self._caches["mtp"].truncate(length)

    def prefill(
        self,
        tokens: Sequence[int] | np.ndarray,
        *,
        tap: Tap | None = None,
        all_logits: bool = False,
        mtp: bool = False,
        names: Names = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Step:
        """Reads a prompt from the start; one pass, whatever the chunks.

        tap(layer, name, first_position, value): called for every tensor in `names` (default all; a-gate and a-up cost time) with
        arrays or Blocks that belong to the caller.  mtp: also run the drafter layer over all rows whose next token is known.
        progress(done, total) after each chunk.
        """
        ids = self._checked(tokens)
        self.reset()
        hidden = np.empty((len(ids), self.config.hidden), np.float32)
        logits = np.empty((len(ids), self.config.vocab), np.float32) if all_logits else None
        for at in range(0, len(ids), self.chunk):
            end = min(at + self.chunk, len(ids))
            hidden[at:end] = self._layers(ids[at:end], tap, names)
            if logits is not None:
                logits[at:end] = self._head(hidden[at:end], "output_norm.weight")
            rows = min(end, len(ids) - 1) - at
            if mtp and rows > 0:
                self._drafter_layer(hidden[at : at + rows], ids[at + 1 : at + 1 + rows], tap, names)
            if progress is not None:
                progress(end, len(ids))
        return self._step(hidden, logits, 0)

    def forward(
        self, tokens: Sequence[int] | np.ndarray, *, tap: Tap | None = None, all_logits: bool = True, names: Names = None
    ) -> Step:
        """Reads further tokens in one batch on top of the caches: one pass."""
        ids = self._checked(tokens)
        first = self.length
        hidden = self._layers(ids, tap, names)
        return self._step(hidden, self._head(hidden, "output_norm.weight") if all_logits else None, first)

    def draft(
        self, hidden: np.ndarray, next_tokens: Sequence[int] | np.ndarray, *, tap: Tap | None = None, names: Names = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Drafter rows on top of its cache.

        hidden float32 [n, hidden]: of positions mtp_length .. mtp_length+n-1, before the final norm (or the drafter's own output,
        to draft further); next_tokens: the token after each.  Returns the layer's output float32 [n, hidden] and logits float32
        [n, vocab] for the token after that.
        """
        out = self._drafter_layer(np.ascontiguousarray(hidden, dtype=np.float32), self._checked(next_tokens), tap, names)
        return out, self._head(out, "mtp.output_norm.weight")

    # ---- parts -----------------------------------------------------------------------------------------------------------------
    def _checked(self, tokens) -> np.ndarray:
        ids = np.asarray(tokens)
        if ids.ndim != 1 or not len(ids) or not np.issubdtype(ids.dtype, np.integer):
            raise InputError(f"tokens: expected a list of at least one token id, found {ids.dtype} of shape {list(ids.shape)}")
        wrong = np.flatnonzero((ids < 0) | (ids >= self.config.vocab))
        if wrong.size:
            at = int(wrong[0])
            raise InputError(f"tokens: expected ids 0..{self.config.vocab - 1}, found {int(ids[at])} at position {at}")
        return ids.astype(np.int32)

    def _layers(self, ids: np.ndarray, tap: Tap | None, names: Names) -> np.ndarray:
        x = self._embed(ids, 0)
        for layer in range(self.config.layers):
            x = self._layer(layer, self._enter(layer, x), tap, names)
        return x

    def _embed(self, ids: np.ndarray, layer: int | str) -> np.ndarray:
        """Embedding rows of int32 ids for the layer that reads them: float32 [n, hidden]."""
        return self._embedding[ids]

    def _enter(self, layer: int | str, x: np.ndarray) -> np.ndarray:
        """The rows that a layer is given; a split hands them to the layer's device."""
        return x

    def _layer(self, layer: int | str, x: np.ndarray, tap: Tap | None, names: Names) -> np.ndarray:
        """One layer over rows that follow those in its cache; x float32 [n, hidden] is taken over."""
        c, threads, ops = self.config, self.threads, self.ops
        cache = self._caches[layer]
        first = cache.length

        def emit(name: str, value) -> None:
            if tap is not None and (names is None or name in names):
                tap(layer, name, first, value)

        capture = tap is not None and (names is None or bool(names & {"a-gate", "a-up"}))
        prefix = f"blk.{layer}." if layer != "mtp" else "mtp.blk."
        h = native.rmsnorm(x, self._norms[prefix + "attn_norm.weight"], c.eps, threads)
        q, k, v = (ops.linear(layer, part, h) for part in ("attn_q", "attn_k", "attn_v"))
        cos, sin = self._rope.rows(first, len(x))
        rotate(q, cos, sin, c.heads, threads)
        rotate(k, cos, sin, c.kv_heads, threads)
        cache.append(k, v)
        mixed = native.attention(q, cache, c.heads, c.attn_scale, threads)
        native.add(x, ops.linear(layer, "attn_output", mixed), threads)
        h = native.rmsnorm(x, self._norms[prefix + "ffn_norm.weight"], c.eps, threads)
        emit("ffn-in", h)
        logits = native.dense(self._routers[layer], h, threads)
        ids, weights = self._routes(layer, logits)
        emit("route-logits", logits)
        emit("route-ids", ids)
        emit("route-weights", weights)
        native.add(x, ops.experts(layer, h, ids, weights, emit, capture), threads)
        return x

    def _routes(self, layer: int | str, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.route is None:
            return native.route(logits, self.config.k, self.threads)
        made = self.route.choose(layer, logits, self.config.k, self.threads)
        self.routed.add(made)
        return made.ids, made.weights

    def _drafter_layer(self, hidden: np.ndarray, next_tokens: np.ndarray, tap: Tap | None, names: Names) -> np.ndarray:
        if not self.config.mtp_layers:
            raise InputError(f"{self.model.path}: expected a drafter layer (mtp), the model has none")
        norms, eps = self._norms, self.config.eps
        h = native.rmsnorm(hidden, norms["mtp.norm_h.weight"], eps, self.threads)
        e = native.rmsnorm(self._embed(next_tokens, "mtp"), norms["mtp.norm_e.weight"], eps, self.threads)
        return self._layer("mtp", self.ops.linear("mtp", "fc", np.concatenate([h, e], axis=1)), tap, names)

    def _head(self, hidden: np.ndarray, norm: str) -> np.ndarray:
        return native.dense(self._output, native.rmsnorm(hidden, self._norms[norm], self.config.eps, self.threads), self.threads)

    def _step(self, hidden: np.ndarray, logits: np.ndarray | None, first: int) -> Step:
        last = self._head(hidden[-1:], "output_norm.weight")[0] if logits is None else logits[-1]
        ids, logprobs = native.top_logprobs(last[None], min(TOP, len(last)))
        self.passes += 1
        return Step(last, ids[0], logprobs[0], logits, hidden, row_keys(self.passes - 1, first, len(hidden)))


def _packed(model: Model, name: str) -> native.Dense:
    return native.Dense(np.ascontiguousarray(model.tensor(name).values())[None])
