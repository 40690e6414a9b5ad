"""Which record speaks for a head, which one decides, and what keeps it from being good."""

import pytest

from edge0verify.gate.git import Git, GitError
from edge0verify.gate.policy import EVERYTHING, LegRules, Policy, parse
from edge0verify.gate.store import Store
from edge0verify.gate.validity import coverage, decide, same_commit, shortcomings
from tests.gate.samples import SHA, Repository, record

RULES = parse(
    {
        "schema": "edge0verify.gate-policy/1",
        "invalidating": ["src/"],
        "exclude": [{"paths": ["src/docs/"], "reason": "text"}],
        "legs": {},
    },
    where="test",
)


def decided(tmp_path, *records, head=SHA, git=None, policy=EVERYTHING):
    store = Store(tmp_path / "store")
    for item in records:
        store.append(item)
    return decide("decode", store.records("decode"), head, git, policy)


class TestCoverage:
    def test_the_same_commit_is_covered_without_git(self):
        assert coverage(SHA, SHA, None, EVERYTHING).covered
        assert coverage(SHA[:10], SHA, None, EVERYTHING).covered

    def test_nine_digits_are_too_few_to_call_commits_the_same(self):
        assert not same_commit(SHA[:9], SHA)
        assert not coverage(SHA[:9], SHA, None, EVERYTHING).covered

    def test_an_ancestor_covers_when_nothing_that_invalidates_changed(self, tmp_path):
        tree = Repository(tmp_path)
        old = tree.commit(src__a="1", readme="1")
        new = tree.commit(readme="2", src__docs__x="text")
        found = coverage(old, new, Git(tmp_path), RULES)
        assert found.covered
        assert "no invalidating path" in found.why

    def test_an_ancestor_does_not_cover_when_an_invalidating_path_changed(self, tmp_path):
        tree = Repository(tmp_path)
        old = tree.commit(src__a="1")
        tree.commit(src__a="2")
        new = tree.commit(readme="2")
        found = coverage(old, new, Git(tmp_path), RULES)
        assert not found.covered
        assert "src/a changed" in found.why

    def test_moving_a_file_out_of_an_invalidating_folder_counts(self, tmp_path):
        tree = Repository(tmp_path)
        old = tree.commit(src__a="many lines\n" * 50)
        (tmp_path / "src/a").rename(tmp_path / "kept")
        assert not coverage(old, tree.commit(), Git(tmp_path), RULES).covered

    def test_a_later_or_unrelated_commit_does_not_cover(self, tmp_path):
        tree = Repository(tmp_path)
        old = tree.commit(readme="1")
        new = tree.commit(readme="2")
        assert "no ancestor" in coverage(new, old, Git(tmp_path), RULES).why

    def test_a_failure_of_git_means_not_covered(self, tmp_path):
        found = coverage(SHA, "f" * 40, Git(tmp_path / "nowhere"), RULES)
        assert not found.covered
        assert "git cannot tell" in found.why

    def test_git_that_cannot_compare_means_not_covered(self):
        class Broken:
            def resolve(self, revision):
                return revision

            def is_ancestor(self, old, new):
                return True

            def changed(self, old, new):
                raise GitError("git diff exited with 128")

        assert not coverage(SHA, "f" * 40, Broken(), RULES).covered

    def test_a_shallow_clone_that_lost_the_record_s_commit_is_not_covered(self, tmp_path):
        tree = Repository(tmp_path / "full")
        old = tree.commit(readme="1")
        new = tree.commit(readme="2")
        tree.git("clone", "-q", "--depth", "1", f"file://{tmp_path / 'full'}", str(tmp_path / "shallow"))
        assert "git cannot tell" in coverage(old, new, Git(tmp_path / "shallow"), RULES).why

    def test_git_variables_of_the_caller_do_not_change_the_answer(self, tmp_path, monkeypatch):
        tree, other = Repository(tmp_path / "one"), Repository(tmp_path / "two")
        commit = tree.commit(readme="1")
        other.commit(readme="2")
        monkeypatch.setenv("GIT_DIR", str(tmp_path / "two/.git"))
        assert Git(tmp_path / "one").resolve("HEAD") == commit

    def test_the_store_s_own_files_do_not_void_its_records(self, tmp_path):
        tree = Repository(tmp_path)
        old = tree.commit(src__a="1")
        new = tree.commit(src__records__x="record")
        assert coverage(old, new, Git(tmp_path), RULES, own=("src/records/",)).covered
        assert not coverage(old, new, Git(tmp_path), RULES).covered


