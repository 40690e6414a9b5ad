"""The first step that does not conform, found in one pass up the layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edge0verify.model import Model, layer_prefix
from edge0verify.numerics.blocks import BLOCK, Blocks
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Engagement
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.study import bisect_place as place
from edge0verify.study.attribute import same_tensor
from edge0verify.study.bisect_judge import Flips, Judged, excuse, flips, judge_bits, judge_route, judge_stages
from edge0verify.study.bisect_types import Bisection, Entry, First, Request, Rung
from edge0verify.study.bisect_walk import KernelsFor, Piece, Runner, walk
from edge0verify.study.environment import environment
from edge0verify.study.pair import describe_model, describe_prompt
from edge0verify.variants.kernels import Kernels
from edge0verify.variants.registry import find, resolve

LADDER = ("ffn-in", "route-logits", "d-xl", "a-h", "a-yl", "u")
"""One tensor per step, whose difference between a and b is followed up the layers."""
ORDER = ("ffn-in", "route-logits", "route-ids", "route-weights", "d-hq", "d-xl", "d-xlq", "a-gate", "a-up", "a-h", "a-y", "a-yl",
         "u-ylq", "u", "logits", "top8-logprobs")
STEPS = ("D", "A1", "A2", "U")
ROUTE = ("route-logits", "route-ids", "route-weights")


def plan(stage: str, name: str) -> dict[str, str]:
    """Canonical variant of D, A1, A2, U where `stage` ('D', 'A', 'U', 'all') runs `name` and the rest mmvq."""
    return {step: find(step, name).name if step in place.parts_of(stage) else "mmvq" for step in STEPS}


def bisect(request: Request, *, kernels_for: Mapping[str, KernelsFor] | None = None,
           progress: Callable[[str, int, int], None] | None = None) -> Bisection:
    """Walk both runs up the layers and judge every step of each on its own inputs, against model A's weights.

    kernels_for: other kernels for side 'a' or 'b' per (layer, stage); tests plant compiled faults with it.
    """
    other = request.model_b or request.model
    if other.config != request.model.config:
        raise InputError(f"{other.path}: expected the architecture of {request.model.path}, found another")
    kernels = Kernels(threads=request.threads)
    planned = {"a": plan(request.stage, request.a), "b": plan(request.stage, request.b)}
    models = {"a": request.model, "b": other}
    ran = {side: {step: resolve(step, name, _format(models[side], step)).runs.name for step, name in planned[side].items()}
           for side in "ab"}
    runners = {s: Runner(model=models[s], variants=planned[s], kernels_for=(kernels_for or {}).get(s)) for s in "ab"}
    launches: dict[str, dict[str, int]] = {"a": {}, "b": {}}
    book = _Book(request, ran)
    natives = {side: _modules(runners[side], kernels, request.model) for side in "ab"}

    def counted(side, run):
        before = {id(k.native): k.launches() for k in natives[side]}
        step = run()
        for k in natives[side]:
            for key, n in k.launches().items():
                moved = n - before[id(k.native)].get(key, 0)
                if moved:
                    launches[side][key] = launches[side].get(key, 0) + moved
        return step

    total, done = len(request.tokens), 0
    for piece in walk(runners["a"], runners["b"], request.tokens, kernels=kernels, threads=request.threads, chunk=request.chunk,
                      counted=counted):
        book.add(piece)
        done += len(piece.rows)
        if progress:
            progress("walking up the layers", done, total)
    engaged = {side: _engagement(request, planned[side], models[side], launches[side]) for side in "ab"}
    first = book.first(runners, kernels)
    status, reasons = _status(first, book, engaged)
    if status == PASS and (hidden := [name for name in request.model.tensors if not same_tensor(request.model, other, name)]):
        status = INCONCLUSIVE
        named = ", ".join(hidden[:4]) + (" ..." if hidden[4:] else "")
        reasons = (f"the models differ in {named}, and no row of this prompt shows it",)
    return Bisection(
        status=status, reasons=reasons, a=request.a, b=request.b, stage=request.stage, variants=planned,
        model=describe_model(request.model), model_b=describe_model(request.model_b) if request.model_b else None,
        prompt=describe_prompt(request.prompt, request.tokens), engaged={s: e.engaged for s, e in engaged.items()},
        first=first, layers=book.rungs(), environment=environment(kernels, request.threads),
    )


def _modules(runner: Runner, kernels: Kernels, model: Model) -> list[Kernels]:
    found = {id(kernels.native): kernels}
    if runner.kernels_for:
        for layer in model.config.layer_ids:
            for step in STEPS:
                one = runner.kernels_for(layer, step)
                if one is not None:
                    found[id(one.native)] = one
    return list(found.values())


def _format(model: Model, step: str) -> str:
    return {"D": model.tensor("latent_down.weight"), "U": model.tensor("latent_up.weight"),
            "A1": model.layer(0, "ffn_gate_exps"), "A2": model.layer(0, "ffn_down_exps")}[step].fmt


def _engagement(request: Request, planned: Mapping[str, str], model: Model, launches: Mapping[str, int]) -> Engagement:
    wanted = tuple(f"{step}/{planned[step]}/{_format(model, step)}" for step in place.parts_of(request.stage))
    return Engagement(asked=planned[place.parts_of(request.stage)[0]], wanted=wanted, launches=launches)


def _status(first: First | None, book: _Book, engaged: Mapping[str, Engagement]) -> tuple[str, tuple[str, ...]]:
    idle = [f"{side}: not engaged, {e.asked} was asked for and " + ", ".join(k for k in e.wanted if not (e.launches or {}).get(k))
            + " launched 0 times" for side, e in engaged.items() if not e.engaged]
    if first is not None:
        return FAIL, (sentence(first), *idle)
    if not book.compared:
        return INCONCLUSIVE, ("nothing was compared", *idle)
    return (INCONCLUSIVE, tuple(idle)) if idle else (PASS, ())


def sentence(first: First) -> str:
    """The first fault in one line."""
    if first.biased:
        return f"layer {first.layer} stage {first.stage} {first.tensor}: {first.side} is biased: {first.biased}"
    changed = f"; the models differ in {', '.join(first.unequal[:4])}{' ...' if first.unequal[4:] else ''}" if first.unequal else ""
    text = f"layer {first.layer} stage {first.stage} {first.tensor}: {first.broken} of {first.n} elements of {first.side} do not"
    text += f" conform, first at position {first.position}"
    if first.slot is not None:
        text += f" slot {first.slot} expert {first.expert}"
    text += f" column {first.column}"
    if first.weights:
        row = f"{first.weights}" + (f" expert {first.expert}" if first.expert is not None else "") + f" row {first.weight_row}"
        text += f" = {row}"
        if first.weight_blocks:
            text += f" block {', '.join(map(str, first.weight_blocks))}"
    for e in first.exchanges:
        text += f"; expert {e.expert} computes with the weights of expert {e.weights_of}"
    return f"{text}{changed}; {first.excuse}"


class _Book:
    """Everything that is summed up over chunks."""

    def __init__(self, request: Request, ran: Mapping[str, Mapping[str, str]]) -> None:
        self.request, self.ran = request, ran
        self.compared = 0
        self.entries: dict[tuple, Entry] = {}
        self.sums: dict[tuple, list[float]] = {}
        self.flips: dict[int | str, Flips] = {}
        self.kept: dict[tuple, Mapping] = {}
        self.strayed: set[str] = set()

    def add(self, piece: Piece) -> None:
        model, threads = self.request.model, self.request.threads
        for layer in piece.a:
            rows = piece.rows[: len(piece.a[layer]["ffn-in"])]
            for side, seen in (("a", piece.a[layer]), ("b", piece.b[layer])):
                if side == "b":
                    self._between(side, layer, "attention", "ffn-in", seen["ffn-in"], piece.forced[layer]["ffn-in"], rows)
                routed = judge_route(model, layer, seen, rows)
                if side == "b" and "attention" not in self.strayed:     # the same ffn-in: the router's bits are known
                    routed = (judge_bits("route", name, seen[name], piece.forced[layer][name], rows) for name in ROUTE)
                for found in (*routed, *judge_stages(model, layer, self.ran[side], seen, rows, threads=threads)):
                    self._note(side, layer, found, seen)
            self._differences(layer, piece)
            self._merge_flips(layer, flips(model, layer, piece.a[layer], piece.b[layer], rows))
        last = piece.rows[-1:]
        self._between("b", "head", "head", "logits", piece.step_b.logits[-1:], piece.step_forced.logits[-1:], last)
        self._between("b", "head", "head", "top8-logprobs", piece.step_b.top8_logprobs[None], piece.step_forced.top8_logprobs[None],
                      last)

    def _between(self, side, layer, stage, tensor, found, expected, rows) -> None:
        """What lies between the stages follows from their results bit for bit, until it has gone astray once: from there on the
        two residual streams are no longer the same, and nothing can be said."""
        if "attention" in self.strayed:
            return
        judged = judge_bits(stage, tensor, found, expected, rows)
        self._note(side, layer, judged, None)
        if judged.broken.any():
            self.strayed.add("attention")

    def _note(self, side, layer, found: Judged, seen) -> None:
        self.compared += found.broken.size
        key = (side, layer, found.tensor)
        entry = self.entries.setdefault(key, Entry(layer, found.stage, found.tensor, found.unit))
        before = entry.faulty
        entry.add(found)
        if entry.faulty and not before and seen is not None:
            self.kept[key] = seen                      # the witness of the first fault, for the search for exchanged experts

    def _differences(self, layer, piece: Piece) -> None:
        a, b = piece.a[layer], piece.b[layer]
        same = (a["route-ids"] == b["route-ids"]).all(axis=1)
        for tensor in LADDER:
            x, y = _values(a[tensor]), _values(b[tensor])
            if tensor == "a-h":                        # pairs are the same only where the route is
                keep = np.repeat(same, a["route-ids"].shape[1])
                x, y = x[keep], y[keep]
            self._sum((layer, tensor), x, y)
        for tensor in ("ffn-in", "u"):
            truth = _values(piece.oracle[layer][tensor])
            self._sum((layer, tensor, "a"), _values(a[tensor]), truth)
            self._sum((layer, tensor, "b"), _values(b[tensor]), truth)

    def _sum(self, key, x, y) -> None:
        total = self.sums.setdefault(key, [0.0, 0.0])
        gap = x - y
        total[0] += float(np.einsum("ij,ij->", gap, gap))
        total[1] += float(np.einsum("ij,ij->", y, y))

    def _merge_flips(self, layer, new: Flips) -> None:
        old = self.flips.get(layer)
        if old is None or not old.tokens:
            self.flips[layer] = new
        elif new.tokens:
            nearest = min(old, new, key=lambda f: f.ulps)
            self.flips[layer] = Flips(old.tokens + new.tokens, nearest.gap, nearest.ulps, nearest.bounds, nearest.position)

    def relative(self, *key) -> float | None:
        gap, size = self.sums.get(key, (0.0, 0.0))
        return float(np.sqrt(gap / size)) if size > 0 else (0.0 if gap == 0 else None)

    def rungs(self) -> tuple[Rung, ...]:
        made, below = [], None
        for layer in self.flips:
            difference = {tensor: self.relative(layer, tensor) for tensor in LADDER}
            now = difference["u"]
            stages: dict[str, dict[str, int]] = {}
            for (side, at, _), entry in self.entries.items():
                if at == layer:
                    stages.setdefault(entry.stage, {"a": 0, "b": 0})[side] += entry.broken or int(bool(entry.biased))
            made.append(Rung(
                layer=layer, difference=difference, jump=now / below if now and below else None,
                triangle={"a_oracle": self.relative(layer, "u", "a"), "b_oracle": self.relative(layer, "u", "b"), "a_b": now},
                flips=self.flips[layer], stages=stages,
            ))
            below = now
        return tuple(made)

    def first(self, runners: Mapping[str, Runner], kernels: Kernels) -> First | None:
        """The lowest broken entry: main layers, then head, then the drafter layer; a's before b's in one place."""
        layers = [*self.flips, "head"]
        layers.sort(key=lambda layer: (layer == "mtp", layer == "head", layer if isinstance(layer, int) else 0))
        broken = [(layers.index(layer), ORDER.index(tensor.removesuffix(".d").removesuffix(".s")), side, tensor)
                  for (side, layer, tensor), entry in self.entries.items() if entry.faulty]
        if not broken:
            return None
        at, _, side, tensor = min(broken)
        key = (side, layers[at], tensor)
        return self._placed(side, self.entries[key], runners[side], kernels, self.kept.get(key))

    def _placed(self, side: str, entry: Entry, run: Runner, kernels: Kernels, seen) -> First:
        key, column = entry.first
        slot, expert = (key[2], key[3]) if len(key) == 5 else (None, None)
        model, layer = self.request.model, entry.layer
        weights = place.weight_name(layer, entry.tensor) if layer != "head" and entry.broken else None
        more: dict[str, Any] = {}
        if weights is not None:
            more = dict(weights=weights, weight_row=column)
            more["weight_blocks"] = place.probe_blocks(
                model, run, layer, entry.tensor, column, expert, dict(self.ran[side]), kernels=kernels)
            if expert is not None and seen is not None:
                worst = sorted(entry.experts, key=entry.experts.get, reverse=True)[:8]
                more["exchanges"] = place.exchanged(model, layer, entry.tensor, sorted(worst), seen, self.ran[side][entry.stage])
            if run.model is not model:
                differs = place.weights_that_differ(model, run.model, weights)
                more |= dict(differs=differs[:8], differing_blocks=len(differs))
        elif run.model is not model and entry.broken:
            prefix = ("output",) if layer == "head" else (layer_prefix(layer), *(() if layer else ("tok_embd",)))
            more["unequal"] = tuple(n for n in model.tensors if n.startswith(prefix) and "_exps." not in n
                                    and not same_tensor(model, run.model, n))
        block = column // BLOCK if entry.unit in ("code", "row") else column if entry.unit in ("scale", "sum") else None
        return First(
            side=side, layer=layer, stage=entry.stage, tensor=entry.tensor, n=entry.n, broken=entry.broken, tokens=entry.tokens,
            columns=int(entry.columns.sum()), position=key[1], slot=slot, expert=expert, column=column, block=block,
            experts=dict(sorted(entry.experts.items())), biased="" if entry.broken else entry.biased,
            excuse=excuse(entry.broken, entry.n, entry.lost) if entry.stage in (*STEPS, "route") else "no limit excuses it", **more,
        )


def _values(tensor: np.ndarray | Blocks) -> np.ndarray:
    return tensor.values() if isinstance(tensor, Blocks) else tensor.astype(np.float64)
