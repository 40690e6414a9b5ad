"""The HIP adapter against a library over host memory that fails each call in turn: no call's error is lost or told as another's."""

import ctypes.util
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge0verify.runtime.gpu import answer
from edge0verify.runtime.protocol import DeviceError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
if importlib.util.find_spec("hip") is None:
    pytest.skip("not run: hip-python is not installed (pip install edge0verify[hip])", allow_module_level=True)
if shutil.which("gcc") is None:
    pytest.skip("not run: no gcc to build the library with", allow_module_level=True)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hip")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(folder / "libamdhip64.so"), str(HERE / "fake_hip.c")]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture(scope="module")
def result(library):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.hip_scenario"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_every_part_of_the_protocol_does_what_it_says(result):
    device = ["Fake Radeon", "gfx1100", 24 << 30, 96, "0000:03:00.0"]
    assert result["clean"] == {
        "devices": [device, device],
        "peer": True,
        "managed safe": True,
        "copied": True,
        "memset 1": "0x7",
        "memset 2": "0x102",
        "memset 4": "0x87654321",
        "attributes": [["device", "0"], ["device", "1"], ["mapped", "0"], ["managed", "0"]],
        "kernel": True,
        "elapsed": True,
    }


def test_everything_allocated_is_freed(result):
    assert result["live"] == 0


def test_each_failing_call_is_named_with_its_code(result):
    assert len(result["failing"]) > 30
    for call, came in result["failing"].items():
        if call == "GetDeviceCount":
            assert came == "hipGetDeviceCount: hipErrorLaunchFailure (719)"
        else:
            assert came == [f"hip{call}", 719, "hipErrorLaunchFailure"], call


def test_without_a_library_the_reason_is_given():
    from edge0verify.runtime.survey import survey

    found = survey("hip")
    assert found.devices or found.reason


def test_devices_are_listed_through_the_library(library, monkeypatch):
    from edge0verify.runtime.survey import survey

    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    assert [d.runtime for d in survey("hip").devices] in ([], ["hip", "hip"])


def test_a_driver_without_its_compiler_proves_nothing(library):
    """No process dies of it, and no operation is called broken."""
    if ctypes.util.find_library("hiprtc"):
        pytest.skip("not run: this machine has hipRTC")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT)}
    for words in (["memory", "--max-size", "1K", "--memory", "pageable"], ["capture"], ["audit", "--split", "0-2@hip:0,3-5@hip:1"]):
        devices = [] if "audit" in words else ["--devices", "hip"]
        argv = [sys.executable, "-m", "edge0verify.cli.main", "probe", *words, *devices, "--json", "-"]
        done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 3, done.stderr
        assert "hiprtcCreateProgram: not found (500)" in json.loads(done.stdout)["reasons"][0]


def test_a_function_that_an_older_driver_lacks_is_an_error_of_the_driver():
    with pytest.raises(DeviceError, match=r"hipNewer: not found \(500\)"):
        answer(object(), "hipNewer")
