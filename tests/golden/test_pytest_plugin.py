"""The fixture in a pytest run of its own: it fails tests, and its text is the verdict."""

from importlib.metadata import entry_points

import pytest

from edge0verify.golden.store import Store
from tests.golden.test_check import _with_manifest

pytest_plugins = ["pytester"]

TESTS = """
import os
import numpy as np
import pytest

NOW = os.environ["STATE"] == "changed"
RULE = {{"rule": [{{"matched": 0.98}}]}}

def rows(change):
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    return change(x) if NOW else x

def put(at, value):
    def change(x):
        x[at] = value
        return x
    return change

CASES = {{
    "ulp": (put((2, 5), np.nextafter(np.float32(37), np.float32(99))), None),
    "rule-met": (put((0, 0), 5), RULE),
    "rule-broken": (put(0, 5), RULE),
    "nan": (put((0, 0), np.nan), {{"rule": [{{"matched": 0.5}}]}}),
    "no-rule": (put((0, 0), 5), "conform"),
    "misspelt": (put((0, 0), 0), {{"rule": [{{"mached": 0.98}}]}} if NOW else None),
    "shape": (lambda x: x[:3], None),
    "dtype": (lambda x: x.astype(np.float16), None),
    "complex": (lambda x: x.astype(np.complex64), None),
}}

@pytest.mark.parametrize("name", CASES)
def test_rows(edge0_golden, name):
    change, policy = CASES[name]
    edge0_golden(name, rows(change), policy=policy)

def test_dump(edge0_golden):
    found = edge0_golden("whole", {dump!r}) if NOW else None
    assert found is None or found.verdict.engaged == {{"a": True, "b": True}}
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch, kept, tmp_path):
    """Run the tests above, their arrays changed or not, against a store that already holds the golden `whole`."""
    installed = any(e.value == "edge0verify.golden.pytest_plugin" for e in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "edge0verify.golden.pytest_plugin"]
    pytester.makeini("[pytest]\nedge0_golden_store = kept/here\n")
    pytester.path.joinpath("kept").mkdir()
    golden = kept.open("whole")
    with kept.dump(golden, golden.current) as path:
        _with_manifest(path, tmp_path / "again.h5", time="2026-12-01T00:00:00+00:00")
    import shutil

    shutil.copytree(kept.folder, pytester.path / "kept/here")
    pytester.makepyfile(TESTS.format(dump=str(tmp_path / "again.h5")))

    def made(state, *options):
        monkeypatch.setenv("STATE", state)
        return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", *options)

    return made


def test_accept_pass_fail_and_accept_again(run, pytester):
    absent = run("first")
    absent.assert_outcomes(failed=9, passed=1)
    absent.stdout.fnmatch_lines(["*golden ulp: expected it in *here, found none; --edge0-golden-accept REASON*"])

    accepted = run("first", "--edge0-golden-accept", "first rows")
    accepted.assert_outcomes(passed=10)
    accepted.stdout.fnmatch_lines(["golden accepted: ulp (run 1): first rows"])

    changed = run("changed")
    changed.assert_outcomes(failed=8, passed=2)
    changed.stdout.fnmatch_lines(
        [
            "*golden ulp: FAIL",
            "*value: 1 of 64 elements changed*first at ?2, 5?: now 37.0000*, golden 37.0; this golden allows no change",
            "*layer*tensor*equal*",
            "*verdict: FAIL",
        ]
    )
    text = changed.stdout.str()
    assert "0.765625 match, policy asks for 0.98" in text
    assert "1 are no number on one side" in text
    assert "no rule with `matched` says how many may" in text  # nothing proven is no pass
    assert "mached: expected one of" in text
    assert "unlike runs: signature: rows: the golden has 4, this run 3" in text
    assert "the golden has float32 [4, 16], this run float16 [4, 16]" in text
    assert "found complex64" in text

    again = run("changed", "--edge0-golden-accept", "one ulp more", "-k", "ulp")
    again.assert_outcomes(passed=1, deselected=9)
    golden = Store(pytester.path / "kept/here").open("ulp")
    assert [a.reason for a in golden.accepted] == ["first rows", "one ulp more"]
    assert (golden.anchor.n, golden.since_anchor) == (1, 1)
