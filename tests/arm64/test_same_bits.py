"""arm64 gives the bits of this machine: one program, cross-built, run under an emulator, and compared line by line."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PARTS = ("engine/", "oracle/", "onepass/", "portable/", "cpu/D/w11/", "cpu/A1/mmq/", "cpu/A2/ref/", "cpu/U/mmvq/", "cpu/quantise/")
NEEDED = {
    "make": "make",
    "g++": "g++",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder with host/agree and arm64/agree; kept between runs under build/ by make's own time stamps."""
    missing = [f"{tool} (apt-get install {package})" for tool, package in NEEDED.items() if not shutil.which(tool)]
    if missing:
        pytest.skip(f"not run: {', '.join(missing)} not installed")
    if platform.machine() in ("aarch64", "arm64"):
        pytest.skip("not run: this machine is arm64 itself, there is nothing to compare it with")
    build = HERE.parents[1] / "build" / "arm64"
    done = subprocess.run(["make", "-s", "-j2", "-C", HERE, f"BUILD={build}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return build


def results(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


def test_every_result_has_the_same_bits(built):
    host, arm = results(built / "host/agree"), results("qemu-aarch64", built / "arm64/agree")
    assert host.keys() == arm.keys()
    different = [name for name in host if host[name] != arm[name]]
    assert not different, f"{len(different)} of {len(host)} differ: {different[:20]}"
    for part in PARTS:
        assert any(name.startswith(part) for name in host), part


def test_contraction_would_show(built, tmp_path):
    """Negative control: the arm64 build with multiplications and additions fused gives other bits, and the comparison sees them."""
    host = results(built / "host/agree")
    fused, kernels = tmp_path / "rows.o", HERE.parents[1] / "kernels"
    flags = ["-std=c++17", "-O3", "-DNDEBUG", "-ffp-contract=fast", "-DE0_ISA=baseline", "-Wno-psabi", "-pthread", f"-I{kernels}"]
    subprocess.run(["aarch64-linux-gnu-g++", *flags, "-c", kernels / "study/rows.cpp", "-o", fused], check=True)
    objects = sorted(p for p in (built / "arm64").rglob("*.o") if p.parts[-3:] != ("kernels", "study", "rows.o"))
    program = tmp_path / "agree"
    subprocess.run(["aarch64-linux-gnu-g++", "-static", "-pthread", *objects, fused, "-o", program], check=True)
    arm = results("qemu-aarch64", program)
    different = {name for name in host if host[name] != arm[name]}
    assert different and all(name.startswith("oracle/") for name in different)
