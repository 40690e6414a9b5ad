"""What earlier nights and the base commit say to a result."""

import json
import subprocess
import sys

import pytest

from edge0verify.nightly import run as nightly
from edge0verify.nightly.history import History
from tests.nightly.samples import PAIR, go, golden


class TestPastAndBase:
    @pytest.fixture
    def repository(self, tmp_path):
        """(base, head): two commits of a repository in which nightly.toml lies."""

        def git(*words):
            who = ("-c", "user.name=t", "-c", "user.email=t@t")
            done = subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
            return done.stdout.strip()

        git("init", "-q", "-b", "main")
        git("commit", "-q", "--allow-empty", "-m", "base")
        base = git("rev-parse", "HEAD")
        git("commit", "-q", "--allow-empty", "-m", "head")
        return base, git("rev-parse", "HEAD")

    def test_what_fails_on_the_base_too_is_not_this_change(self, config, repository):
        base, head = repository
        asked = config(golden("wrong"), top='[base]\ncommit = "main~1"\n')
        unknown = go(asked, commit=head)
        assert "was never run: not known whether it is this change" in unknown.results[0].reasons[0]
        assert "this is the base" in go(asked, commit=base).results[0].reasons[0]
        night = go(asked, commit=head)
        assert night.results[0].not_this_change
        assert night.results[0].reasons[0].startswith(f"not this change: it fails on the base {base[:10]} too (nightly 2)")
        assert night.exit_code == 1  # named, not excused
        assert "1 fail on the base commit too" in (night.folder / "summary.txt").read_text()

    def test_the_base_is_run_where_the_history_does_not_know_it(self, config, repository):
        words = [sys.executable, "-m", "edge0verify.nightly.child", "{cell}", "{out}"]
        asked = config(golden("wrong"), top=f'[base]\ncommit = "main~1"\ncommand = {json.dumps(words)}\n')
        result = go(asked, commit=repository[1]).results[0]
        assert result.not_this_change and "(run there)" in result.reasons[0]

    def test_figures_that_moved_since_the_last_night_are_told(self, config, tmp_path):
        asked = config(PAIR)
        go(asked)
        with History(tmp_path / "nightly/history.db") as history:
            last = history.results(1)[0]
            this = history.runs()[0]
            number = history.begin(nightly.replace(this, commit="e" * 40), [])
            moved = {**last.metrics, "equal_pct": 12.5}
            history.add_result(number, nightly.replace(last, metrics=moved))
            history.finish(number, "PASS", 0)
        remark = go(asked, commit="f" * 40).results[0].remarks[0]
        assert remark.startswith("since nightly 2: equal % 12.5 -> ")

    def test_another_answer_from_the_same_commit_is_no_pass(self, config, tmp_path):
        """A FAIL that went away by itself is kept beside the pass, and the pass is not believed."""
        asked = config(golden("right"))
        go(asked)
        with History(tmp_path / "nightly/history.db") as history:
            first = history.results(1)[0]
            this = history.runs()[0]
            number = history.begin(this, [(c.name, c.spec) for c in asked.cells])
            history.add_result(number, nightly.replace(first, status="FAIL", exit_code=1))
            history.finish(number, "FAIL", 1)
        night = go(asked)
        assert (night.results[0].status, night.exit_code) == ("INCONCLUSIVE", 3)
        assert night.results[0].reasons[0].startswith("another answer from the same commit and binary: nightly 2 said FAIL")
        assert [r.status for r in History(tmp_path / "nightly/history.db").results()] == ["PASS", "FAIL", "INCONCLUSIVE"]
        assert go(asked, commit="e" * 40).exit_code == 0  # another commit is another answer
        assert go(asked, dirty=True).exit_code == 0  # and a dirty tree is no commit
