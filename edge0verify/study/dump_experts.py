"""Experts that a dumped layer names: refused where they cannot be an input, and kept out of what is judged where they are none."""

from __future__ import annotations

import numpy as np

from edge0verify.dump import levels
from edge0verify.dump.ids import refuse_invalid
from edge0verify.model import Model
from edge0verify.study.dump_rows import LayerJoin, SideRows
from edge0verify.study.dump_tensors import nonfinite

Places = list[tuple[np.ndarray | None, np.ndarray | None]]
"""Of a and of b: token row and expert of each pair, where they are known."""


def refuse(side: SideRows, limit: int | None) -> None:
    """InputError for route-ids that cannot be an input. Where a logit is NaN the fault is the router's, and is left to it."""
    if not side.has("route-ids") or side.dump.is_blocks(side.layer, "route-ids"):
        return
    ids = side.read("route-ids")
    if side.has("route-logits"):
        from_nan = nonfinite(side.read("route-logits"))
        ids = np.where(from_nan[:, None], np.arange(ids.shape[1]), ids) if len(from_nan) == len(ids) else ids
    refuse_invalid(ids, limit, f"{side.dump.path}: {levels.layer_path(side.layer)}/route-ids")


def none_of(experts: np.ndarray, model: Model | None) -> np.ndarray:
    """bool [pairs]: not one of the model's experts."""
    limit = np.iinfo(np.int32).max if model is None else model.config.experts
    return (experts < 0) | (experts >= limit)


def in_range(experts: np.ndarray | None, model: Model | None) -> np.ndarray | None:
    """The same with some expert in the place of those that are none: their rows are not judged."""
    if experts is None or not none_of(experts, model).any():
        return experts
    return np.where(none_of(experts, model), 0, experts)


def tokens_of_none(join: LayerJoin, places: Places, model: Model | None) -> np.ndarray:
    """bool [joined tokens]: a pair of the token, on either side, names no expert of the model."""
    bad = np.zeros(len(join.tokens.a), bool)
    for side, way, (token, experts) in zip((join.a, join.b), (join.tokens.a, join.tokens.b), places):
        if experts is not None:
            wrong = np.zeros(side.count("tokens"), bool)
            wrong[token[none_of(experts, model)]] = True
            bad |= wrong[way]
    return bad
