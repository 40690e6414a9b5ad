"""The first tensor in which two runs of one configuration differ, and how: bitwise, permuted, rounding or unexplained.

What lies below the first unstable tensor is the same in both runs, so that tensor alone can be judged: its inputs are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from edge0verify.compare.join import join
from edge0verify.compare.metrics import Moments, finite_pair
from edge0verify.dump.levels import HEAD_TENSORS, LAYER_TENSORS
from edge0verify.dump.reader import Dump
from edge0verify.model import Model
from edge0verify.numerics.blocks import Blocks
from edge0verify.study.bisect_judge import PART, excuse, judge_route, judge_stages
from edge0verify.study.drift_logits import wrong_logprobs

BITWISE, PERMUTED, ROUNDING, UNEXPLAINED = "bitwise", "permuted", "rounding", "unexplained"
ORDER = {spec.name: i for i, spec in enumerate((*LAYER_TENSORS, *HEAD_TENSORS))}
# Logits come before the list that is made of them.
ORDER |= {"logits": len(ORDER), "top8-ids": len(ORDER) + 1, "top8-logprobs": len(ORDER) + 2}
STAGE = {"route-logits": "route", "route-ids": "route", "route-weights": "route", "d-hq": "D", "d-xl": "D", "d-xlq": "D",
         "a-gate": "A1", "a-up": "A1", "a-h": "A1", "a-y": "A2", "a-yl": "A2", "u-ylq": "U", "u": "U"}
Value = np.ndarray | Blocks


class Trace(Protocol):
    """The tensors of one run, by layer."""

    variants: Mapping[str, str]

    def layers(self) -> list[int | str]: ...
    def tensors(self, layer: int | str) -> list[str]: ...
    def read(self, layer: int | str, tensor: str) -> Value: ...
    def keys(self, layer: int | str, tensor: str) -> np.ndarray | None: ...
    def identity(self, layer: int | str, tensor: str) -> object | None: ...


class DumpTrace:
    """A run as its dump holds it; equal tensors are known by their hashes and not read."""

    def __init__(self, dump: Dump) -> None:
        self.dump, self.variants = dump, dump.manifest.variants

    def layers(self) -> list[int | str]:
        head = ["head"] if any(info.layer == "head" for info in self.dump.arrays.values()) else []
        return [*self.dump.layers(), *head]

    def tensors(self, layer: int | str) -> list[str]:
        return self.dump.tensors(layer)

    def read(self, layer: int | str, tensor: str) -> Value:
        return self.dump.read(layer, tensor)

    def keys(self, layer: int | str, tensor: str) -> np.ndarray | None:
        return self.dump.keys(layer, tensor)

    def identity(self, layer: int | str, tensor: str) -> object | None:
        where = f"{'head' if layer == 'head' else 'layers/mtp' if layer == 'mtp' else f'layers/{layer:03d}'}/{tensor}"
        parts = [self.dump.arrays.get(where + end) for end in ("", "/codes", "/d", "/s")]
        return tuple(p and (p.shape, p.dtype.name, p.sha256) for p in parts)


@dataclass(frozen=True)
class MemoryTrace:
    """A run in memory; rows in the order of the tokens, so that no keys are needed."""

    seen: Mapping[int | str, Mapping[str, Value]]
    variants: Mapping[str, str]

    def layers(self) -> list[int | str]:
        return list(self.seen)

    def tensors(self, layer: int | str) -> list[str]:
        return list(self.seen[layer])

    def read(self, layer: int | str, tensor: str) -> Value:
        return self.seen[layer][tensor]

    def keys(self, layer: int | str, tensor: str) -> np.ndarray | None:
        return None

    def identity(self, layer: int | str, tensor: str) -> object | None:
        return None


@dataclass(frozen=True, kw_only=True)
class Unstable:
    """The first tensor that differs between two runs.

    rows: how many differ of n_rows; corr: Pearson over all values, row by row as they lie; bounded: whether anything could tell
    rounding from a fault; permutation: see `permutation`.
    """

    layer: int | str
    tensor: str
    kind: str
    rows: int
    n_rows: int
    corr: float | None
    bounded: bool
    permutation: dict[str, Any] | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Stability:
    """Two runs side by side.  tensors: how many of each kind; reply: whether top-8 ids and log-probs are the same, None where
    neither run holds them."""

    kind: str
    first: Unstable | None
    tensors: dict[str, int]
    same_ids: bool | None
    same_logprobs: bool | None
    reordered: int = 0
    """Tensors whose rows lie in another order and are the same by their keys."""


def stability(a: Trace, b: Trace, model: Model | None, *, threads: int = 1) -> Stability:
    """Compare two runs tensor by tensor in the order of computation."""
    counts = {BITWISE: 0, PERMUTED: 0, "other": 0}
    first, reordered = None, 0
    for layer, tensor in _order(a, b):
        if tensor not in a.tensors(layer) or tensor not in b.tensors(layer):
            counts["other"] += 1
            side = "second" if tensor in a.tensors(layer) else "first"
            first = first or Unstable(layer=layer, tensor=tensor, kind=UNEXPLAINED, rows=0, n_rows=0, corr=None, bounded=True,
                                      why=f"the {side} run has no such tensor")
            continue
        mark = a.identity(layer, tensor)
        if mark is not None and mark == b.identity(layer, tensor) and _same_keys(a, b, layer, tensor):
            counts[BITWISE] += 1
            continue
        x, y = a.read(layer, tensor), b.read(layer, tensor)
        aligned, moved = _aligned(a, b, layer, tensor, y)
        differs = _differing(x, aligned)
        if differs is not None and not differs.any():
            counts[BITWISE] += 1
            reordered += moved
            continue
        order = permutation(x, aligned) if differs is not None else None
        counts[PERMUTED if order else "other"] += 1
        if first is None:
            first = _first(a, b, model, layer, tensor, x, aligned, differs, order, threads)
    ids, logprobs = (_same_head(a, b, name) for name in ("top8-ids", "top8-logprobs"))
    return Stability(kind=first.kind if first else BITWISE, first=first, tensors=counts, same_ids=ids, same_logprobs=logprobs,
                     reordered=reordered)


def _order(a: Trace, b: Trace) -> list[tuple[int | str, str]]:
    layers = list(dict.fromkeys((*a.layers(), *b.layers())))
    layers.sort(key=lambda layer: (layer == "mtp", layer == "head", layer if isinstance(layer, int) else 0))
    found = []
    for layer in layers:
        names = dict.fromkeys(t for run in (a, b) if layer in run.layers() for t in run.tensors(layer))
        found += [(layer, t) for t in sorted(names, key=lambda t: (ORDER.get(t, len(ORDER) + 9), t))]
    return found


def _same_keys(a: Trace, b: Trace, layer, tensor) -> bool:
    x, y = a.keys(layer, tensor), b.keys(layer, tensor)
    return (x is None and y is None) or (x is not None and y is not None and np.array_equal(x, y))


def _aligned(a: Trace, b: Trace, layer, tensor, y: Value) -> tuple[Value, bool]:
    """b's rows in the order of a's keys, and whether that moved any; as they lie where there are no keys."""
    keys_a, keys_b = a.keys(layer, tensor), b.keys(layer, tensor)
    if keys_a is None or keys_b is None or np.array_equal(keys_a, keys_b):
        return y, False
    joined = join(keys_a, keys_b)
    if len(joined.only_a) or len(joined.only_b):
        return y, False
    at = np.empty(len(keys_a), np.int64)
    at[joined.a] = joined.b
    return (y.take(at) if isinstance(y, Blocks) else y[at]), True


def _bytes(x: Value) -> np.ndarray:
    """uint8 [rows, bytes] of every bit of a row."""
    parts = [x.codes, x.d, *([] if x.s is None else [x.s])] if isinstance(x, Blocks) else [x]
    n = len(parts[0])
    return np.concatenate([np.ascontiguousarray(p).reshape(n, -1).view(np.uint8).reshape(n, -1) for p in parts], axis=1)


def _differing(x: Value, y: Value) -> np.ndarray | None:
    """bool [rows]; None where the shapes or dtypes are not the same."""
    if isinstance(x, Blocks) != isinstance(y, Blocks):
        return None
    bits = _bytes(x), _bytes(y)
    if bits[0].shape != bits[1].shape or (not isinstance(x, Blocks) and x.dtype != y.dtype):
        return None
    return (bits[0] != bits[1]).any(axis=1)


def permutation(x: Value, y: Value) -> dict[str, Any] | None:
    """How y's rows are x's in another order, bit for bit; None where they are not.

    {moved, rows, cycles, longest_cycle, longest_run (rows that follow each other in both), mean_shift, max_shift (rows)}.
    """
    bits = [np.ascontiguousarray(_bytes(v)) for v in (x, y)]
    if bits[0].shape != bits[1].shape or not bits[0].size:
        return None
    source = np.arange(len(bits[0]))                   # row i of y is row source[i] of x
    left = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
    rows = [np.ascontiguousarray(b[left]).view(np.dtype((np.void, b.shape[1]))).reshape(-1) for b in bits]
    order = [np.argsort(r, kind="stable") for r in rows]
    if not np.array_equal(rows[0][order[0]], rows[1][order[1]]):
        return None
    source[left[order[1]]] = left[order[0]]
    moved = np.flatnonzero(source != np.arange(len(source)))
    if not moved.size:
        return None
    lengths = _cycles(source)
    breaks = np.flatnonzero(np.diff(source) != 1)
    runs = np.diff(np.concatenate([[-1], breaks, [len(source) - 1]]))
    shift = np.abs(source - np.arange(len(source)))[moved]
    return {"moved": int(moved.size), "rows": len(source), "cycles": len(lengths), "longest_cycle": max(lengths),
            "longest_run": int(runs.max()), "mean_shift": float(shift.mean()), "max_shift": int(shift.max())}


def _cycles(source: np.ndarray) -> list[int]:
    """Lengths of the cycles of a permutation, fixed points left out."""
    seen, lengths = source == np.arange(len(source)), []
    for start in range(len(source)):
        at, n = start, 0
        while not seen[at]:
            seen[at] = True
            at, n = int(source[at]), n + 1
        if n:
            lengths.append(n)
    return lengths


def _first(a: Trace, b: Trace, model, layer, tensor, x: Value, y: Value, differs, order, threads: int) -> Unstable:
    if differs is None:
        shapes = tuple(v.codes.shape if isinstance(v, Blocks) else v.shape for v in (x, y))
        return Unstable(layer=layer, tensor=tensor, kind=UNEXPLAINED, rows=0, n_rows=shapes[0][0], corr=None, bounded=True,
                        why=f"the shapes differ, {list(shapes[0])} and {list(shapes[1])}")
    common: dict[str, Any] = dict(layer=layer, tensor=tensor, rows=int(differs.sum()), n_rows=len(differs), corr=correlation(x, y))
    if order:
        return Unstable(kind=PERMUTED, bounded=True, permutation=order, **common)
    broken = [_broken(run, model, layer, tensor, threads) for run in (a, b)]
    if None in broken:
        return Unstable(kind=UNEXPLAINED, bounded=False, why="nothing bounds this tensor", **common)
    wrong = [f"{found.broken} elements of the {side} run do not conform; {excuse(found.broken, found.n, found.lost)}"
             for side, found in zip(("first", "second"), broken) if found.broken]
    return Unstable(kind=UNEXPLAINED if wrong else ROUNDING, bounded=True, why=" and ".join(wrong), **common)


class _Wrong(NamedTuple):
    """Elements of a tensor that do not conform, of n, and those of them that hold no number."""

    broken: int
    n: int
    lost: int = 0


def _broken(run: Trace, model: Model | None, layer, tensor, threads: int) -> _Wrong | None:
    """What of a run's tensor does not conform on the run's own inputs; None where nothing can tell."""
    if layer == "head":
        return _broken_head(run, tensor)
    stage = STAGE.get(tensor)
    if model is None or stage is None:
        return None
    seen = {t: run.read(layer, t) for t in run.tensors(layer)}
    if "ffn-in" not in seen:
        return None
    keys = np.zeros((len(seen["ffn-in"]), 3), np.int32)
    keys[:, 1] = np.arange(len(keys))
    try:
        if stage == "route":
            found = list(judge_route(model, layer, seen, keys))
        else:
            found = list(judge_stages(model, layer, run.variants, seen, keys, parts=(PART[stage],), threads=threads))
    except KeyError:                                   # an input of the stage, or the name of its variant, is not in the dump
        return None
    wanted = {tensor, f"{tensor}.d", f"{tensor}.s"}
    counts = [(int(f.broken.sum()), f.broken.size, f.lost) for f in found if f.tensor in wanted]
    return _Wrong(*map(sum, zip(*counts))) if counts else _Wrong(0, 0)


def _broken_head(run: Trace, tensor: str) -> _Wrong | None:
    names = run.tensors("head")
    if tensor not in ("top8-ids", "top8-logprobs") or "logits" not in names:
        return None
    return _Wrong(int(head_fault(run) is not None), 0)


def head_fault(run: Trace) -> str | None:
    """Why the top 8 of a run do not follow from its own logits, or None (also where it keeps no logits)."""
    names = run.tensors("head") if "head" in run.layers() else []
    if not {"logits", "top8-ids", "top8-logprobs"} <= set(names):
        return None
    return wrong_logprobs(*(np.atleast_2d(run.read("head", n)) for n in ("top8-ids", "top8-logprobs", "logits")))


def _same_head(a: Trace, b: Trace, name: str) -> bool | None:
    if any("head" not in run.layers() or name not in run.tensors("head") for run in (a, b)):
        return None
    return _bytes(np.atleast_2d(a.read("head", name))).tobytes() == _bytes(np.atleast_2d(b.read("head", name))).tobytes()


def correlation(x: Value, y: Value) -> float | None:
    """Pearson over all values, row by row as they lie."""
    a, b = (v.values() if isinstance(v, Blocks) else np.asarray(v, np.float64) for v in (x, y))
    return Moments.of(*finite_pair(a.reshape(-1), b.reshape(-1))).correlation
