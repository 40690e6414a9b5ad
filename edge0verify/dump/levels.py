"""Which tensors a dump holds at which capture level.

One table; the writer, the reader and everything that asks "is this tensor expected here" read it. A level of `outputs`, `replay`,
`full` holds every tensor whose own level does not come later; `sketch` and `hash` reduce the tensors of `replay`.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge0verify.records.errors import InputError
from edge0verify.records.manifest import LEVELS

_DEPTH = {"outputs": 0, "replay": 1, "full": 2, "sketch": 1, "hash": 1}
REDUCED = ("sketch", "hash")
"""Levels that keep no whole tensor."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a layer (or of the head) as the schema defines it."""

    name: str
    kind: str
    """'f32' or 'i32' rows, or 'q8_1' blocks (codes, d, s)."""
    rows: str
    """What a row belongs to: 'tokens' (keyed by `rows`), 'pairs' (keyed by the layer's `pairs`), or 'run'."""
    level: str
    """The first of outputs, replay, full that holds it."""


LAYER_TENSORS = (
    TensorSpec("ffn-in", "f32", "tokens", "replay"),
    TensorSpec("route-logits", "f32", "tokens", "replay"),
    TensorSpec("route-ids", "i32", "tokens", "replay"),
    TensorSpec("route-weights", "f32", "tokens", "replay"),
    TensorSpec("d-hq", "q8_1", "tokens", "replay"),
    TensorSpec("d-xl", "f32", "tokens", "replay"),
    TensorSpec("d-xlq", "q8_1", "tokens", "outputs"),
    TensorSpec("a-gate", "f32", "pairs", "full"),
    TensorSpec("a-up", "f32", "pairs", "full"),
    TensorSpec("a-h", "q8_1", "pairs", "replay"),
    TensorSpec("a-y", "f32", "pairs", "full"),
    TensorSpec("a-yl", "f32", "tokens", "outputs"),
    TensorSpec("u-ylq", "q8_1", "tokens", "replay"),
    TensorSpec("u", "f32", "tokens", "outputs"),
)
HEAD_TENSORS = (
    TensorSpec("top8-ids", "i32", "run", "outputs"),
    TensorSpec("top8-logprobs", "f32", "run", "outputs"),
    TensorSpec("logits", "f32", "run", "full"),
)
_BY_NAME = {spec.name: spec for spec in (*LAYER_TENSORS, *HEAD_TENSORS)}
KEYS = {"rows": 3, "pairs": 5}
"""Key datasets and their columns: (pass, position, accepted) and (pass, position, slot, expert, accepted)."""


def find(name: str) -> TensorSpec | None:
    """The schema's entry for a tensor name, or None for a name it does not know (a foreign engine's)."""
    return _BY_NAME.get(name)


def check_level(level: str) -> str:
    """`level` itself; InputError naming the known ones otherwise."""
    if level not in LEVELS:
        raise InputError(f"level: expected one of {', '.join(LEVELS)}, found {level}")
    return level


def captured(name: str, level: str) -> bool:
    """Whether a dump of `level` holds the tensor, whole or reduced; names outside the schema are always kept."""
    spec = find(name)
    return spec is None or _DEPTH[spec.level] <= _DEPTH[check_level(level)]


def tensors_of(level: str) -> tuple[TensorSpec, ...]:
    """The layer tensors that a dump of `level` holds, in the order a layer produces them."""
    return tuple(spec for spec in LAYER_TENSORS if captured(spec.name, level))


def layer_path(layer: int | str) -> str:
    """Group of a layer: 'layers/000', 'layers/mtp', or 'head'. InputError for anything else."""
    if layer == "head":
        return "head"
    if layer == "mtp":
        return "layers/mtp"
    if isinstance(layer, int) and not isinstance(layer, bool) and 0 <= layer < 1000:
        return f"layers/{layer:03d}"
    raise InputError(f"layer: expected 0 to 999, mtp or head, found {layer!r}")


def layer_name(group: str) -> int | str:
    """Inverse of `layer_path` for the last part of a group name: '003' -> 3, 'mtp' -> 'mtp'."""
    if group in ("mtp", "head"):
        return group
    if group.isascii() and group.isdigit() and len(group) == 3:
        return int(group)
    raise InputError(f"layers/{group}: expected three digits or mtp")
