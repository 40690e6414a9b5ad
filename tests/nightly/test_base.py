"""Whose fault a failing cell is: only a failure on the base commit itself says that it is not this change."""

import json
import os
import sys

import pytest

from edge0verify.nightly.base import Here, by_running, from_history, weigh
from edge0verify.nightly.config import Base
from tests.nightly.test_history import a_result, a_run

BASE, HEAD = "a" * 40, "d" * 40
HERE = Here(commit=HEAD, binary_sha256="head", kernels_sha256="head")


@pytest.mark.parametrize(
    ("found", "excused", "said"),
    [
        ({"status": "FAIL"}, True, "not this change: it fails on the base aaaaaaaaaa too"),
        ({"status": "PASS"}, False, "this change: it passes on the base"),
        ({"status": "INCONCLUSIVE"}, False, "says INCONCLUSIVE .* not known whether it is this change"),
        ({"status": "INTERNAL"}, False, "not known whether"),
        ({"status": None, "trouble": "exited with 1: no compiler"}, False, "gave no result .*no compiler"),
        (None, False, "was never run"),
        ({"status": "FAIL", "binary_sha256": "head"}, False, "ran the same binary though its kernel sources differ, one is stale"),
        ({"status": "PASS", "binary_sha256": "head"}, False, "one is stale"),
        ({"status": "FAIL", "binary_sha256": "head", "kernels_sha256": "head"}, True, "not this change"),
        ({"status": "FAIL", "binary_sha256": None, "kernels_sha256": None}, True, "not this change"),
    ],
)
def test_weigh(found, excused, said):
    if found is not None:
        found = {"source": "nightly 1", "commit": BASE, "binary_sha256": "base", "kernels_sha256": "base", **found}
    answer = weigh(found, HERE, BASE)
    assert answer["not_this_change"] is excused
    import re

    assert re.search(said, answer["text"])
    json.dumps(answer)


class TestFromHistory:
    RUNS = (a_run(run=1, commit=BASE), a_run(run=2, commit=BASE, dirty=True), a_run(run=3, commit=HEAD), a_run(run=4, commit=BASE))

    def test_the_newest_clean_result_of_that_commit_cell_and_golden(self):
        results = [a_result(run=1, status="PASS"), a_result(run=2, status="FAIL"), a_result(run=3, status="FAIL")]
        assert from_history("golden/g/cpu", "g1", BASE, self.RUNS, results)["status"] == "PASS"
        results.append(a_result(run=4, status="FAIL"))
        assert from_history("golden/g/cpu", "g1", BASE, self.RUNS, results)["source"] == "nightly 4"

    @pytest.mark.parametrize(("cell", "golden"), [("golden/h/cpu", "g1"), ("golden/g/cpu", "g2")])
    def test_another_cell_or_golden_says_nothing(self, cell, golden):
        assert from_history(cell, golden, BASE, self.RUNS, [a_result(run=1, status="FAIL")]) is None


class TestByRunning:
    def run(self, tmp_path, code, timeout_s=20.0):
        script = tmp_path / "base.py"
        script.write_text(code)
        base = Base(commit="main", command=(sys.executable, str(script), "{commit}", "{cell}", "{out}"), timeout_s=timeout_s)
        return by_running(base, BASE, {"kind": "golden", "golden": "g"}, dict(os.environ), tmp_path)

    def test_what_the_command_leaves(self, tmp_path):
        code = (
            "import json, sys\ncommit, cell, out = sys.argv[1:]\nspec = json.load(open(cell))\n"
            "assert (spec['commit'], spec['golden']) == (commit, 'g')\n"
            "json.dump({'status': 'FAIL', 'exit_code': 1, 'binary_sha256': 'old'}, open(out, 'w'))\n"
        )
        found = self.run(tmp_path, code)
        assert (found["status"], found["binary_sha256"], found["source"]) == ("FAIL", "old", "run there")
        assert weigh(found, HERE, BASE)["not_this_change"]

    @pytest.mark.parametrize(
        ("code", "said"),
        [("import sys; sys.exit('no compiler here')", "exited with 1: no compiler here"), ("pass", "left no answer"),
         ("import sys; open(sys.argv[3], 'w').write('{')", "left no answer"), ("import time; time.sleep(60)", "time limit")],
    )  # fmt: skip
    def test_a_command_that_gives_nothing_excuses_nothing(self, tmp_path, code, said):
        found = self.run(tmp_path, code, timeout_s=1.5)
        assert said in found["trouble"]
        assert not weigh(found, HERE, BASE)["not_this_change"]
