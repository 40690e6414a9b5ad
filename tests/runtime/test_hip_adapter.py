"""The hip runtime against a libamdhip64.so over host memory: the kernels' bits come through, and each call that fails is named."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge0verify.runtime import hip
from edge0verify.runtime.cpu import LIBRARY

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_hip_kernels.c")
# Declared by the fake, and not called on this way: one of two symbols of the properties, and a driver version only shown.
NAMES = [n for n in re.findall(r"^CALL\((\w+)", FAKE.read_text(), re.M) if n != "hipGetDeviceProperties"]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("hip") is None, reason="not run: hip-python is not installed")


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("hip")
    compiler = shutil.which("cc") or shutil.which("g++")
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", "-o", str(folder / "libamdhip64.so"), str(FAKE), "-ldl"], check=True)
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "FAKE_HIP_KERNELS": str(LIBRARY), "PYTHONPATH": str(ROOT)}
    names = ["none", *NAMES, "hipModuleLaunchKernel"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.hip_session", *names], env=env, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def test_a_session_gives_the_kernels_bits(answers):
    assert answers["none"] == "ok"


@pytest.mark.parametrize("call", [*NAMES, "hipModuleLaunchKernel"])
def test_a_failing_call_is_named(answers, call):
    if call == "hipGetDeviceCount":
        assert answers[call] == "absent: hipGetDeviceCount: hipErrorLaunchFailure (719)"
        return
    # The session fills with 1, 2 and 4 bytes and takes the properties by one symbol; hip-python may name its newest revision.
    assert re.fullmatch(rf"error: {call.removesuffix('R0600')}(R0600)?: hipErrorLaunchFailure \(719\)", answers[call]), answers[
        call
    ]


def test_without_rocm_it_is_absent_with_the_reason():
    code = "from edge0verify.runtime.hip import detect; d = detect(); print(d.runtime, d.reason)"
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("None hip"), done


def test_absent_package_is_a_reason(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "not installed" in hip.detect().reason
