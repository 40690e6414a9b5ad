"""The quantised products of a model: the four stages through the variant registry, everything else by the `mmvq` contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edge0verify.engine.float_ops import Emit
from edge0verify.model import Model
from edge0verify.records.errors import InputError
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.registry import Choice, resolve
from edge0verify.variants.weights import layer_weights, packed

STAGES = ("D", "A1", "A2", "U")
REFERENCE = "mmvq"


def variant_names(variants: Mapping[Any, str] | None, layer: int | str | None = None) -> dict[str, str]:
    """Names for D, A1, A2, U from a mapping that may say 'A' for both of A1 and A2; what is not named is mmvq.

    A key (layer, stage) holds for that layer alone and wins over the stage's; without `layer` such keys are left out.
    """
    common = {key: name for key, name in (variants or {}).items() if not isinstance(key, tuple)}
    own = {key[1]: name for key, name in (variants or {}).items() if isinstance(key, tuple) and key[0] == layer}
    names = dict.fromkeys(STAGES, REFERENCE)
    for stage, name in (*common.items(), *own.items()):
        if stage == "A":
            names["A1"] = names["A2"] = name
        elif stage in names:
            names[stage] = name
        else:
            raise InputError(f"variants: expected stages D, A, A1, A2, U, found {stage!r}")
    return names


class QuantOps:
    """Stands beside FloatOps.  `choices[stage]` says which variant was asked for and which one runs, where a layer has no own."""

    def __init__(
        self,
        model: Model,
        *,
        kernels: Kernels | None,
        variants: Mapping[Any, str] | None,
        threads: int,
        kernels_for: Callable[[Any, str], Kernels | None] | None,
    ) -> None:
        if not model.quantised:
            raise InputError(f"{model.path}: expected quantised weights for the variants, found float ones (use the float mode)")
        self._model = model
        self.kernels = Kernels(threads=threads) if kernels is None else kernels
        self._kernels_for = kernels_for
        formats = {"D": "latent_down.weight", "U": "latent_up.weight", "A1": model.layer(0, "ffn_gate_exps").name,
                   "A2": model.layer(0, "ffn_down_exps").name}
        self._formats = {stage: model.tensor(name).fmt for stage, name in formats.items()}
        self.choices = self._choose(variant_names(variants))
        layers = {key[0] for key in (variants or {}) if isinstance(key, tuple)}
        unknown = layers - set(model.config.layer_ids)
        if unknown:
            raise InputError(f"variants: expected layers {', '.join(map(str, model.config.layer_ids))}, found {unknown.pop()!r}")
        self._own = {layer: self._choose(variant_names(variants, layer)) for layer in layers}

    def _choose(self, names: Mapping[str, str]) -> dict[str, Choice]:
        choices = {s: resolve(s, names[s], self._formats[s]) for s in STAGES}
        stored, read = choices["A1"].runs.rules.store, choices["A2"].runs.rules.operand
        if stored != read:
            raise InputError(
                f"variants: A2 {names['A2']} expects {read} blocks, A1 {names['A1']} stores {stored} ones; choose both by A"
            )
        return choices

    def choices_of(self, layer: int | str) -> dict[str, Choice]:
        """What was asked for and what runs in one layer."""
        return self._own.get(layer, self.choices)

    def _at(self, layer: int | str, stage: str) -> Kernels:
        return (self._kernels_for(layer, stage) if self._kernels_for else None) or self.kernels

    def linear(self, layer: int | str, part: str, x: np.ndarray) -> np.ndarray:
        """x times attn_q, attn_k, attn_v, attn_output or fc of a layer: float32 [n, K] -> float32 [n, M]."""
        kernels = self._at(layer, "linear")
        name = "mtp.fc.weight" if part == "fc" else self._model.layer(layer, part).name
        return kernels.linear(packed(self._model, name, kernels), x)

    def experts(
        self, layer: int | str, h: np.ndarray, ids: np.ndarray, weights: np.ndarray, emit: Emit, capture: bool
    ) -> np.ndarray:
        """D, A1, A2, U of one layer: h float32 [n, hidden], ids int32 [n, k], weights float32 [n, k] -> u float32 [n, hidden]."""
        run = {stage: choice.runs for stage, choice in self.choices_of(layer).items()}

        def at(stage):
            kernels = self._at(layer, stage)
            return kernels, layer_weights(self._model, layer, kernels)

        kernels, w = at("D")
        if hasattr(kernels, "layer"):                   # all four as one graph, which has every tensor taken inside it
            found = kernels.layer(run, w, h, ids, weights, capture=capture)
            for name, value in found.items():
                emit(name, value)
            return found["u"]
        d = kernels.d(run["D"], w.down, h)
        emit("d-hq", d.hq)
        emit("d-xl", d.xl)
        emit("d-xlq", d.xlq)
        kernels, w = at("A1")
        a1 = kernels.a1(run["A1"], w.gate_exps, w.up_exps, d.xl, d.xlq, ids, capture=capture)
        if capture:
            emit("a-gate", a1.gate)
            emit("a-up", a1.up)
        emit("a-h", a1.h)
        kernels, w = at("A2")
        a2 = kernels.a2(run["A2"], w.down_exps, a1.h, ids, weights)
        emit("a-y", a2.y)
        emit("a-yl", a2.yl)
        kernels, w = at("U")
        u = kernels.u(run["U"], w.up, a2.yl)
        emit("u-ylq", u.ylq)
        emit("u", u.u)
        return u.u
