"""`edge0verify gate` and `edge0verify bench ab`: exit codes, and what is printed."""

import json
import os

import pytest
from click.testing import CliRunner

from edge0verify.cli.bench import command as bench
from edge0verify.cli.gate import command as gate
from edge0verify.gate.store import Store
from edge0verify.records.errors import InputError
from tests.gate.samples import ATLAS, Repository, record, verdict, write
from tests.gate.test_ab import NEW, arm


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command inside tmp_path; returns (exit code, output). InputError is 2, as the main command makes it."""
    monkeypatch.chdir(tmp_path)

    def go(command, *arguments):
        result = CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)
        if isinstance(result.exception, InputError):
            return 2, str(result.exception)
        if result.exception is not None:
            raise result.exception
        return result.return_value or 0, result.output

    return go


class TestGate:
    def test_record_then_check_then_change(self, run, tmp_path):
        tree = Repository(tmp_path)
        tree.commit(src__a="1")
        (tmp_path / "gate.toml").write_text('schema = "edge0verify.gate-policy/1"\ninvalidating = ["src/"]\n[legs.d]\n')
        tree.commit()
        write(tmp_path / "v.json", verdict())
        assert run(gate, "check")[0] == 3
        code, said = run(gate, "record", "d", "--verdict", "v.json")
        assert (code, Store(tmp_path / "gate-records").records()[0].record.leg) == (0, "d"), said
        os.unlink(tmp_path / "v.json")
        assert run(gate, "check")[0] == 0
        tree.commit(readme="text")
        assert run(gate, "check")[0] == 0
        (tmp_path / "src/a").write_text("2")
        code, said = run(gate, "check")
        assert (code, "the working tree is not the commit: src/a" in said) == (3, True)
        tree.commit()
        code, said = run(gate, "check")
        assert (code, "src/a changed since" in said) == (3, True)
        assert run(gate, "check", "--head", "HEAD~1")[0] == 0

    def test_a_fail_is_recorded_and_decides(self, run, tmp_path):
        Repository(tmp_path).commit(src="1")
        write(tmp_path / "v.json", verdict(status="FAIL", reasons=["one code off"]))
        assert run(gate, "record", "d", "--verdict", "v.json")[0] == 1
        code, said = run(gate, "check", "--head", "HEAD", "--json")
        assert code == 1
        assert json.loads(said)["legs"][0]["reasons"] == ["the record says FAIL: v.json: FAIL: one code off"]

    def test_an_empty_store_proves_nothing(self, run, tmp_path):
        Repository(tmp_path).commit(src="1")
        code, said = run(gate, "check", "--head", "HEAD")
        assert (code, "no leg to check" in said) == (3, True)

    def test_outside_of_git_the_same_hash_still_counts(self, run, tmp_path):
        Store(tmp_path / "gate-records").append(record())
        assert run(gate, "check", "--head", record().commit)[0] == 0
        assert run(gate, "check", "--head", "f" * 40)[0] == 3
        assert run(gate, "check")[0] == 2

    def test_import_shows_each_record_as_what_it_is(self, run, tmp_path):
        code, said = run(gate, "import", *sorted(ATLAS.glob("*.json")))
        assert code == 0
        assert "6 read, 6 new" in said
        assert "1 of 12 replays byte-identical" in said
        assert "stands on an invalid" in said
        assert run(gate, "import", *sorted(ATLAS.glob("*.json")))[1].endswith("6 read, 0 new in gate-records\n")
        code, said = run(gate, "check", "--head", "0ad9897308", "--json")
        answers = {leg["leg"]: leg["status"] for leg in json.loads(said)["legs"]}
        assert code == 3
        assert answers["concurrency-sweep"] == answers["vision-fidelity"] == "INCONCLUSIVE"
        assert answers["decode-floor"] == answers["ssm-state-poisoning-gate"] == "PASS"

    def test_one_wrong_file_imports_nothing(self, run, tmp_path):
        wrong = tmp_path / "x__2026-10-09-0ad9897308.json"
        wrong.write_text("{}")
        assert run(gate, "import", *ATLAS.glob("*.json"), wrong)[0] == 2
        assert Store(tmp_path / "gate-records").records() == ()

    def test_list_gives_the_records_whole_as_json_lines(self, run, tmp_path):
        Store(tmp_path / "gate-records").append(record())
        assert json.loads(run(gate, "list", "--json")[1])["leg"] == "decode"
        assert "decode" in run(gate, "list")[1]
        assert run(gate, "list", "other")[1] == "no records in gate-records\n"

    @pytest.mark.parametrize(
        "option", [("--metric", "x"), ("--metric", "x=fast"), ("--count", "x=41/40"), ("--count", "x=9"), ("--config", "=1")]
    )
    def test_a_malformed_option_is_an_input_error(self, run, tmp_path, option):
        write(tmp_path / "v.json", verdict())
        assert run(gate, "record", "d", "--verdict", "v.json", *option)[0] == 2
        assert not (tmp_path / "gate-records").exists()

    def test_a_damaged_record_is_an_input_error_and_no_pass(self, run, tmp_path):
        path, _ = Store(tmp_path / "gate-records").append(record())
        path.write_bytes(path.read_bytes()[:-20])
        code, said = run(gate, "check", "--head", record().commit)
        assert (code, path.name in said) == (2, True)


class TestBench:
    def test_an_ab_is_printed_and_written_and_can_be_recorded(self, run, tmp_path):
        old, new = arm(tmp_path, "old"), arm(tmp_path, "new", **NEW)
        code, said = run(bench, "ab", old, new, "--rounds", 2, "--warm-up", 0, "--json", "ab.json")
        assert code == 0
        assert "B is better" in said
        assert json.loads((tmp_path / "ab.json").read_text())["status"] == "PASS"
        assert run(gate, "record", "speed-ab", "--verdict", "ab.json")[0] == 0
        assert Store(tmp_path / "gate-records").records()[0].record.statistics["ab.json"]["ratios_b_over_a"]

    def test_nothing_proven_exits_with_3(self, run, tmp_path):
        code, said = run(bench, "ab", arm(tmp_path, "old", version="x"), arm(tmp_path, "new", version="x", **NEW), "--rounds", 2)
        assert (code, "same binary" in said) == (3, True)

    def test_a_fault_exits_with_1(self, run, tmp_path):
        assert run(bench, "ab", arm(tmp_path, "old", extra="exit 4"), arm(tmp_path, "new", **NEW), "--rounds", 2)[0] == 1

    def test_the_example_prints_the_keys_of_an_arm(self, run):
        assert 'differs_by = "build"' in run(bench, "ab", "--example")[1]

    def test_a_missing_file_is_an_input_error(self, run, tmp_path):
        assert run(bench, "ab", "none.toml", "none.toml")[0] == 2


class TestHelp:
    @pytest.mark.parametrize("command", [gate, *gate.commands.values(), bench, bench.get_command(None, "ab")], ids=lambda c: c.name)
    def test_every_command_shows_an_example(self, command):
        assert "Example:\n    edge0verify " in CliRunner().invoke(command, ["--help"]).output

    def test_the_example_of_import_runs(self, run, monkeypatch):
        text = CliRunner().invoke(gate.commands["import"], ["--help"]).output
        line = next(line.split() for line in text.splitlines() if line.strip().startswith("edge0verify gate import"))
        monkeypatch.chdir(ATLAS.parents[2])
        assert run(gate, *line[2:])[0] == 0
