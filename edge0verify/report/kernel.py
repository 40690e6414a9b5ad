"""What a test of one kernel alone showed, as text."""

from __future__ import annotations

import textwrap

from tabulate import tabulate

from edge0verify.records.verdict import Verdict
from edge0verify.report.tables import WIDTH, figure, share
from edge0verify.study.kernel import CaseReport, Report

_HEADERS = ("case", "M,N,K", "values", "equal\nto b %", "error\n/bound", "bias\n|t|", "status", "causes")


def kernel_text(report: Report) -> str:
    """Title with the seed, a line per case, who ran, the verdict and its reasons."""
    v = report.verdict
    title = f"stage {v.stage}: a = {v.a}, alone on {len(report.cases)} cases, b = {v.b} beside it; seed {report.seed}"
    many_parts = len({case.part for case in report.cases}) > 1
    lines = [_line(case, many_parts) for case in report.cases]
    head = tabulate([line[:-1] for line in lines], _HEADERS[:-1], tablefmt="simple", disable_numparse=True, colalign=_ALIGN[:-1])
    left = max(20, WIDTH - len(head.splitlines()[2]) - 2)
    for line in lines:
        line[-1] = textwrap.shorten(line[-1], left, placeholder=" ...")
    table = tabulate(lines, _HEADERS, tablefmt="simple", disable_numparse=True, colalign=_ALIGN)
    return "\n\n".join([title, table, _closing(v)])


_ALIGN = ("left", "left", "right", "right", "right", "right", "left", "left")


def _line(case: CaseReport, many_parts: bool) -> list[str]:
    rows = [r for r in case.results if not r.tensor.endswith((".d", ".s"))]
    n, equal = sum(r.n for r in rows), sum(r.equal for r in rows)
    name = f"{case.part} {case.case}" if many_parts else case.case
    return [name, case.shape, str(case.values), share(equal, n), figure(case.error_over_bound, 2), figure(case.largest_bias, 2),
            case.status, "; ".join([*case.notes, *_causes(case)]) or "-"]


def _causes(case: CaseReport) -> list[str]:
    """Causes other than `equal` over all entries of the case, failing entries first with their tensor."""
    found, total = [], {}
    for result in case.results:
        counts = {name: n for name, n in result.causes.items() if name != "equal"}
        if result.status != "PASS":
            found.append(f"{result.tensor} " + ", ".join(f"{name} {n}" for name, n in counts.items()))
            continue
        for name, n in counts.items():
            total[name] = total.get(name, 0) + n
    return found + [f"{name} {n}" for name, n in sorted(total.items(), key=lambda item: -item[1])]


def _closing(v: Verdict) -> str:
    say = {True: "engaged", False: "NOT engaged", None: "not known"}
    lines = [f"a {v.a}: {say[v.engaged['a']]}   b {v.b}: {say[v.engaged['b']]}", f"verdict: {v.status}"]
    for reason in v.reasons:
        lines.extend(textwrap.wrap(reason, WIDTH - 4, initial_indent="  - ", subsequent_indent="    "))
    return "\n".join(lines)
