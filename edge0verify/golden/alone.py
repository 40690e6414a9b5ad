"""One dump judged by itself: every stage on the inputs that the dump holds, against its own contract.

It is compared with itself, so nothing differs, and only what breaks a contract has another cause than `equal`.
"""

from __future__ import annotations

from edge0verify.compare import DEFAULT, Policy
from edge0verify.dump.reader import Dump
from edge0verify.model import Model
from edge0verify.records.verdict import LayerResult
from edge0verify.study.by_design import rule_of
from edge0verify.study.dump_claims import claim
from edge0verify.study.dump_layer import compare_layer
from edge0verify.study.dump_rows import join_layer


def judge_alone(
    dump: Dump, model: Model, *, layers: list[int | str] | None = None, policy: Policy = DEFAULT, threads: int = 1
) -> list[LayerResult]:
    """An entry per tensor of `layers` (None: all) of a dump of whole tensors."""
    variants, rule = claim(dump, {}).variants, rule_of(dump, model)
    results: list[LayerResult] = []
    for layer in dump.layers() if layers is None else layers:
        found = compare_layer(
            join=join_layer(dump, dump, layer),
            model=model,
            variants=(variants, variants),
            declared="",
            rules=(rule, rule),
            stage=None,
            inherited={},
            earlier="",
            policy=policy,
            threads=threads,
        )
        results += found.results
    return results
