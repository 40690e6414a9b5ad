"""The Python in docs/dumps.md runs as it stands, and what it writes is a dump."""

from __future__ import annotations

import re
from pathlib import Path

from edge0verify.dump.reader import open_dump

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "dumps.md").read_text()


def test_the_writer_in_the_how_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    exec(compile(code, "docs/dumps.md", "exec"), {})
    with open_dump("engine.h5") as made:
        assert made.verify() > 0 and made.rows().tolist() == [[0, at, 1] for at in range(8)]
        assert made.shape(0, "ffn-in") == (8, 384) and made.read(0, "d-xlq").codes.shape == (8, 256) and made.manifest.foreign
