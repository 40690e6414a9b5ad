"""Verdicts for the tests of the report: real ones, one with a compiled fault, and hostile or huge ones made by hand."""

from __future__ import annotations

from dataclasses import replace

from edge0verify import model as models
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import LayerResult, Verdict, Worst, percent
from edge0verify.study.grids import Grids
from edge0verify.study.pair import Request, compare_variants
from edge0verify.variants import _mutants
from edge0verify.variants.kernels import Kernels

HOSTILE = "<script>alert(1)</script>\"'><img src=http://evil.example/x onerror=alert(2)>$\\frac{a}$_\u202e\ud800\0&amp;"
"""What a name in a file may try: markup, an address to load, TeX, a turned direction, half a surrogate pair, a NUL."""


def real(stage: str = "D", a: str = "mmq", b: str = "w11", *, fault: str | None = None, layers=(0, 1), tokens: int = 90):
    """(verdict, grids) of a short run, with a fault compiled into a's kernels in the last of `layers`."""
    model = models.load_model()
    request = Request(
        model=model,
        prompt="prose",
        tokens=models.encode(models.prompt("prose"))[:tokens],
        stage=stage,
        a=a,
        b=b,
        threads=2,
        layers=layers,
    )
    own, faulty = Kernels(threads=2), Kernels(native=_mutants, threads=2)

    def kernels_for(side: str, layer: int | str) -> Kernels:
        planted = fault is not None and side == "a" and layer == layers[-1]
        _mutants.set_fault(fault if planted else None)
        return faulty if planted else own

    grids = Grids()
    try:
        verdict = compare_variants(request, kernels_for=kernels_for, observe=grids.add)
    finally:
        _mutants.set_fault(None)
    return verdict, grids.grids


def entry(
    layer: int | str, tensor: str, *, status: str = PASS, reasons: tuple[str, ...] = (), n: int = 1000, differ: int = 3, **more
) -> LayerResult:
    """One entry as a comparison could have left it."""
    blocks = tensor.endswith(("q", "h"))
    values = dict(
        layer=layer,
        tensor=tensor,
        n=n,
        equal=n - differ,
        equal_pct=percent(n - differ, n),
        max_code_diff=1 if blocks else None,
        code_diffs={"1": differ} if blocks and differ else {} if blocks else None,
        scale_equal_pct=99.5 if blocks else None,
        rel_l2=1e-5,
        max_abs=1e-4,
        max_ulp=None if blocks else 3,
        corr=1 - 1e-9,
        conforming={"a": n, "b": n},
        causes={"equal": n - differ, "tie" if status == PASS else "unexplained": differ},
        status=status,
        reasons=reasons,
    )
    return LayerResult(**{**values, **more})


def verdict(status: str = PASS, layers: tuple[LayerResult, ...] = (), **more) -> Verdict:
    values = dict(
        status=status,
        reasons=() if status == PASS else ("a reason",),
        stage="D",
        a="mmq",
        b="w11",
        reference="mmvq",
        model=None,
        prompt=None,
        engaged={"a": True, "b": True},
        signature={},
        layers=layers,
        totals={},
        environment={},
    )
    return Verdict(**{**values, **more})


def empty() -> Verdict:
    return verdict(INCONCLUSIVE, reasons=("nothing was compared",), engaged={"a": False, "b": None})


def many(layers: int = 300) -> Verdict:
    """Hundreds of layers, some failing, with reasons of any length."""
    found = []
    for layer in range(layers):
        for tensor in ("d-hq", "d-xl", "d-xlq", "a-gate", "a-up", "a-h", "a-y", "a-yl", "u-ylq", "u"):
            bad = layer % 7 == 3 and tensor == "d-xl"
            more = (
                dict(status=FAIL, reasons=(f"layer {layer} {tensor}: 4 of 1000 elements do not conform",), rel_l2=1e-2)
                if bad
                else {}
            )
            found.append(entry(layer, tensor, differ=1 + layer % 40, **more))
    reasons = (*(r for e in found for r in e.reasons), "x" * 20_000, "many words " * 500)
    return verdict(FAIL, tuple(found), reasons=reasons, totals={"notes": ["a note " * 50] * 20})


def hostile() -> Verdict:
    """The same text in every place that takes one."""
    worst = Worst(index=(1, 2), key=(0, 1, 1), a="nan", b=1.0, bound=("-inf", 2.0), cause=HOSTILE)
    layers = tuple(
        replace(
            entry(layer, tensor, status=FAIL, reasons=(HOSTILE,)), causes={HOSTILE: 1000}, worst=(worst,), bias={HOSTILE: HOSTILE}
        )
        for layer, tensor in ((HOSTILE, HOSTILE), (0, HOSTILE + "q"), (1, HOSTILE + "q"))
    )
    pair = {"a": HOSTILE, "b": HOSTILE, "max_move": 0.1, "per_prompt": {HOSTILE: 0.1}}
    position = {"name": HOSTILE, "move": "nan", "shared": 8, "argmax": [1, 2], "argmax_margin": 0.1, "kl": None}
    top8 = {
        "positions": 1, "max_move": "nan", "argmax_changes": 1, "set_changes": 0, "per_position": [position],
        "spread": {"variants": [HOSTILE], "max_move": 0.1, "pairs": [pair], "left_out": []},
    }  # fmt: skip
    facts = {HOSTILE: HOSTILE, "name": HOSTILE, "file": HOSTILE}
    jump = {"layer": HOSTILE, "tensor": HOSTILE, "factor": 9.0, "rel_l2": 1.0, "after": [HOSTILE, HOSTILE]}
    words = dict(stage=HOSTILE, a=HOSTILE, b=HOSTILE, reference=HOSTILE, model=facts, prompt=facts, top8=top8)
    more = dict(signature={HOSTILE: [HOSTILE]}, totals={"notes": [HOSTILE], "widest_jump": jump})
    return verdict(FAIL, layers, reasons=(HOSTILE,), environment={"command": HOSTILE, HOSTILE: HOSTILE}, **words, **more)
