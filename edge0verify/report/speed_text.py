"""A speed measurement as tables, at most 132 columns wide."""

from __future__ import annotations

from collections.abc import Iterable

from tabulate import tabulate

from edge0verify.report.tables import figure
from edge0verify.study.speed import SpeedReport, SpeedRow

_DEVICE = ("part", "variant", "weights", "M,N,K", "us", "spread\n%", "TOPS", "TB/s of\nweights", "of int8\n%", "of reading\n%",
           "of its\nloop %", "")
_HOST = ("stage", "variant", "weights", "M,N,K", "us", "spread\n%", "GMAC/s", "times\nggml", "")


def speed_text(found: SpeedReport) -> str:
    """Device, ceilings, a line per variant and shape, the prefill, and what was not measured.  Ends without a newline."""
    device = found.device
    head = ", ".join(str(device[key]) for key in ("device", "name", "arch", "driver", "link") if device.get(key))
    if found.reason is not None:
        return f"{head}\n\nINCONCLUSIVE: {found.reason}"
    parts = [head]
    ceilings = [f"int8 product of the vendor: {found.int8_tops:.0f} TOPS"] if found.int8_tops else []
    if found.read_tbs:
        each = ", ".join(f"{tbs:.2f} TB/s at {mib} MiB a launch" for mib, tbs in found.read_tbs.items())
        ceilings.append(f"a kernel that only reads: {each}")
    parts += ["\n".join(ceilings)] if ceilings else []
    if found.rows:
        parts.append(_table(found.rows, host=device["device"] == "cpu"))
    if found.prefill:
        parts.append(_prefill(found.prefill))
    parts += ["\n".join(f"not measured: {text}" for text in found.not_measured)] if found.not_measured else []
    return "\n\n".join(parts)


def _table(rows: Iterable[SpeedRow], *, host: bool) -> str:
    lines = []
    for r in rows:
        line = [r.part, r.variant, r.fmt, f"{r.m},{r.n},{r.k}", f"{r.us:.1f}", f"{100 * r.spread:.1f}"]
        if host:
            line += [f"{r.tops * 500:.1f}", "-" if r.ggml is None else f"{r.ggml:.2f}", r.note]
        else:
            line += [figure(r.tops, 3), "-" if r.weights_tbs is None else f"{r.weights_tbs:.2f}"]
            line += [_percent(share) for share in (r.of_int8, r.of_reading, r.of_bare)] + [r.note]
        lines.append(line)
    headers = _HOST if host else _DEVICE
    align = ["left"] * 4 + ["right"] * (len(headers) - 5) + ["left"]
    return tabulate(lines, headers, tablefmt="simple", disable_numparse=True, colalign=align)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _prefill(found: dict) -> str:
    title = f"prefill of {found['tokens']} tokens, {found['variant']} on D, A and U: {found['seconds']:.2f} s, "
    title += f"{found['tokens_per_second']:.0f} tokens/s"
    shares = ", ".join(f"{s['stage']} {100 * s['share']:.1f} %" for s in found["shares"])
    return f"{title}\n  {shares}"
