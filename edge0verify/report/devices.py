"""Devices as tables."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from edge0verify.runtime.protocol import Device
from edge0verify.runtime.survey import Survey


def _memory(device: Device) -> str:
    return "" if device.memory is None else f"{device.memory / (1 << 30):.1f} GiB"


def devices_text(found: Sequence[Survey]) -> str:
    """A line per device, the matrix of peer access where there are two, and why a runtime has none."""
    rows = [
        (str(d), d.name, d.arch, _memory(d), d.driver, ", ".join(filter(None, (d.link, d.peer_link))) or "not known")
        for s in found
        for d in s.devices
    ]
    heads = ("device", "name", "architecture", "memory", "driver", "link")
    lines = [tabulate(rows, headers=heads, tablefmt="plain", disable_numparse=True)]
    for s in found:
        if len(s.devices) > 1:
            table = [
                [f"{s.runtime}:{i}", *("-" if can is None else "yes" if can else "no" for can in row)]
                for i, row in enumerate(s.peers)
            ]
            owners = [f"of {s.runtime}:{i}" for i in range(len(s.devices))]
            lines += ["", tabulate(table, headers=["may reach memory", *owners], tablefmt="plain")]
    absent = [f"{s.runtime}: {s.reason or 'no device'}" for s in found if not s.devices]
    return "\n".join([*lines, *([""] if absent else []), *absent])
