"""What devices a runtime has, asked in a process of its own with a time limit: a broken driver may hang or die when it is asked.

python -m edge0verify.runtime.survey RUNTIME [COUNT]   prints one line of JSON
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from edge0verify.runtime.process import run_command
from edge0verify.runtime.protocol import Device, DeviceError, Runtime

TIMEOUT_S = 20.0
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Survey:
    """One runtime: its devices, which device may reach which (`peers[reader][owner]`, None for itself), or why there are none."""

    runtime: str
    devices: tuple[Device, ...] = ()
    peers: tuple[tuple[bool | None, ...], ...] = ()
    reason: str | None = None

    def to_json(self) -> dict:
        return asdict(self)


def peer_matrix(runtime: Runtime, count: int) -> tuple[tuple[bool | None, ...], ...]:
    """can_access_peer for each ordered pair."""
    return tuple(tuple(None if i == j else bool(runtime.can_access_peer(i, j)) for j in range(count)) for i in range(count))


def survey(name: str, *, count: int | None = None, timeout_s: float = TIMEOUT_S) -> Survey:
    """Ask runtime `name` in a child.  count: of simulated devices."""
    with tempfile.TemporaryDirectory(prefix="edge0verify-survey-") as folder:
        here = Path(folder)
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        argv = [sys.executable, "-m", "edge0verify.runtime.survey", name, *([str(count)] if count else [])]
        env = {**os.environ, "PYTHONPATH": path}
        done = run_command(argv, env=env, cwd=here, timeout_s=timeout_s, folder=here, scratch=True)
        if done.timed_out:
            return Survey(runtime=name, reason=f"the driver did not answer within {timeout_s:g} s")
        try:
            data = json.loads(done.stdout.read_text().strip().splitlines()[-1])
        except (OSError, ValueError, IndexError):
            last = done.stderr.read_text(errors="replace").strip().splitlines() if done.stderr.exists() else []
            return Survey(runtime=name, reason=f"asking it {done.trouble() or 'gave no answer'}{': ' + last[-1] if last else ''}")
    devices = tuple(Device(**device) for device in data["devices"])
    if name == "cuda" and devices:
        devices = with_nvlink(devices, timeout_s)
    peers = tuple(tuple(row) for row in data["peers"])
    return Survey(runtime=name, devices=devices, peers=peers, reason=data["reason"])


def with_nvlink(devices: tuple[Device, ...], timeout_s: float) -> tuple[Device, ...]:
    """The devices with 'NVLink N x RATE GB/s' where nvidia-smi tells of links that are up."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return devices
    with tempfile.TemporaryDirectory(prefix="edge0verify-survey-") as folder:
        here = Path(folder)
        argv = [tool, "nvlink", "--status"]
        done = run_command(argv, env=os.environ, cwd=here, timeout_s=timeout_s, folder=here, scratch=True)
        if done.trouble() is not None:
            return devices
        links = read_nvlink(done.stdout.read_text(errors="replace"))
    return tuple(replace(d, peer_link=links.get(d.index)) for d in devices)


def read_nvlink(text: str) -> dict[int, str]:
    """{device: 'NVLink 18 x 26.562 GB/s'} from what `nvidia-smi nvlink --status` prints."""
    rates: dict[int, list[str]] = {}
    device = None
    for line in text.splitlines():
        head = re.match(r"\s*GPU (\d+):", line)
        link = re.match(r"\s*Link \d+:\s*([\d.]+) GB/s", line)
        if head:
            device = int(head[1])
        elif link and device is not None:
            rates.setdefault(device, []).append(link[1])
    return {device: f"NVLink {len(each)} x {each[0]} GB/s" for device, each in rates.items()}


def main() -> None:
    from edge0verify.runtime import sim
    from edge0verify.runtime.detect import DETECTORS

    name = sys.argv[1]
    found = sim.detect(int(sys.argv[2])) if name == "sim" and len(sys.argv) > 2 else DETECTORS[name]()
    data: dict = {"devices": [], "peers": [], "reason": found.reason}
    if found.runtime is not None:
        try:
            devices = found.runtime.devices()
            data["devices"] = [asdict(device) for device in devices]
            data["peers"] = peer_matrix(found.runtime, len(devices))
        except DeviceError as error:
            data = {"devices": [], "peers": [], "reason": str(error)}
    print(json.dumps(data), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
