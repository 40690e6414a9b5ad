"""The goldens that are committed: what they cover, and that they are small. `make golden-check` repeats them."""

from pathlib import Path

import pytest

from edge0verify.golden.check import Asked, check
from edge0verify.golden.store import Store
from edge0verify.model import DEFAULT_MODEL, file_sha256
from edge0verify.model.prompts import NAMES
from edge0verify.variants.registry import VARIANTS

ROOT = Path(__file__).parents[2]
STORE = Store(ROOT / "golden")


@pytest.fixture(scope="module")
def goldens():
    return [STORE.open(name) for name in STORE.names()]


def test_they_are_less_than_ten_megabytes():
    sizes = [p.stat().st_size for p in (ROOT / "golden").rglob("*") if p.is_file()]
    assert 1e6 < sum(sizes) < 10e6


def test_every_stage_variant_prompt_and_device_is_there(goldens):
    by_device = {}
    for golden in goldens:
        inputs = golden.current.inputs
        assert inputs.model_sha256 == file_sha256(DEFAULT_MODEL)
        assert golden.current.conforming is True
        assert inputs.tokens and inputs.count > 0
        runs = by_device.setdefault(inputs.device, set())
        runs |= {(inputs.prompt, golden.current.level, stage, variant) for stage, variant in inputs.variants.items()}
    every = {(v.stage, v.name) for v in VARIANTS}
    assert set(by_device) == {"cpu", "cuda"}
    for runs in by_device.values():
        for prompt in NAMES:
            assert {(s, v) for p, level, s, v in runs if p == prompt and level == "sketch"} == every
        assert {s for p, level, s, _ in runs if p == "long" and level == "sketch"} == {"D", "A1", "A2", "U"}
    assert {(s, v) for _, level, s, v in by_device["cpu"] if level == "full"} == every


def test_sketches_are_at_most_1_5_percent(goldens):
    sketches = [g.current for g in goldens if g.current.level == "sketch"]
    assert len(sketches) > 30
    assert max(run.bytes / run.whole_bytes for run in sketches) <= 0.015


def test_reasons_and_anchors(goldens):
    for golden in goldens:
        assert all(len(a.reason) > 10 for a in golden.accepted)
        assert golden.anchor is not None


@pytest.mark.parametrize("name", ["first-prose-ref", "first-code-mmq", "first-list-w11", "h200-questions-mmvq"])
def test_some_of_them_repeat_here(name):
    found = check(STORE, name, Asked(threads=2))
    assert found.status == "PASS", found.reasons
    assert name.startswith("h200") == bool([r for r in found.remarks if r.startswith("recorded on cuda: NVIDIA H200")])


def test_make_checks_them():
    text = (ROOT / "Makefile").read_text()
    assert "edge0verify golden check" in text.split("golden-check:")[1].split("\n\n")[0]
    assert "golden-check" in next(line for line in text.splitlines() if line.startswith("test:"))
