"""Triage on wordings of many origins: the right cause first, several where several fit, none on what only sounds like a fault."""

import os
import threading
import time

import pytest

from edge0verify.probe.triage import triage, triage_text
from edge0verify.probe.triage import wording as rules
from edge0verify.probe.triage.events import ENGINE_WORDS, KERNEL_WORDS, has
from edge0verify.probe.triage.logs import MOST
from edge0verify.records.errors import InputError
from tests.probe.wordings import ENGINE, HEALTHY, ILLEGAL, KERNEL, NVRM, PEER_OR_STRAY, UNEXPLAINED


def file(tmp_path, text, name="engine.log"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def names(result):
    return [cause.name for cause in result.causes]


def lines_of_all():
    return [s for s, _ in ENGINE] + [s for row in KERNEL for s in row[:2]] + UNEXPLAINED + HEALTHY


@pytest.mark.parametrize(("line", "first"), ENGINE)
def test_a_line_of_an_engine(line, first, tmp_path):
    result = triage(file(tmp_path, line + "\n"))
    assert names(result) and names(result)[0] in first, triage_text(result)


@pytest.mark.parametrize(("line", "kernel", "first"), KERNEL)
def test_a_line_of_a_kernel(line, kernel, first, tmp_path):
    result = triage(file(tmp_path, line + "\n"), kernel=file(tmp_path, kernel + "\n", "kernel.log"))
    assert set(names(result)[:1]) <= first, triage_text(result)
    assert bool(names(result)) == bool(first)


@pytest.mark.parametrize("line", UNEXPLAINED)
def test_an_error_that_no_rule_knows_is_neither_healthy_nor_explained(line, tmp_path):
    result = triage(file(tmp_path, line + "\n"))
    assert (result.status, names(result)) == ("INCONCLUSIVE", []), triage_text(result)


def test_what_sounds_like_a_fault_is_none(tmp_path):
    for line in HEALTHY:
        result = triage(file(tmp_path, line + "\n"))
        assert (result.status, result.symptoms) == ("PASS", ()), triage_text(result)
    assert triage(file(tmp_path, "\n".join(HEALTHY))).status == "PASS"


def test_every_rule_is_tried_on_every_line_it_fits_and_every_rule_fits_one():
    unused = {rule for table in (rules.ENGINE, rules.KERNEL) for rule in table}
    for line in lines_of_all():
        for table, words in ((rules.ENGINE, ENGINE_WORDS), (rules.KERNEL, KERNEL_WORDS)):
            for rule in table:
                if rule.pattern.search(line):
                    unused.discard(rule)
                    assert has(line.lower(), rule.words), (rule, line)
                    assert has(line.lower(), words)
        if rules.FAILURE.search(line):
            assert has(line.lower(), rules.FAILURE_WORDS), line
        if rules.KERNEL_LINE.search(line):
            assert has(line.lower(), rules.KERNEL_LINE_WORDS), line
    assert not unused, [(rule.kind, rule.pattern.pattern) for rule in unused]


class TestJoining:
    def test_a_journal_of_both_is_read_as_both(self, tmp_path):
        text = (
            "Mar 01 10:00:00 host server[4242]: pid 4242\n"
            "Mar 01 10:00:01 host kernel: Memory cgroup out of memory: Killed process 4242 (server) total-vm:1kB\n"
        )
        result = triage(file(tmp_path, text))
        assert names(result) == ["out of memory"]
        assert "the process was killed for memory" in triage_text(result)
        other = triage(file(tmp_path, text.replace("process 4242", "process 77")))
        assert (other.status, names(other)) == ("PASS", [])

    def test_a_kill_of_a_process_that_nobody_named_is_said_to_be_that(self, tmp_path):
        kernel = file(tmp_path, "[Sun Mar  1 10:00:00 2026] Out of memory: Killed process 77 (chrome) total-vm:1kB\n", "kernel.log")
        result = triage(file(tmp_path, "Killed\n"), kernel=kernel)
        assert names(result)[0] == "out of memory"
        assert "which is the engine's is not said" in triage_text(result)

    def test_a_lost_card_of_an_open_run_is_trouble_and_another_card_is_not(self, tmp_path):
        kernel = file(tmp_path, NVRM + "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n", "kernel.log")
        ready = "2026-03-01 10:00:00 I device 0: 0000:41:00.0 ready\n"
        assert names(triage(file(tmp_path, ready), kernel=kernel)) == ["broken device or link"]
        assert triage(file(tmp_path, ready + "generated 40 tokens\n"), kernel=kernel).status == "PASS"
        assert triage(file(tmp_path, ready.replace("41", "42")), kernel=kernel).status == "PASS"
        noted = triage(file(tmp_path, "2026-03-01 10:00:00 I step 1\n"), kernel=kernel)
        assert noted.status == "PASS"
        assert any("device error" in note for note in noted.notes)

    def test_one_card_reads_no_peer(self, tmp_path):
        for count, there in (("1", False), ("2", True)):
            result = triage(file(tmp_path, f"init: found {count} CUDA devices:\n{ILLEGAL.replace('device 1', 'device 0')}\n"))
            assert ("peer read" in names(result)) is there

    def test_a_clock_without_a_year_is_joined_by_day_and_time(self, tmp_path):
        for engine, kernel, near in (
            ("Mar  1 10:00:00 host e: timed out", "Mar  1 10:00:20 host kernel: ", True),
            ("E0301 10:00:00.123456 4242 e.cc:9] timed out", "[Sun Mar  1 10:00:20 2026] ", True),
            ("ERROR 03-01 10:00:00 [e.py:9] timed out", "2026-03-01T10:00:20,000000+00:00 ", True),
            ("Mar  1 10:00:00 host e: timed out", "Mar  1 13:00:20 host kernel: ", False),
        ):
            log = file(tmp_path, kernel + "amdgpu 0000:03:00.0: amdgpu: Evicting PASID 0x8003 queues\n", "kernel.log")
            result = triage(file(tmp_path, engine + "\n"), kernel=log)
            assert (names(result)[0] == "evicted user pages") is near, triage_text(result)

    def test_a_version_is_no_device(self, tmp_path):
        result = triage(file(tmp_path, "CUDA 12.4, GPU 0000:41:00.0: an illegal memory access was encountered\n"))
        assert result.symptoms[0].device is None
        assert set(names(result)[:2]) == PEER_OR_STRAY


class TestFiles:
    def test_dates_that_are_none_are_no_error(self, tmp_path):
        for stamp in (
            "2026-13-41 25:61:61",
            "2026-02-30T10:00:00Z",
            "[Mon Feb 31 10:00:00 2026]",
            "Xyz 45 10:00:00 h",
            "E9999 99:99:99 ",
        ):
            assert triage(file(tmp_path, f"{stamp} {ILLEGAL[20:]}\n")).status == "FAIL"

    def test_colours_and_progress_bars(self, tmp_path):
        text = "load 10 %\rload 90 %\rready\r\n\x1b[31mERROR\x1b[0m timed out at \x1b[1mlayer\x1b[0m \x1b[36m24\x1b[0m\r\n"
        result = triage(file(tmp_path, text))
        assert (result.symptoms[0].layer, result.symptoms[0].where) == (24, "engine:2")
        assert "\x1b" not in triage_text(result)

    def test_zeros_that_a_crash_left_are_no_binary_file(self, tmp_path):
        for text in (
            b"ok\n" + bytes(5000) + b"\n" + ILLEGAL.encode(),
            bytes(5000) + b"\n" + ILLEGAL.encode(),
            b"ok\n" * 99 + bytes(50),
        ):
            assert triage(file(tmp_path, text)).status == ("FAIL" if b"illegal" in text else "PASS")
        for text in (bytes(5000), bytes(range(256)) * 99):
            with pytest.raises(InputError):
                triage(file(tmp_path, text))

    def test_blank_lines_say_nothing(self, tmp_path):
        for text in ("\n\n\n", "\ufeff", " \n\t\n"):
            assert triage(file(tmp_path, text)).status == "INCONCLUSIVE"

    def test_part_of_a_file_may_be_utf_16(self, tmp_path):
        assert triage(file(tmp_path, b"plain head line\n" + f"{ILLEGAL}\n".encode("utf-16-le"))).status == "FAIL"

    def test_a_log_may_come_through_a_pipe(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        text = "ok\n" * 500_000 + ILLEGAL  # more than is read at once
        writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=[text])
        writer.start()
        result = triage(tmp_path / "pipe")
        writer.join()
        assert result.symptoms[0].where == "engine:500001"

    def test_a_long_healthy_log_costs_little(self, tmp_path):
        line = "2026-03-01 10:00:00.123 I slot update: id  0 | task 12 | prompt processing progress, n_past = 2048\n"
        path = file(tmp_path, line * 100_000 + ILLEGAL + "\n")
        began = time.process_time()
        result = triage(path)
        assert time.process_time() - began < 5  # about 0.5 s; 15 s where every rule is tried on every line
        assert result.symptoms[0].where == "engine:100001"

    def test_one_line_of_many_megabytes(self, tmp_path):
        began = time.process_time()
        assert triage(file(tmp_path, "layer 1 " * 200_000 + ILLEGAL)).status == "FAIL"
        assert time.process_time() - began < 10

    def test_of_a_line_repeated_without_end_the_first_thousand_are_weighed(self, tmp_path):
        result = triage(file(tmp_path, (ILLEGAL + "\n") * (MOST + 500)))
        assert len(result.symptoms) == MOST
        assert any(str(MOST + 500) in note for note in result.notes)
