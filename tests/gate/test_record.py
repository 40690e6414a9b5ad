"""What a record carries, and what evidence it refuses."""

import json
import os

import pytest

from edge0verify.gate.gather import Request, record
from edge0verify.gate.record import from_json, weigh
from edge0verify.records.errors import InputError
from tests.gate import samples
from tests.gate.samples import Repository, verdict, write


def request(tmp_path, *verdicts, **changes):
    values = {
        "leg": "compare-d",
        "kind": "correctness",
        "verdicts": verdicts,
        "metrics": {},
        "counts": {},
        "configuration": {},
        "binaries": (),
        "repository": tmp_path,
        "store": tmp_path / "gate-records",
    }
    return Request(**{**values, **changes})


class TestWeigh:
    def test_the_worst_of_the_documents_counts(self):
        found = weigh(
            [verdict(), verdict(status="FAIL", reasons=["one code off"]), verdict(status="INCONCLUSIVE")], where=["a", "b", "c"]
        )
        assert found[0] == "FAIL"
        assert found[1][0] == "b: FAIL: one code off"

    def test_engagement_is_kept_per_document(self):
        [kept] = weigh([verdict()], where=["a"])[2]
        assert (kept["stage"], kept["engaged"]) == ("D", {"a": True, "b": True})

    @pytest.mark.parametrize(
        ("document", "said"),
        [
            (verdict(engaged={"a": True, "b": False}), "says PASS although b was not engaged"),
            (verdict(layers=[]), "says PASS with nothing compared"),
            (verdict(layers=[{"layer": 3, "tensor": "u", "status": "FAIL"}]), "although layer 3 u says FAIL"),
            (verdict(status="GOOD"), "status: expected PASS, FAIL or INCONCLUSIVE"),
            (verdict(schema="other/1"), "schema: expected a verdict"),
            ([], "schema: expected a verdict"),
        ],
    )
    def test_evidence_that_cannot_be_true_is_refused(self, document, said):
        with pytest.raises(InputError, match=said):
            weigh([document], where=["v.json"])

    def test_no_evidence_is_nothing_to_record(self):
        with pytest.raises(InputError, match="nothing to record"):
            weigh([], where=[])


class TestFields:
    def test_the_json_form_comes_back_the_same(self):
        kept = samples.record(verdicts=(verdict(),), binaries={"a": "0" * 64})
        assert from_json(json.loads(kept.canonical()), where="x").canonical() == kept.canonical()

    @pytest.mark.parametrize(
        "changes",
        [
            {"leg": "../up"},
            {"leg": ""},
            {"kind": "fast"},
            {"status": "ok"},
            {"validity": "maybe"},
            {"commit": "HEAD"},
            {"recorded_at": float("nan")},
            {"recorded_at": 0},
            {"metrics": {"x": float("inf")}},
            {"metrics": {"x": True}},
        ],
    )
    def test_a_value_that_means_nothing_is_refused(self, changes):
        with pytest.raises(InputError, match="expected"):
            samples.record(**changes)

    @pytest.mark.parametrize("change", [{"extra": 1}, {"schema": "edge0verify.gate/2"}, {"leg": None}])
    def test_another_form_is_refused(self, change):
        data = {**json.loads(samples.record().canonical()), **change}
        if change.get("leg", "") is None:
            del data["leg"]
        with pytest.raises(InputError, match="x: "):
            from_json(data, where="x")


