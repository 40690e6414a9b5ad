"""Tables of probes for a terminal."""

from __future__ import annotations

from tabulate import tabulate

from edge0verify.probe.memory import Report
from edge0verify.probe.types import Row


def amount(nbytes: int) -> str:
    """'4 B', '252 KiB', '64 MiB'."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:g} {unit}"
    return f"{nbytes} B"


def _speed(value: float | None) -> str:
    return "" if value is None else f"{value / 1e9:.3g}"


def _row(row: Row) -> list[str]:
    cell = row.cell
    peer = "" if cell.peer is None else "on" if cell.peer else "off"
    why = f"{row.cause}{' (the rule)' if row.by_rule else ''}" if row.cause else ""
    if row.error is not None:
        why += f"; {row.error['name']} ({row.error['code']})"
    if row.smallest_bad:
        why += f", from {amount(row.smallest_bad)} on"
    latency = "" if row.latency is None else f"{row.latency * 1e6:.0f}"
    return [
        f"{cell.reader} <- {cell.owner}",
        cell.memory,
        peer,
        row.operation,
        row.answer,
        _speed(row.bandwidth),
        _speed(row.limit),
        latency,
        why,
    ]


def memory_text(report: Report) -> str:
    """The table of a memory probe, what there is to act on, and the answer."""
    lines = [f"{d}  {d.name}  {d.peer_link or d.link or 'link unknown'}" for d in report.devices]
    if report.rows:
        heads = ("reader <- owner", "memory", "peer", "operation", "answer", "GB/s", "limit", "us", "why")
        lines += ["", tabulate([_row(r) for r in report.rows], headers=heads, tablefmt="plain", disable_numparse=True)]
    if lines:
        lines.append("")
    lines += [f"{'FAULT' if f.decides else 'note'}  {f.cause}: {f.text}" for f in report.findings]
    lines.append(f"{report.status}: {'; '.join(report.reasons) or 'every operation that the rules allow came out right'}")
    return "\n".join(lines)
