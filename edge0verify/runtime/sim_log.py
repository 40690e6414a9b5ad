"""What a driver and an engine write when something breaks, with addresses, nodes, layers and times that differ from seed to seed.

Lines follow the forms of the Linux kernel's amdgpu and of NVIDIA's NVRM messages, of the ROCm runtime, and of an engine that logs
each failed call with the layer it was in.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

STYLES = ("amd", "nvidia")
ILLEGAL = {
    "amd": "hipErrorIllegalAddress (700): an illegal memory access was encountered",
    "nvidia": "CUDA error 700 (cudaErrorIllegalAddress): an illegal memory access was encountered",
}


@dataclass(frozen=True)
class Card:
    """One device as log lines name it."""

    index: int
    pci: str
    node: int
    agent: int


class LogBook:
    """Engine and kernel log of one run, on one clock.  `where` is what the engine is at ('layer 3'); it goes into its lines."""

    def __init__(self, seed: int = 0, *, devices: int = 2, style: str | None = None) -> None:
        self._rng = rng = random.Random(f"log {seed}")
        self.style = style or rng.choice(STYLES)
        self._now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(
            seconds=rng.randrange(300 * 86400), microseconds=rng.randrange(10**6)
        )
        self._boot = self._now - timedelta(seconds=rng.uniform(1e3, 1e6))
        self.pid = rng.randrange(1000, 400000)
        self.program = rng.choice(("strata-server", "llama-server", "moe-bench", "engine"))
        buses = rng.sample(range(1, 0xF0), devices)
        first = rng.randrange(1, 3)
        self.cards = tuple(
            Card(i, f"0000:{bus:02x}:00.0", first + i, rng.randrange(1 << 44, 1 << 46)) for i, bus in enumerate(buses)
        )
        self.engine: list[str] = []
        self.kernel: list[str] = []
        self.where = ""

    # ---- the two logs ------------------------------------------------------------------------------------------------------
    def tick(self, seconds: float | None = None) -> None:
        self._now += timedelta(seconds=self._rng.uniform(1e-4, 5e-2) if seconds is None else seconds)

    def say(self, text: str, *, level: str = "E", device: int | None = None) -> None:
        """A line of the engine."""
        self.tick()
        who = "" if device is None else f"device {device}: "
        at = f"{self.where}: " if self.where else ""
        self.engine.append(f"{self._now:%Y-%m-%d %H:%M:%S}.{self._now.microsecond // 1000:03d} {level} {who}{at}{text}")

    def dmesg(self, text: str) -> None:
        """A line of the kernel: its clock is the time since boot, and the wall clock beside it."""
        self.tick()
        since = (self._now - self._boot).total_seconds()
        self.kernel.append(f"{self._now:%Y-%m-%dT%H:%M:%S},{self._now.microsecond:06d}+00:00 kernel: [{since:12.6f}] {text}")

    def amdgpu(self, device: int, text: str) -> None:
        self.dmesg(f"amdgpu {self.cards[device].pci}: amdgpu: {text}")

    def xid(self, device: int, number: int, text: str) -> None:
        self.dmesg(f"NVRM: Xid (PCI:{self.cards[device].pci[:-2]}): {number}, pid={self.pid}, name={self.program}, {text}")

    # ---- events ------------------------------------------------------------------------------------------------------------
    def started(self, layers: int = 6) -> None:
        for card in self.cards:
            self.say(f"{card.pci} ready, node {card.node}", level="I", device=card.index)
        self.say(f"model loaded, {layers} layers on {len(self.cards)} devices", level="I")

    def page_fault(self, device: int, address: int, *, call: str = "synchronise") -> None:
        """A kernel of `device` touched an address that its page tables do not allow."""
        rng, page = self._rng, address & ~0xFFF
        if self.style == "nvidia":
            engine = rng.choice(("GPCCLIENT_T1_0", "GPCCLIENT_T1_3", "GPCCLIENT_GCC"))
            self.xid(
                device,
                31,
                f"Ch {rng.randrange(64):08x}, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC{rng.randrange(8)} {engine} faulted @ "
                f"0x{page >> 32:x}_{page & 0xFFFFFFFF:08x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
            )
        else:
            self.amdgpu(
                device,
                f"[gfxhub] page fault (src_id:0 ring:{rng.randrange(24, 64)} vmid:{rng.randrange(1, 16)} "
                f"pasid:{rng.randrange(32768, 33000)})",
            )
            self.amdgpu(device, f" in process {self.program} pid {self.pid} thread {self.program} pid {self.pid}")
            self.amdgpu(device, f"  in page starting at address 0x{page:016x} from client 10")
            for _ in range(rng.randrange(1, 4)):
                self.sq_intr(device)
        self.say(f"{call}: {ILLEGAL[self.style]} at 0x{address:x}", device=device)

    def sq_intr(self, device: int) -> None:
        rng = self._rng
        self.amdgpu(
            device,
            f"sq_intr: error, detail 0x{rng.randrange(1 << 20):08x}, type {rng.randrange(1, 4)}, sh {rng.randrange(2)}, priv 1, "
            f"wave_id {rng.randrange(16)}, simd_id {rng.randrange(4)}, wgp_id {rng.randrange(5)}",
        )

    def timed_out(self, device: int, layer: int | str, *, seconds: int = 10) -> None:
        """The engine gave up waiting."""
        self.tick(seconds)
        self.say(f"timed out at layer {layer} after {seconds} s waiting in stream synchronise", device=device)

    def write(self, folder: Path, *, encoding: str = "utf-8") -> tuple[Path, Path]:
        """engine.log and kernel.log in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = folder / "engine.log", folder / "kernel.log"
        for path, lines in zip(paths, (self.engine, self.kernel)):
            path.write_text("".join(f"{line}\n" for line in lines), encoding=encoding)
        return paths
