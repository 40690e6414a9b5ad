"""Verdicts as JUnit XML, for the dashboards that read nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import LayerResult, Verdict

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _text(value: str) -> str:
    """Without the characters that XML 1.0 cannot hold."""
    return _FORBIDDEN.sub("?", value)


def _case(suite: ElementTree.Element, classname: str, name: str, status: str, reasons: Sequence[str]) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=_text(classname), name=_text(name))
    if status == PASS:
        return
    # JUnit has no word for "nothing was proven". `skipped` would turn a dashboard green, so it is an error.
    kind = "failure" if status == FAIL else "error"
    first = reasons[0] if reasons else status
    found = ElementTree.SubElement(case, kind, type=status, message=_text(first))
    found.text = _text("\n".join(reasons))


def _name(verdict: Verdict) -> str:
    return f"{verdict.stage or 'compare'}: {verdict.a} against {verdict.b}"


def _entry_name(result: LayerResult) -> str:
    return f"layer {result.layer} {result.tensor}"


def junit(verdicts: Sequence[Verdict]) -> str:
    """One suite per verdict, one case per entry and one, `verdict`, for the verdict itself. Returns the XML text."""
    root = ElementTree.Element("testsuites", name="edge0verify")
    for verdict in verdicts:
        cases = [(_entry_name(r), r.status, r.reasons) for r in verdict.layers]
        cases.append(("verdict", verdict.status, verdict.reasons))
        name = _name(verdict)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_text(name),
            tests=str(len(cases)),
            failures=str(sum(status == FAIL for _, status, _ in cases)),
            errors=str(sum(status == INCONCLUSIVE for _, status, _ in cases)),
            skipped="0",
        )
        for case, status, reasons in cases:
            _case(suite, name, case, status, reasons)
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
