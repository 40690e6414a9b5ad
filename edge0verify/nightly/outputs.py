"""What a nightly leaves for people and dashboards: JSON lines, JUnit, a text, and a page with the trend over nights."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from edge0verify.nightly.history import Result
from edge0verify.records.status import FAIL, PASS

if TYPE_CHECKING:
    from edge0verify.nightly.run import Night


def write_outputs(night: Night, history: Path) -> list[Path]:
    """Write them into the nightly's folder; the files."""
    from edge0verify.report.html import nightly_html  # it draws, which takes a second to import
    from edge0verify.report.nightly_text import night_text

    folder = night.folder
    lines = "".join(json.dumps(r.to_json(), sort_keys=True, allow_nan=False) + "\n" for r in night.results)
    written = [
        _write(folder / "cells.jsonl", lines),
        _write(folder / "junit.xml", junit(night.results, night.missing)),
        _write(folder / "summary.txt", night_text(night) + "\n"),
    ]
    return [*written, _write(folder / "report.html", nightly_html(history))]


def junit(results: Sequence[Result], missing: Sequence[str] = ()) -> str:
    """One suite per kind of cell. What proved nothing is an error, never `skipped`, which would turn a dashboard green."""
    root = ElementTree.Element("testsuites", name="edge0verify nightly")
    kinds = dict.fromkeys(name.split("/")[0] for name in (*(r.cell for r in results), *missing))
    for kind in kinds:
        mine = [r for r in results if r.cell.split("/")[0] == kind]
        gone = [name for name in missing if name.split("/")[0] == kind]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=kind,
            tests=str(len(mine) + len(gone)),
            skipped="0",
            failures=str(sum(r.status == FAIL for r in mine)),
            errors=str(len(gone) + sum(r.status not in (PASS, FAIL) for r in mine)),
        )
        for r in mine:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"nightly.{kind}", name=_text(r.cell), time=f"{r.wall_s or 0:.3f}"
            )
            if r.status != PASS:
                kind_of = "failure" if r.status == FAIL else "error"
                found = ElementTree.SubElement(case, kind_of, type=r.status, message=_text(r.reasons[0] if r.reasons else r.status))
                found.text = _text("\n".join((*r.reasons, *r.remarks)))
        for name in gone:
            case = ElementTree.SubElement(suite, "testcase", classname=f"nightly.{kind}", name=_text(name))
            ElementTree.SubElement(case, "error", type="MISSING", message="the cell left no result")
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _text(value: str) -> str:
    """Without the characters that XML 1.0 cannot hold."""
    return "".join(
        c if c in "\t\n\r" or 0x20 <= ord(c) <= 0xD7FF or 0xE000 <= ord(c) <= 0xFFFD or ord(c) > 0xFFFF else "?" for c in value
    )


def _write(path: Path, text: str) -> Path:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
    return path