class TestGather:
    def test_commit_hashes_machine_and_evidence_are_there(self, tmp_path):
        commit = Repository(tmp_path).commit(readme="1", engine="binary")
        path = write(tmp_path / "v.json", verdict(environment={"kernels_sha256": "k" * 64, "isa": "avx2"}, statistics={"p": 1.0}))
        found = record(
            request(tmp_path, path, binaries=(tmp_path / "engine",), counts={"questions": (40, 40)}, metrics={"tok_s": 2.5})
        )
        assert (found.status, found.commit, found.dirty) == ("PASS", commit, ())
        assert list(found.binaries) == [str(tmp_path / "engine")]
        assert found.kernels == {"kernels_sha256": "k" * 64}
        assert found.isa["used"] == ["avx2"]
        assert found.machine["cpus"] >= 1
        assert found.statistics["questions"]["failures_allowed_at_95"] == pytest.approx(0.0722, abs=1e-4)
        assert found.statistics[str(path)] == {"p": 1.0}
        assert found.state["after"]["unreadable"] is not None

    def test_a_dirty_tree_is_named_path_by_path_and_the_store_is_no_dirt(self, tmp_path):
        Repository(tmp_path).commit(readme="1")
        (tmp_path / "readme").write_text("2")
        (tmp_path / "gate-records").mkdir()
        (tmp_path / "gate-records/x").write_text("")
        found = record(request(tmp_path, write(tmp_path / "v.json", verdict())))
        assert found.dirty == ("readme",)

    def test_outside_of_git_there_is_no_commit_and_it_says_why(self, tmp_path):
        found = record(request(tmp_path, write(tmp_path / "v.json", verdict())))
        assert found.commit is None
        assert "no commit: git" in found.remarks[0]

    def test_the_command_is_run_and_its_verdict_kept(self, tmp_path):
        source = write(tmp_path / "source.json", verdict())
        target, said = tmp_path / "v.json", []
        found = record(
            request(tmp_path, target, command=("/bin/sh", "-c", f"echo hello; cp {source} {target}"), kind="speed"),
            show=said.append,
        )
        assert (found.status, b"".join(said)) == ("PASS", b"hello\n")
        assert found.validity in ("valid", "unmeasured")
        assert found.state["before"] is not None

    def test_a_verdict_older_than_the_run_is_refused(self, tmp_path):
        path = write(tmp_path / "v.json", verdict())
        os.utime(path, (1, 1))
        with pytest.raises(InputError, match="older than the run"):
            record(request(tmp_path, path, command=("/bin/true",)))

    @pytest.mark.parametrize(("code", "status"), [(0, "PASS"), (1, "FAIL"), (3, "INCONCLUSIVE"), (70, "FAIL"), (139, "FAIL")])
    def test_a_pass_does_not_outlive_the_exit_code_of_its_command(self, tmp_path, code, status):
        target = tmp_path / "v.json"
        source = write(tmp_path / "source.json", verdict())
        assert record(request(tmp_path, target, command=("/bin/sh", "-c", f"cp {source} {target}; exit {code}"))).status == status

    def test_a_command_that_does_not_start_is_an_input_error(self, tmp_path):
        with pytest.raises(InputError, match="expected a command that starts"):
            record(request(tmp_path, tmp_path / "v.json", command=("/no/such/program",)))

    def test_a_binary_replaced_during_the_run_is_refused(self, tmp_path):
        (tmp_path / "engine").write_text("old")
        source, target = write(tmp_path / "source.json", verdict()), tmp_path / "v.json"
        command = ("/bin/sh", "-c", f"cp {source} {target}; echo new > {tmp_path}/engine")
        with pytest.raises(InputError, match="same file before and after"):
            record(request(tmp_path, target, command=command, binaries=(tmp_path / "engine",)))

    def test_verdicts_of_two_kernel_builds_make_no_record(self, tmp_path):
        paths = [write(tmp_path / f"{n}.json", verdict(environment={"kernels_sha256": n * 64})) for n in "ab"]
        with pytest.raises(InputError, match=r"environment\.kernels_sha256: expected a"):
            record(request(tmp_path, *paths))

    def test_an_info_leg_stays_info(self, tmp_path):
        assert record(request(tmp_path, write(tmp_path / "v.json", verdict()), kind="info")).status == "INFO"

    @pytest.mark.parametrize("text", ["", "{", "null"])
    def test_what_is_no_verdict_is_refused_by_name(self, tmp_path, text):
        (tmp_path / "v.json").write_text(text)
        with pytest.raises(InputError, match=r"v\.json: "):
            record(request(tmp_path, tmp_path / "v.json"))
