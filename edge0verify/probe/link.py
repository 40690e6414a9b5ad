"""What a link can carry, from its name."""

from __future__ import annotations

import re

PCIE_LANE = {"1.0": 0.25e9, "2.0": 0.5e9, "3.0": 0.985e9, "4.0": 1.969e9, "5.0": 3.938e9, "6.0": 7.563e9}
"""Bytes a second of one lane and direction, line code taken off."""


def limit(link: str | None) -> float | None:
    """Bytes a second and direction of 'PCIe 5.0 x16', 'NVLink 18 x 26.562 GB/s' or a simulated link; None for an unknown one."""
    if not link:
        return None
    pcie = re.match(r"PCIe (\d\.\d) x(\d+)", link)
    if pcie and pcie[1] in PCIE_LANE:
        return PCIE_LANE[pcie[1]] * int(pcie[2])
    nvlink = re.match(r"NVLink (\d+) x ([\d.]+) GB/s", link)
    if nvlink:
        return int(nvlink[1]) * float(nvlink[2]) * 1e9
    simulated = re.match(r"simulated x(\d+)", link)
    if simulated:
        from edge0verify.runtime.sim import LANE_BYTES_S

        return LANE_BYTES_S * int(simulated[1])
    return None


def narrow(link: str | None) -> bool:
    """Whether a card that wants sixteen lanes has fewer than eight."""
    width = re.search(r"(?:PCIe \d\.\d|simulated) x(\d+)", link or "")
    return width is not None and int(width[1]) < 8
