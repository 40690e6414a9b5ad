"""A layer's weights, packed for a set of compiled kernels and kept as long as the model is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from edge0verify.model import Model

from .kernels import Kernels

_packed: WeakKeyDictionary[Model, WeakKeyDictionary[Any, dict[str, Any]]] = WeakKeyDictionary()
"""Model -> compiled module or device -> tensor name -> weights.  Held weakly: a device that is gone takes its weights along."""


@dataclass(frozen=True)
class LayerWeights:
    """Packed weights of the stages of one layer; each has `.fmt`, `.rows`, `.k` and `.experts`."""

    down: Any
    up: Any
    gate_exps: Any
    up_exps: Any
    down_exps: Any


def packed(model: Model, name: str, kernels: Kernels) -> Any:
    """The tensor called `name`, packed once per model and compiled module (a module takes only weights it packed itself)."""
    cache = _packed.setdefault(model, WeakKeyDictionary()).setdefault(kernels.native, {})
    if name not in cache:
        tensor = model.tensor(name)
        cache[name] = kernels.pack(tensor.fmt, tensor.raw)
    return cache[name]


def use_anothers(model: Model, name: str, kernels: Kernels, owner: Kernels) -> None:
    """Makes `kernels` use the pointer that `owner` has for a tensor: the mistake of one pointer for all devices, for tests."""
    _packed.setdefault(model, WeakKeyDictionary()).setdefault(kernels.native, {})[name] = packed(model, name, owner)


def layer_weights(model: Model, layer: int | str, kernels: Kernels) -> LayerWeights:
    """Weights of D, A1, A2 and U of `layer` (an index or 'mtp')."""
    parts = (model.layer(layer, part).name for part in ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"))
    gate, up, down = (packed(model, name, kernels) for name in parts)
    return LayerWeights(packed(model, "latent_down.weight", kernels), packed(model, "latent_up.weight", kernels), gate, up, down)
