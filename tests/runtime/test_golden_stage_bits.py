"""Tensors of a real prompt as a device wrote them inside captured graphs, kept in golden/: the host's kernels give those bits."""

import json
from pathlib import Path

import pytest

from edge0verify.variants.kernels import Kernels
from tests.runtime.stage_bits import VARIANTS, stage_digests

FILES = sorted((Path(__file__).resolve().parents[2] / "golden").glob("stage-bits-*.json"))


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    return stage_digests(Kernels(threads=2))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_bits_of_a_device(here, path):
    record = json.loads(path.read_text())
    assert record["device"]["name"] and record["device"]["driver"]
    assert record["digests"].keys() == here.keys()
    assert [name for name, value in record["digests"].items() if here[name] != value] == []


def test_there_is_a_record_and_it_tells_variants_apart(here):
    assert FILES
    for tensor in ("d-xl", "a-y", "u"):
        assert len({here[f"{name} {tensor}"] for name in VARIANTS}) >= 3
