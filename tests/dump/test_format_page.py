"""docs/format.md says what the code does: its reader runs, its table is the table."""

import re
import subprocess
import sys
from pathlib import Path

from edge0verify.dump.layouts import LAYOUTS
from edge0verify.dump.levels import LAYER_TENSORS

from . import samples

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text()


def test_the_ten_line_reader_runs_and_sees_damage(tmp_path):
    code = re.search(r"```python\n(.*?)```", PAGE, re.S)[1]
    values = samples.make(tmp_path / "x.h5")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert "sample full 40 tokens" in out.stdout and "mtp d-xlq codes (40, 64) int8 ok" in out.stdout
    assert "DAMAGED" not in out.stdout
    data = bytearray((tmp_path / "x.h5").read_bytes())
    data[data.index(values[0, "u"].tobytes()) + 9] ^= 1
    (tmp_path / "x.h5").write_bytes(data)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert out.stdout.count("DAMAGED") == 1
    assert len([line for line in code.splitlines() if line.strip()]) <= 10


def test_the_table_of_tensors_is_the_codes_own():
    rows = re.findall(r"^\| ([a-z-]+) \| (f32|i32|q8_1) \| (token|pair) \| (\w+) \|$", PAGE, re.M)
    assert rows == [(spec.name, spec.kind, spec.rows.removesuffix("s"), spec.level) for spec in LAYER_TENSORS]


def test_every_layout_is_listed():
    assert all(f"`{name}`" in PAGE for name in LAYOUTS)
