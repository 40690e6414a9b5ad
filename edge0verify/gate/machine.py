"""The state of the machine: what it is, its clocks, and its throttle counters, each with the reason where it cannot be read."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

QUERY_TIMEOUT_S = 20.0

THERMAL_COUNTERS = ("sw_thermal_us", "hw_thermal_us", "hw_power_brake_us", "core_throttle_count", "package_throttle_count")
"""Counters that must stand still during a speed run. A power cap that is reached is a concern, not a fault of the run."""

ISA_FLAGS = (
    *("sse4_1", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx_vnni"),
    *("asimd", "asimddp", "i8mm", "sve", "sve2"),
)

NVIDIA_FIELDS = {
    "name": "name",
    "driver": "driver_version",
    "temp_c": "temperature.gpu",
    "sm_clock_mhz": "clocks.current.sm",
    "sm_clock_max_mhz": "clocks.max.sm",
    "mem_clock_mhz": "clocks.current.memory",
    "power_w": "power.draw",
}
NVIDIA_COUNTERS = {
    "sw_power_cap_us": "sw_power_cap",
    "sw_thermal_us": "sw_thermal_slowdown",
    "hw_thermal_us": "hw_thermal_slowdown",
    "hw_power_brake_us": "hw_power_brake_slowdown",
    "sync_boost_us": "sync_boost",
}


def snapshot() -> dict[str, Any]:
    """One reading: {captured_at, machine, cpu, devices, throttle_counters, unreadable: {what: why}}."""
    unreadable: dict[str, str] = {}
    devices = _nvidia(unreadable) + _rocm(unreadable)
    counters = _cpu_throttle(unreadable)
    for device in devices:
        for name, value in (device.pop("throttle_counters", None) or {}).items():
            counters[name] = counters.get(name, 0) + value
    if not counters:
        unreadable["throttle_counters"] = "no source on this machine has them"
    return {
        "captured_at": time.time(),
        "machine": identity(),
        "cpu": _cpu_clocks(unreadable),
        "devices": devices,
        "throttle_counters": counters or None,
        "unreadable": unreadable,
    }


def identity() -> dict[str, Any]:
    """What the machine is: host name, architecture, processor, kernel."""
    model = platform.processor() or None
    for line in _lines("/proc/cpuinfo"):
        if line.startswith(("model name", "Model")):
            model = line.partition(":")[2].strip()
            break
    return {
        "host": platform.node(),
        "arch": platform.machine(),
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "os": f"{platform.system()} {platform.release()}",
    }


def isa_flags() -> tuple[str, ...] | None:
    """The processor's instruction sets that a kernel here could use, as the kernel reports them."""
    for line in _lines("/proc/cpuinfo"):
        if line.startswith(("flags", "Features")):
            found = set(line.partition(":")[2].split())
            return tuple(name for name in ISA_FLAGS if name in found)
    return None


def judge_state(before: Mapping | None, after: Mapping | None, *, kind: str) -> dict[str, Any]:
    """Whether a run between two snapshots may stand: {validity, concerns, delta}.

    validity: 'not-applicable' where time is not measured, 'invalid' when a thermal counter advanced, 'unmeasured' when
    no counter could be read on both ends, else 'valid'.
    """
    delta, concerns = counter_delta(before, after), []
    for name, moved in (delta or {}).items():
        if moved < 0:
            concerns.append(f"{name} went back by {-moved}: the counter was reset during the run")
        elif moved > 0:
            concerns.append(f"{name} advanced by {moved}")
    stopped = delta is not None and any(moved != 0 for name, moved in delta.items() if name in THERMAL_COUNTERS)
    if kind != "speed":
        validity = "not-applicable"
    elif stopped:
        validity = "invalid"
    else:
        validity = "unmeasured" if not set(delta or ()) & set(THERMAL_COUNTERS) else "valid"
    return {"validity": validity, "concerns": concerns, "delta": delta}


def counter_delta(before: Mapping | None, after: Mapping | None) -> dict[str, int] | None:
    """after - before of the counters both ends have; None when there is none."""
    first, last = (side and side.get("throttle_counters") for side in (before, after))
    if not first or not last:
        return None
    return {name: last[name] - first[name] for name in first if name in last} or None


def _nvidia(unreadable: dict[str, str]) -> list[dict[str, Any]]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        unreadable["nvidia-smi"] = "not installed"
        return []
    facts = _csv([tool, f"--query-gpu={','.join(NVIDIA_FIELDS.values())}", "--format=csv,noheader,nounits"])
    if isinstance(facts, str):
        unreadable["nvidia-smi"] = facts
        return []
    devices = [{name: _number(value) for name, value in zip(NVIDIA_FIELDS, row)} for row in facts]
    names = ",".join(f"clocks_event_reasons_counters.{name}" for name in NVIDIA_COUNTERS.values())
    rows = _csv([tool, f"--query-gpu={names}", "--format=csv,noheader,nounits"])
    if isinstance(rows, str):
        unreadable["nvidia throttle counters"] = rows
        return devices
    for device, row in zip(devices, rows):
        read = {name: _number(value) for name, value in zip(NVIDIA_COUNTERS, row)}
        device["throttle_counters"] = {name: value for name, value in read.items() if isinstance(value, int)}
    return devices


def _rocm(unreadable: dict[str, str]) -> list[dict[str, Any]]:
    tool = shutil.which("rocm-smi")
    if tool is None:
        unreadable["rocm-smi"] = "not installed"
        return []
    text = _output([tool, "--showproductname", "--showdriverversion", "--showtemp", "--showclocks", "--json"])
    try:
        cards = json.loads(text) if not isinstance(text, Exception) else None
    except ValueError:
        cards = None
    if not isinstance(cards, dict):
        unreadable["rocm-smi"] = f"no JSON answer: {text!s:.200}"
        return []
    unreadable["rocm throttle counters"] = "rocm-smi reports none"
    driver = (cards.pop("system", None) or {}).get("Driver version")
    return [{"name": card, "driver": driver, "reported": facts} for card, facts in sorted(cards.items())]


def _cpu_clocks(unreadable: dict[str, str]) -> dict[str, Any] | None:
    folder = Path("/sys/devices/system/cpu/cpu0/cpufreq")
    read = {name: next(iter(_lines(folder / name)), None) for name in ("scaling_governor", "scaling_cur_freq", "scaling_max_freq")}
    if not any(read.values()):
        unreadable["cpu clocks"] = "no cpufreq in /sys"
        return None
    return {
        "governor": read["scaling_governor"],
        "clock_khz": _number(read["scaling_cur_freq"] or ""),
        "clock_max_khz": _number(read["scaling_max_freq"] or ""),
    }


def _cpu_throttle(unreadable: dict[str, str]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/*_throttle_count"):
        value = _number(next(iter(_lines(path)), ""))
        if isinstance(value, int):
            totals[path.name] = totals.get(path.name, 0) + value
    if not totals:
        unreadable["cpu throttle counters"] = "no thermal_throttle in /sys"
    return totals


def _csv(argv: Sequence[str]) -> list[list[str]] | str:
    """Rows of a tool's comma-separated answer, or why there is none."""
    text = _output(argv)
    if isinstance(text, Exception):
        return str(text)
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()] or "an empty answer"


def _output(argv: Sequence[str]) -> str | Exception:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=QUERY_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return error
    if done.returncode:
        return RuntimeError(f"{Path(argv[0]).name} exited with {done.returncode}: {(done.stdout + done.stderr).strip()[:200]}")
    return done.stdout


def _number(text: str) -> int | float | str | None:
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else None
    return None if not text or text.startswith(("[", "N/A")) else text


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []
