"""Digests of what real devices wrote, kept in golden/: the CPU build of the same kernels must still give those bits."""

import json
from pathlib import Path

import pytest

from edge0verify.runtime.cpu import LIBRARY, CpuRuntime
from edge0verify.runtime.ops import DeviceOps
from tests.runtime.device_bits import all_outcomes
from tests.runtime.phase import Phase

FILES = sorted((Path(__file__).resolve().parents[2] / "golden").glob("kernel-bits-*.json"))


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    if not LIBRARY.is_file():
        pytest.fail(f"{LIBRARY.name} was not built")
    found = all_outcomes(DeviceOps(CpuRuntime(threads=2)), Phase(2))
    return {f"{o.kernel} {o.case} {o.tensor}": o.digest for o in found if o.digest}


def test_there_are_records():
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_bits_of_a_device(here, path):
    record = json.loads(path.read_text())["digests"]
    assert record.keys() == here.keys()
    assert [name for name, value in record.items() if here[name] != value] == []


def test_a_changed_bit_is_seen(here):
    record = json.loads(FILES[0].read_text())["digests"]
    name = next(iter(record))
    assert {**here, name: "0" * 16} != record
