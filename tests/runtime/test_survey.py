"""Asking drivers never hangs, and kills nothing."""

import json
import os
import time

import pytest

from edge0verify.cli.main import run
from edge0verify.probe.link import limit, narrow
from edge0verify.runtime.protocol import Device
from edge0verify.runtime.survey import read_nvlink, survey, with_nvlink
from tests.runtime.test_process import gone

DRIVERS = {
    "hangs": ("import time\ndef cudaGetDeviceCount():\n    time.sleep(600)\n", "did not answer within 1 s"),
    "dies": ("import os\ndef cudaGetDeviceCount():\n    os.kill(os.getpid(), 11)\n", "ended by signal 11"),
    "raises": ("def cudaGetDeviceCount():\n    raise RuntimeError('no driver')\n", "no driver"),
    "cannot be imported": ("raise OSError('libcuda is broken')\n", "libcuda is broken"),
}


def fake_cuda(folder, code, monkeypatch):
    """Puts a cuda.bindings.runtime of this text before what is installed; the survey puts the tree it runs from first."""
    package = folder / "cuda" / "bindings"
    package.mkdir(parents=True)
    for path, text in ((folder / "cuda" / "__init__.py", ""), (package / "__init__.py", ""), (package / "runtime.py", code)):
        path.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize("how", DRIVERS)
def test_a_broken_driver_is_a_reason(how, tmp_path, monkeypatch):
    code, said = DRIVERS[how]
    fake_cuda(tmp_path, code, monkeypatch)
    began = time.monotonic()
    found = survey("cuda", timeout_s=1 if how == "hangs" else 20)
    assert found.devices == ()
    assert said in found.reason
    assert time.monotonic() - began < 15


def test_the_command_lists_what_is_here(capsys):
    assert run(["list", "devices", "--sim", "3"]) == 0
    shown = capsys.readouterr().out
    assert "cpu:0" in shown
    assert "sim:2" in shown
    assert "may reach memory" in shown
    assert run(["list", "devices", "--sim", "2", "--json"]) == 0
    data = {s["runtime"]: s for s in json.loads(capsys.readouterr().out)}
    assert data["sim"]["peers"] == [[None, True], [True, None]]
    assert data["cpu"]["devices"][0]["memory"] > 0
    assert all(s["devices"] or s["reason"] for s in data.values())


@pytest.mark.parametrize("script", ["sleep {mark} & sleep {mark}", "head -c 400 /dev/urandom", "exit 3"])
def test_a_tool_that_hangs_or_babbles_tells_no_link_and_leaves_nothing(script, tmp_path, monkeypatch):
    mark = f"3{os.getpid()}7"
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script.format(mark=mark)}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    device = Device("cuda", 0, "x", "sm_90", 1, "d")
    began = time.monotonic()
    assert with_nvlink((device,), 1.0) == (device,)
    assert time.monotonic() - began < 10
    assert gone(f"sleep\0{mark}")


def test_nvlink_as_the_tool_prints_it():
    text = "GPU 0: NVIDIA H200 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
    text += "GPU 1: NVIDIA H200 (UUID: GPU-2)\n\t Link 0: 26.562 GB/s\n"
    assert read_nvlink(text) == {0: "NVLink 2 x 26.562 GB/s", 1: "NVLink 1 x 26.562 GB/s"}
    assert read_nvlink("") == {}


@pytest.mark.parametrize(
    ("link", "bytes_s", "is_narrow"),
    [
        ("PCIe 4.0 x16", 31.504e9, False),
        ("PCIe 4.0 x1", 1.969e9, True),
        ("NVLink 18 x 26.562 GB/s", 478.116e9, False),
        (None, None, False),
        ("ribbon", None, False),
    ],
)
def test_what_a_link_carries(link, bytes_s, is_narrow):
    assert limit(link) == (None if bytes_s is None else pytest.approx(bytes_s))
    assert narrow(link) == is_narrow
