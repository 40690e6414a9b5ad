"""One message has several causes: the kernel's log, the stacks and the split tell them apart, over 50 seeds each."""

import json

import pytest

from edge0verify.cli.main import run
from edge0verify.engine.split import parse_split
from edge0verify.probe.triage import triage, triage_text
from edge0verify.records.errors import InputError
from tests.probe.scenes import FAULTS, SPLIT, begin, write

SEEDS = range(50)


def split():
    return parse_split(SPLIT, None)


def log(tmp_path, text, name="engine.log", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def names(result):
    return [cause.name for cause in result.causes]


@pytest.mark.parametrize("fault", FAULTS)
def test_every_cause_comes_first_on_its_own_logs(fault, tmp_path):
    plant, expected = FAULTS[fault]
    for seed in SEEDS:
        scene = begin(seed)
        plant(scene)
        engine, kernel, stacks = write(scene, tmp_path)
        result = triage(engine, kernel=kernel, stacks=stacks, split=split())
        assert result.status == "FAIL", f"seed {seed}"
        assert names(result)[0] == expected, f"seed {seed}:\n{triage_text(result)}"
        for cause in result.causes:
            assert cause.supporting
            assert all(e.where for e in cause.supporting)


def test_healthy_logs_give_no_cause_whatever_stands_in_the_kernel_log(tmp_path):
    for seed in SEEDS:
        scene = begin(seed)
        scene.book.say("all tokens generated, exit code 0", level="I")
        engine, kernel, _ = write(scene, tmp_path)
        result = triage(engine, kernel=kernel, split=split())
        assert (result.status, result.causes, result.symptoms) == ("PASS", (), ()), f"seed {seed}:\n{triage_text(result)}"


def test_no_evidence_quotes_a_line_of_another_card_or_process(tmp_path):
    for seed in SEEDS:
        scene = begin(seed)
        FAULTS["peer read"][0](scene)
        engine, kernel, _ = write(scene, tmp_path)
        lines = kernel.read_text().splitlines()
        for cause in triage(engine, kernel=kernel, split=split()).causes:
            for e in (*cause.supporting, *cause.against):
                if e.where and e.where.startswith("kernel:"):
                    line = lines[int(e.where.partition(":")[2]) - 1]
                    assert "browser" not in line
                    assert any(card.pci[5:10] in line for card in scene.book.cards)


class TestOneMessageSeveralCauses:
    ILLEGAL = (
        "2026-03-01 10:00:00.000 E device 1: layer 24: hipErrorIllegalAddress (700): an illegal memory access was encountered\n"
    )
    TIMEOUT = "2026-03-01 10:00:00.000 E device 1: timed out at layer 24\n"

    def test_alone_it_is_never_one_cause(self, tmp_path):
        assert set(names(triage(log(tmp_path, self.ILLEGAL)))) == {"peer read", "stray address", "evicted user pages"}
        late = names(triage(log(tmp_path, self.TIMEOUT)))
        assert late[0] == "lost flag"
        assert set(late) == {"lost flag", "peer read", "evicted user pages", "tracing tool", "out of memory"}

    def test_the_split_puts_the_peer_read_first(self, tmp_path):
        engine = log(tmp_path, self.ILLEGAL)
        assert names(triage(engine, split=split()))[0] == "peer read"
        assert names(triage(engine, split=parse_split("0-9@hip:0,10-47@hip:1", None)))[0] == "stray address"
        assert "peer read" not in names(triage(engine, split=parse_split("0-47@hip:0", None)))

    @pytest.mark.parametrize(
        ("kernel", "first"),
        [
            ("[Sun Mar  1 10:00:00 2026] amdgpu 0000:03:00.0: amdgpu: sq_intr: error, detail 0x1, type 2, sh 0\n", "peer read"),
            ("[Sun Mar  1 10:00:00 2026] amdgpu 0000:03:00.0: amdgpu: Evicting PASID 0x8003 queues\n", "evicted user pages"),
            (
                "[Sun Mar  1 10:00:00 2026] NVRM: Xid (PCI:0000:03:00): 79, pid=7, GPU has fallen off the bus.\n",
                "broken device or link",
            ),
        ],
    )
    def test_the_kernel_log_tells_them_apart(self, tmp_path, kernel, first):
        result = triage(log(tmp_path, self.ILLEGAL), kernel=log(tmp_path, kernel, "kernel.log"))
        assert names(result)[0] == first, triage_text(result)

    def test_a_time_out_after_a_fault_is_the_faults_result(self, tmp_path):
        both = self.ILLEGAL + self.TIMEOUT
        assert names(triage(log(tmp_path, both), split=split()))[0] == "peer read"
        assert names(triage(log(tmp_path, self.TIMEOUT), split=split()))[0] == "lost flag"

    def test_what_a_quiet_kernel_log_rules_out_is_gone(self, tmp_path):
        quiet = log(tmp_path, "[Sun Mar  1 10:00:00 2026] usb 1-2: new high-speed USB device\n", "kernel.log")
        late = names(
            triage(log(tmp_path, self.TIMEOUT), kernel=quiet, stacks=log(tmp_path, "Thread 1 (LWP 5):\n#0 poll ()\n", "s"))
        )
        assert late == ["lost flag", "tracing tool"]

    def test_lines_hours_away_do_not_count(self, tmp_path):
        far = "[Sun Mar  1 03:00:00 2026] amdgpu 0000:03:00.0: amdgpu: Evicting PASID 0x8003 queues\n"
        result = triage(log(tmp_path, self.ILLEGAL), kernel=log(tmp_path, far, "kernel.log"))
        assert "evicted user pages" not in names(result)
        assert any("another process, card or time" in note for note in result.notes)

    def test_a_clock_from_boot_is_said(self, tmp_path):
        boot = "[ 1234.5678] amdgpu 0000:03:00.0: amdgpu: sq_intr: error, detail 0x1\n"
        result = triage(log(tmp_path, self.ILLEGAL), kernel=log(tmp_path, boot, "kernel.log"))
        assert any("counts from boot" in note for note in result.notes)
        assert names(result)[0] == "peer read"

    def test_signal_nine_alone_is_weak_and_says_what_is_missing(self, tmp_path):
        result = triage(log(tmp_path, "2026-03-01 10:00:00 E worker exited with code -9\n"))
        assert names(result) == ["out of memory", "ended from outside"]
        cause = result.causes[0]
        assert cause.score == 1
        assert cause.against[0].where is None

    def test_someone_elses_kill_is_not_ours(self, tmp_path):
        engine = log(tmp_path, "2026-03-01 10:00:00 I pid 500\n2026-03-01 10:00:01 E worker exited with code -9\n")
        kernel = log(tmp_path, "[Sun Mar  1 10:00:00 2026] Out of memory: Killed process 77 (browser) total-vm:1kB\n", "kernel.log")
        assert names(triage(engine, kernel=kernel)) == ["ended from outside"]


class TestHealthyWords:
    @pytest.mark.parametrize(
        "line",
        [
            "0 layers timed out",
            "no illegal memory access seen",
            "timeout=60 set for layer 3",
            "if a kernel timed out at layer 3 we stop",
            "never out of memory",
            "exit code 0",
            "peer access enabled between 0 and 1",
            "graph captured, 40 nodes",
            "rocprof=off",
            "without falling back to the CPU",
            "exit code 9 is documented",
            "layer 9: 137 tokens",
            "checks for an illegal memory access",
            "error 7000 rows skipped",
            "recovered: 0 requests timed out",
        ],
    )
    def test_words_that_sound_like_a_fault_are_none(self, tmp_path, line):
        result = triage(log(tmp_path, f"2026-03-01 10:00:00 I {line}\n"))
        assert (result.status, result.causes) == ("PASS", ()), triage_text(result)

    @pytest.mark.parametrize(
        "line",
        [
            "device 0 timed out at layer 3",
            "did not finish, timed out at layer 3",
            "sim:0 layer 0: timed out",
            "[E] device-memory: out of memory: 4 MiB asked",
            "could not allocate: out of memory",
            "Process exited with status 137",
            "terminate called: std::bad_alloc",
        ],
    )
    def test_and_faults_stay_faults(self, tmp_path, line):
        assert triage(log(tmp_path, f"2026-03-01 10:00:00 E {line}\n")).status == "FAIL"


class TestFiles:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
    def test_every_encoding_gives_the_same_answer(self, tmp_path, encoding):
        scene = begin(4)
        FAULTS["evicted user pages"][0](scene)
        plain = triage(*write(scene, tmp_path / "a")[:1], kernel=tmp_path / "a" / "kernel.log")
        other = triage(*write(scene, tmp_path / "b", encoding=encoding)[:1], kernel=tmp_path / "b" / "kernel.log")
        assert other == plain
        assert names(plain)[0] == "evicted user pages"

    def test_an_empty_log_proves_nothing(self, tmp_path):
        assert triage(log(tmp_path, "")).status == "INCONCLUSIVE"

    def test_what_is_no_text_is_refused(self, tmp_path):
        path = tmp_path / "x"
        path.write_bytes(bytes(range(256)) * 40)
        with pytest.raises(InputError):
            triage(path)
        with pytest.raises(InputError):
            triage(tmp_path / "none")

    def test_a_fault_that_no_line_explains_is_inconclusive(self, tmp_path):
        result = triage(log(tmp_path, "2026-03-01 10:00:00 E worker exited with code -11\n"))
        assert (result.status, result.causes) == ("INCONCLUSIVE", ())

    def test_the_command_and_its_exit_codes(self, tmp_path, capsys):
        engine = log(tmp_path, TestOneMessageSeveralCauses.ILLEGAL)
        assert run(["triage", str(engine), "--split", SPLIT]) == 1
        assert "decides: edge0verify probe audit" in capsys.readouterr().out
        assert run(["triage", str(engine), "--json", "-"]) == 1
        data = json.loads(capsys.readouterr().out)
        assert data["schema"] == "edge0verify.triage/1"
        assert {c["cause"] for c in data["causes"]} >= {"peer read", "stray address"}
        assert run(["triage", str(tmp_path / "none")]) == 2
        assert run(["triage", str(log(tmp_path, "2026-03-01 10:00:00 I fine\n", "fine.log"))]) == 0


class TestSimulatedFaults:
    """Logs that the simulated devices wrote themselves."""

    @pytest.mark.parametrize("mistake", ["pair", "embedding"])
    def test_the_historic_mistakes_are_peer_reads(self, mistake, tmp_path):
        from edge0verify.engine import generate
        from edge0verify.engine.split import SplitFault
        from edge0verify.engine.split_engine import SplitEngine, open_runtime
        from edge0verify.model import encode, load_model, prompt

        model = load_model()
        two = parse_split("0-2@sim:0,3-5@sim:1", model.config.layers)
        for seed in range(3):
            runtime = open_runtime(two, seed=seed)
            runtime.log.started()
            with pytest.raises(SplitFault):
                generate(SplitEngine(model, two, runtime, mistake=mistake, threads=1), encode(prompt("prose"))[:9], max_tokens=3)
            engine, kernel = runtime.log.write(tmp_path)
            runtime.close()
            result = triage(engine, kernel=kernel, split=two)
            assert names(result)[0] == "peer read", triage_text(result)
            assert result.symptoms[0].device == 1
            assert result.symptoms[0].layer == {"pair": 3, "embedding": "mtp"}[mistake]