class TestTheNewestCoveringRecordDecides:
    def test_a_fail_counts_until_a_later_valid_record(self, tmp_path):
        failed = record(status="FAIL", reasons=("2 of 40 wrong",), recorded_at=1000.0)
        assert decided(tmp_path, failed).status == "FAIL"
        answer = decided(tmp_path, record(recorded_at=2000.0))
        assert answer.status == "PASS"
        assert "1 earlier FAIL" in answer.remarks[0]
        assert len(Store(tmp_path / "store").records()) == 2

    def test_an_older_pass_does_not_take_back_a_fail(self, tmp_path):
        assert decided(tmp_path, record(recorded_at=1000.0), record(status="FAIL", recorded_at=2000.0)).status == "FAIL"

    def test_a_rerun_that_proves_nothing_does_not_take_back_a_fail(self, tmp_path):
        answer = decided(tmp_path, record(status="FAIL", recorded_at=1.0), record(dirty=("src/a",), recorded_at=2.0))
        assert answer.status == "FAIL"
        assert "no valid one followed" in answer.reasons[0]

    def test_a_rerun_that_proves_nothing_is_not_good_after_a_pass_either(self, tmp_path):
        assert decided(tmp_path, record(recorded_at=1.0), record(dirty=("src/a",), recorded_at=2.0)).status == "INCONCLUSIVE"

    def test_of_two_records_at_one_time_the_worse_decides(self, tmp_path):
        assert decided(tmp_path, record(), record(status="FAIL")).status == "FAIL"
        assert decided(tmp_path / "b", record(status="FAIL"), record()).status == "FAIL"

    def test_a_newer_record_of_another_commit_does_not_decide(self, tmp_path):
        answer = decided(tmp_path, record(recorded_at=1.0), record(commit="f" * 40, status="FAIL", recorded_at=2.0))
        assert answer.status == "PASS"

    def test_nothing_recorded_and_nothing_covering_prove_nothing(self, tmp_path):
        assert decided(tmp_path).status == "INCONCLUSIVE"
        answer = decided(tmp_path, record(commit="f" * 40))
        assert answer.status == "INCONCLUSIVE"
        assert "no record covers this head" in answer.reasons[0]


class TestGood:
    def test_a_clean_pass_is_good(self):
        assert shortcomings(record(), LegRules()) == []

    @pytest.mark.parametrize(
        ("changes", "rules", "status", "said"),
        [
            ({"status": "FAIL", "reasons": ("worse",)}, LegRules(), "FAIL", "FAIL: worse"),
            ({"status": "INCONCLUSIVE"}, LegRules(), "INCONCLUSIVE", "says INCONCLUSIVE"),
            ({"status": "INFO", "kind": "info"}, LegRules(), "INCONCLUSIVE", "says INFO"),
            ({"status": "PASS", "kind": "info"}, LegRules(), "INCONCLUSIVE", "never opens a gate"),
            ({"dirty": ("a", "b")}, LegRules(), "INCONCLUSIVE", "dirty tree: a and 1 more"),
            ({"metrics": {"x": 1.0}}, LegRules(required_metrics=("x", "y")), "INCONCLUSIVE", "metric y is missing"),
            (
                {"validity": "invalid", "concerns": ("hot",)},
                LegRules(),
                "INCONCLUSIVE",
                "PASS stands on an invalid measurement: hot",
            ),
            (
                {"kind": "speed", "validity": "invalid"},
                LegRules(allow_unmeasured_state=True),
                "INCONCLUSIVE",
                "invalid measurement",
            ),
            ({"kind": "speed", "validity": "unmeasured"}, LegRules(), "INCONCLUSIVE", "own state is unmeasured"),
            ({"kind": "speed", "validity": "not-applicable"}, LegRules(), "INCONCLUSIVE", "own state is not-applicable"),
        ],
    )
    def test_what_keeps_a_record_from_being_good_is_named(self, changes, rules, status, said):
        [(found, why)] = shortcomings(record(**changes), rules)
        assert found == status
        assert said in why

    def test_a_speed_run_without_counters_is_good_only_where_the_rules_allow_it(self):
        assert shortcomings(record(kind="speed", validity="unmeasured"), LegRules(allow_unmeasured_state=True)) == []

    def test_without_rules_every_path_invalidates(self):
        assert EVERYTHING.invalidates("README.md")
        assert not Policy(("src/",)).invalidates("README.md")
