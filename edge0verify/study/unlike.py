"""Whether two dumps can be compared at all: unlike runs, and one run under two names. A reason names the field and both values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge0verify.dump.reader import Dump

F32_ROWS = {"D": "d-xl", "A1": "a-yl", "A2": "a-yl", "U": "u"}
"""Rows of each stage in which another order of operations shows."""


def unlike(a: Dump, b: Dump) -> list[str]:
    """Reasons why these are not two runs of one thing. What a foreign dump does not say is no reason, nor are its gaps."""
    left, right = a.manifest, b.manifest
    reasons = []
    for what, x, y in (
        ("model", left.model_sha256, right.model_sha256),
        ("prompt", left.prompt.sha256, right.prompt.sha256),
        ("prompt tokens", left.prompt.tokens, right.prompt.tokens),
    ):
        if x is not None and y is not None and x != y:
            reasons.append(f"unlike runs: {what}: a has {_short(x)}, b has {_short(y)}")
    foreign = left.foreign or right.foreign
    if left.level != right.level and not foreign:
        reasons.append(f"unlike runs: level: a has {left.level}, b has {right.level}")
    layers_a, layers_b = a.layers(), b.layers()
    if foreign and (layers_a or layers_b) and not set(layers_a) & set(layers_b):
        reasons.append(f"unlike runs: layers: a has {_list(layers_a)}, b has {_list(layers_b)}")
    if not foreign and layers_a != layers_b:
        reasons.append(f"unlike runs: layers: a has {_list(layers_a)}, b has {_list(layers_b)}")
    said_a, said_b = left.signature.layers, right.signature.layers
    if not foreign and layers_a == layers_b and set(said_a) != set(said_b):
        reasons.append(f"unlike runs: layers: a's manifest promises {_list(said_a)}, b's {_list(said_b)}")
    return reasons


def one_run(a: Dump, b: Dump, claims_a: Mapping[str, str], claims_b: Mapping[str, str], stages: Sequence[str]) -> list[str]:
    """Reasons why these are one run, not two. claims: the variant per stage that each is said to hold; stages: those compared."""
    differing = [stage for stage in stages if claims_a.get(stage) != claims_b.get(stage)]
    said = ", ".join(f"{stage} {claims_a.get(stage, 'unknown')} and {claims_b.get(stage, 'unknown')}" for stage in differing)
    same_file = a.path.samefile(b.path)
    same_bytes = same_file or {p: i.sha256 for p, i in a.arrays.items()} == {p: i.sha256 for p, i in b.arrays.items()}
    if same_file or (same_bytes and a.manifest.time == b.manifest.time):
        if differing:
            return [f"one dump is given under two variant names ({said}): the same bytes, written at {a.manifest.time}"]
        return [f"a and b are one dump (the same bytes, written at {a.manifest.time}): it was compared with nothing but itself"]
    shown = [stage for stage in differing if any(_has(a, layer, F32_ROWS[stage]) for layer in a.layers())]
    if same_bytes and shown:
        return [f"every byte of a and b is equal, f32 rows included, though they claim two variants ({said}): one kernel ran twice"]
    return []


def _has(dump: Dump, layer: int | str, tensor: str) -> bool:
    return dump.has(layer, tensor) and dump.shape(layer, tensor)[0] > 0


TELLING = ("ffn-in", "d-hq", "a-yl", "u")
"""Tensors wide enough that two layers never hold the same by chance."""


def swapped_layers(a: Dump, b: Dump) -> list[str]:
    """A sentence per two layers of which one's tensors stand in the other's place, by hash: no run does that."""
    found: dict[tuple, list[str]] = {}
    names = [layer for layer in a.layers() if layer in b.layers()]
    for i in names:
        for j in (layer for layer in names if layer != i):
            moved = [t for t in TELLING if _hash(a, i, t) and _hash(a, i, t) == _hash(b, j, t) != _hash(b, i, t)]
            if moved:
                first, second = sorted((i, j), key=names.index)
                found.setdefault((first, second), []).extend(f"{t} of layer {i} of a is that of layer {j} of b" for t in moved)
    return [f"layers {i} and {j} are swapped: {said[0]}" for (i, j), said in found.items()]


def _hash(dump: Dump, layer: int | str, tensor: str) -> tuple[str, ...]:
    return tuple(info.sha256 for info in dump.arrays.values() if info.layer == layer and info.tensor == tensor)


def _short(value: object) -> str:
    return value[:16] if isinstance(value, str) else str(value)


def _list(layers: Sequence) -> str:
    return ", ".join(map(str, layers)) or "none"
