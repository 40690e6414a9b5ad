"""Runs in fresh processes: an unstable one is told from a stable one, and a reference that is unstable takes the blame first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from edge0verify.cli.main import run as command
from edge0verify.dump.reader import open_dump
from edge0verify.dump.writer import DumpWriter
from edge0verify.model import encode, load_model, prompt
from edge0verify.numerics.blocks import Blocks
from edge0verify.records.errors import InputError
from edge0verify.report.drift_text import drift_text
from edge0verify.study.drift_runs import THREADS, RunsRequest, over_runs
from edge0verify.study.dumping import RunRequest
from edge0verify.study.dumping import run as write_dump
from edge0verify.variants import _mutants
from edge0verify.variants.kernels import Kernels

PAIRS = ("a-gate", "a-up", "a-h", "a-y")


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def dumps(model, tmp_path_factory):
    """What an outside engine may leave: good, shuffled with and without keys, wrong, off by an ulp, lying about log-probs."""
    folder = tmp_path_factory.mktemp("dumps")
    tokens = encode(prompt("list"))[:12]
    request = dict(model=model, tokens=tokens, level="full", threads=1, drafter=False, variants={"D": "w11"})
    write_dump(RunRequest(out=folder / "good.h5", **request))
    shutil.copy(folder / "good.h5", folder / "again.h5")
    _mutants.set_fault("drop-block")
    write_dump(RunRequest(out=folder / "wrong.h5", **request), kernels=Kernels(_mutants, threads=1))
    _mutants.set_fault(None)
    order = np.random.default_rng(5).permutation(48)
    rewrite(folder / "good.h5", folder / "keyed.h5", order, keys=True)
    rewrite(folder / "good.h5", folder / "plain.h5", np.arange(48), keys=False)
    rewrite(folder / "good.h5", folder / "shuffled.h5", order, keys=False)
    rewrite(folder / "good.h5", folder / "lying.h5", np.arange(48), keys=True, logprobs=1e-3)
    rewrite(folder / "good.h5", folder / "rounding.h5", np.arange(48), keys=True, ulps=1)
    return folder


def rewrite(source, target, order, *, keys, logprobs=0.0, ulps=0):
    """The dump again, with the expert rows of every layer in another order; with or without the keys that tell."""
    with open_dump(source) as dump, DumpWriter(target, manifest=dump.manifest) as writer:
        if keys:
            writer.rows(dump.rows())
        for layer in dump.layers():
            if keys:
                writer.pairs(layer, dump.pairs(layer)[order])
            for tensor in dump.tensors(layer):
                value = dump.read(layer, tensor)
                if tensor in PAIRS:
                    value = value.take(order) if isinstance(value, Blocks) else value[order]
                if tensor == "d-xl" and layer == 0:
                    value[3, 5] += ulps * np.spacing(value[3, 5])
                writer.write(layer, tensor, value)
        writer.head(dump.read("head", "top8-ids"), dump.read("head", "top8-logprobs") + np.float32(logprobs))
        writer.write("head", "logits", dump.read("head", "logits"))


def engine(folder, cases):
    """A command that leaves the dump which `cases`, shell patterns on run or variant, choose; or runs a line of shell."""
    lines = [f"{pattern}) {f'cp {folder}/{what}.h5 $3' if (folder / f'{what}.h5').exists() else what};;" for pattern, what in cases]
    script = folder / f"engine{abs(hash(str(cases))) % 10**9}.sh"
    script.write_text("case $1-$2 in\n" + "\n".join(lines) + "\nesac\n")
    return f"sh {script} {{run}} {{variant}} {{out}}"


def drift(model, folder, cases, **more):
    options = dict(model=model, over="runs", stage="D", variant="w11", runs=3) | more
    return over_runs(RunsRequest(engine=engine(folder, cases), **options))


class TestOutsideEngines:
    def test_equal_runs_are_stable(self, model, dumps):
        found = drift(model, dumps, [("2-*", "again"), ("*", "good")])
        assert (found.status, found.reasons, found.findings["kind"]) == ("PASS", (), "bitwise")
        assert found.findings["first_unstable"] is None and found.findings["reference"] is None
        assert [r["against_first"] is None for r in found.findings["runs"]] == [True, False, False]

    def test_rows_in_another_order_without_keys_are_permuted(self, model, dumps):
        found = drift(model, dumps, [("*-mmvq", "plain"), ("3-*", "shuffled"), ("*", "plain")])
        first = found.findings["first_unstable"]
        assert (found.status, found.findings["kind"]) == ("FAIL", "permuted")
        assert (first["run"], first["layer"], first["tensor"], first["kind"]) == (3, 0, "a-gate", "permuted")
        assert first["permutation"]["rows"] == 48 and first["corr"] < 0.95
        assert "unexplained" not in " ".join(found.reasons) and "rows moved in" in found.reasons[0]
        assert [r["against_first"]["same_logprobs"] for r in found.findings["runs"][1:]] == [True, True]
        assert "permuted" in drift_text(found)

    def test_keys_put_the_rows_in_order(self, model, dumps):
        found = drift(model, dumps, [("3-*", "keyed"), ("*", "good")])
        assert (found.status, found.findings["kind"]) == ("PASS", "bitwise")
        assert found.findings["runs"][2]["against_first"]["reordered"] == 6 * len(PAIRS)

    def test_a_difference_within_both_bounds_passes_and_is_said(self, model, dumps):
        found = drift(model, dumps, [("2-*", "rounding"), ("*", "good")])
        assert (found.status, found.findings["kind"]) == ("PASS", "rounding")
        assert found.reasons[0].startswith("rounding: layer 0 d-xl rounding:")

    def test_one_run_that_computes_otherwise_is_at_fault(self, model, dumps):
        found = drift(model, dumps, [("*-mmvq", "good"), ("2-*", "wrong"), ("*", "good")])
        assert (found.status, found.exit_code) == ("FAIL", 1)
        # The fault is in attention too, whose result nothing bounds: then each run is judged on its own inputs.
        assert "this run: layer 0 stage D d-xl" in found.reasons[0]
        assert "run 2 differs from run 1: layer 0 ffn-in unexplained" in found.reasons[1]
        assert found.findings["reference"]["kind"] == "bitwise"

    def test_an_unstable_reference_is_named_before_the_variant(self, model, dumps):
        found = drift(model, dumps, [("3-mmvq", "wrong"), ("2-w11", "wrong"), ("*", "good")])
        assert (found.status, found.exit_code) == ("INCONCLUSIVE", 3)
        assert found.reasons[0].startswith("the reference mmvq is itself unstable: layer 0 ffn-in unexplained")
        assert found.findings["reference"]["kind"] == "unexplained"

    def test_equal_tokens_with_wrong_log_probs_are_caught(self, model, dumps):
        found = drift(model, dumps, [("*-mmvq", "good"), ("2-*", "lying"), ("*", "good")])
        assert found.status == "FAIL" and "run 2: wrong log-probs beside right tokens" in found.reasons[0]
        assert found.findings["first_unstable"]["tensor"] == "top8-logprobs"
        beside = found.findings["runs"][1]["against_first"]
        assert beside["same_ids"] and not beside["same_logprobs"]
        # All runs agree with each other, and all are wrong.
        alike = drift(model, dumps, [("*", "lying")])
        assert (alike.status, alike.findings["kind"]) == ("FAIL", "bitwise")


class TestTrouble:
    def test_a_crash_and_a_hang_are_reported(self, model, dumps):
        found = drift(model, dumps, [("2-*", "kill -SEGV $$"), ("*", "good")])
        assert found.status == "FAIL" and found.findings["runs"][1]["trouble"].startswith("was ended by signal 11")
        assert len(found.reasons) == 1 and found.reasons[0].startswith("run 2 was ended by signal 11")
        slow = drift(model, dumps, [("2-*", "sleep 60"), ("*", "good")], timeout_s=0.4)
        assert "time limit" in slow.findings["runs"][1]["trouble"]

    def test_nothing_is_proven_where_no_run_ends(self, model, dumps):
        found = drift(model, dumps, [("*", "exit 4")])
        assert found.status == "INCONCLUSIVE" and "no run left a dump" in found.reasons
        assert drift(model, dumps, [("*", "true")]).findings["runs"][0]["trouble"] == "ended without leaving a dump"

    def test_a_command_that_cannot_be_run_is_an_input_error(self, model):
        for line, said in (("engine {variant}", "{out}"), ("no-such-engine {out}", "does not find")):
            with pytest.raises(InputError, match=said):
                over_runs(RunsRequest(model=model, over="runs", stage="D", variant="w11", engine=line))

    def test_a_damaged_dump_is_an_input_error(self, model, dumps, tmp_path):
        shutil.copy(dumps / "good.h5", tmp_path / "flipped.h5")
        with h5py.File(tmp_path / "flipped.h5", "r+") as file:
            file["layers/002/d-xl"][0, 0] += 1
        shutil.copy(tmp_path / "flipped.h5", dumps / "flipped.h5")
        with pytest.raises(InputError, match="damaged"):
            drift(model, dumps, [("*", "flipped")])


class TestOwnEngine:
    def test_two_processes_give_the_same_bits(self, capsys):
        words = ["drift", "--over", "runs", "--stage", "A", "--variant", "mmq", "--runs", "2", "--prompt", "list", "--json", "-"]
        code = command(words)
        found = json.loads(capsys.readouterr().out)
        assert (code, found["schema"], found["status"], found["findings"]["kind"]) == (0, "edge0verify.drift/1", "PASS", "bitwise")
        assert [r["engaged"] for r in found["findings"]["runs"]] == [True, True]

    def test_thread_counts_are_varied(self, model, dumps):
        found = drift(model, dumps, [("*", "good")], over="threads")
        assert [r["threads"] for r in found.findings["runs"]] == list(THREADS)

    def test_an_input_error_of_the_run_is_one_here(self, model):
        with pytest.raises(InputError, match="prompt 'nonsense'"):
            over_runs(RunsRequest(model=model, over="runs", stage="D", variant="mmq", runs=2, arguments=("--prompt", "nonsense")))

    def test_an_internal_error_of_the_run_is_never_a_verdict(self, monkeypatch, capsys, tmp_path):
        stub = tmp_path / "python"
        stub.write_text("#!/bin/sh\necho 'edge0verify: internal error: planted' >&2\nexit 70\n")
        stub.chmod(0o755)
        monkeypatch.setattr("edge0verify.study.drift_runs.PYTHON", str(stub))
        assert command(["drift", "--over", "runs", "--stage", "D", "--variant", "mmq", "--runs", "2", "--prompt", "list"]) == 70
        assert "internal error: planted" in capsys.readouterr().err

    def test_a_kernel_that_crashes_is_a_fault(self, model, monkeypatch, tmp_path):
        stub = tmp_path / "python"
        stub.write_text("#!/bin/sh\nkill -SEGV $$\n")
        stub.chmod(0o755)
        monkeypatch.setattr("edge0verify.study.drift_runs.PYTHON", str(stub))
        found = over_runs(RunsRequest(model=model, over="runs", stage="D", variant="mmq", runs=2, arguments=("--prompt", "list")))
        assert found.findings["runs"][0]["trouble"] == "was ended by signal 11"
        assert not [p for p in Path("/tmp").glob("edge0verify-*") if (p / "0" / "dump.h5").exists()]
