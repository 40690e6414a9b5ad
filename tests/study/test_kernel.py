"""Built-in kernels alone: each passes its sweep, mutants fail with place and cause, a seed repeats a run."""

import json
from pathlib import Path

import numpy as np
import pytest

from edge0verify.cli.main import run
from edge0verify.records.verdict import Verdict
from edge0verify.study import kernel_cases
from edge0verify.study.kernel import Request, verify
from edge0verify.study.kernel_guard import GuardedKernels
from edge0verify.study.kernel_library import WRITES
from edge0verify.variants import _mutants

ROOT = Path(__file__).parents[2]
VARIANTS = ("ref", "mmvq", "mmq", "w11")


@pytest.mark.parametrize("stage", ["D", "U", "A"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_built_in_kernel_passes_its_sweep(stage, variant):
    report = verify(Request(stage=stage, variant=variant, seed=11))
    assert report.verdict.status == "PASS", report.verdict.reasons
    assert report.verdict.engaged == {"a": True, "b": True}
    assert len(report.cases) == {"A": 32, "D": 17, "U": 16}[stage]
    tested = [case for case in report.cases if case.largest_bias is not None]
    assert len(tested) == (4 if stage == "A" else 2) and all(case.largest_bias < 5.5 for case in tested)
    assert all(case.error_over_bound <= 1 for case in report.cases)


def test_the_sweep_holds_what_was_promised():
    for stage in WRITES:
        cases = {case.name: case for case in kernel_cases.sweep(stage, kernel_cases.FORMAT[stage])}
        assert {"one token", "one past a tile", "poisoned tails", "ties", "zero blocks", "outliers", "bf16-rounded",
                "near f16 overflow", "3 super blocks", "-128 codes"} <= set(cases)
        assert any(case.shape.k // 32 > 32 for case in cases.values()), "no shape goes round the lanes"
        assert any(case.shape.m % 16 for case in cases.values()) or stage in ("D", "A1"), "no row past a tile"
        fmt = kernel_cases.FORMAT[stage]
        near = kernel_cases.make(stage, fmt, cases["near f16 overflow"], 1).operands("mmvq")
        assert 5e4 < near.d.astype(float).max() <= 65504 and np.isfinite(near.s).all()
        zero = kernel_cases.make(stage, fmt, cases["zero blocks"], 1).operands("mmvq")
        assert (zero.d == 0).any()


@pytest.mark.parametrize("isa", ["phase", "baseline"])
def test_another_instruction_set_passes_too(isa):
    assert verify(Request(stage="U", variant="mmvq", seed=5, isa=isa, fmt="Q4_0")).verdict.status == "PASS"


def test_a_fallback_is_not_engaged():
    verdict = verify(Request(stage="D", variant="w11", seed=5, fmt="Q4_0")).verdict
    assert verdict.status == "INCONCLUSIVE" and verdict.engaged["a"] is False
    assert any("mmvq ran" in reason for reason in verdict.reasons)


@pytest.fixture
def plant():
    yield _mutants.set_fault
    _mutants.set_fault(None)


@pytest.mark.parametrize(
    ("stage", "variant", "fault", "cause"),
    [
        ("D", "w11", "next-block-scale", "d-xl"),
        ("D", "mmvq", "lanes-once", "33 blocks"),
        ("U", "mmq", "skip-last-row-tile", "unwritten"),
        ("A1", "w11", "flip-hmask-bit", "a-gate"),
        ("A1", "mmvq", "first-super-scale", "3 super blocks"),
        ("A2", "mmq", "next-expert", "a-y"),
        ("D", "mmq", "weight-scale-21", "biased"),
        ("U", "w11", "round-toward-zero", "biased"),
        ("D", "mmvq", "last-row-nan", "nonfinite"),
    ],
)
def test_mutated_kernels_fail_with_place_and_cause(stage, variant, fault, cause, plant):
    plant(fault)
    verdict = verify(Request(stage=stage, variant=variant, seed=13, kernels=GuardedKernels(_mutants, threads=1))).verdict
    assert verdict.status == "FAIL" and any(cause in reason for reason in verdict.reasons), verdict.reasons


def test_written_guards_are_a_failure():
    class Careless(GuardedKernels):
        def u(self, *args):
            out = super().u(*args)
            self._buffers[-1][-1] ^= 1
            return out

    report = verify(Request(stage="U", variant="ref", seed=1, kernels=Careless(threads=1)))
    assert report.verdict.status == "FAIL" and "guard bytes" in report.verdict.reasons[0]
    assert all(case.status == "FAIL" for case in report.cases)


def test_the_seed_decides_every_byte():
    def inputs(seed):
        made = kernel_cases.make("A1", "Q3_K", kernel_cases.sweep("A1", "Q3_K")[0], seed)
        return made.x, *(w.raw for w in made.weights), made.ids

    one, same, other = inputs(7), inputs(7), inputs(8)
    assert all((a == b).all() for a, b in zip(one, same)) and not (one[0] == other[0]).all()


def test_the_command_prints_its_seed_and_repeats(capsys):
    arguments = ["kernel", "--stage", "D", "--variant", "mmvq", "--shape", "64,3,96", "--json", "-"]
    assert run(arguments) == 0
    text = capsys.readouterr().out
    assert Verdict.loads(text).status == "PASS", "the schema holds"
    first = json.loads(text)
    assert run([*arguments, "--seed", str(first["environment"]["seed"])]) == 0
    again = json.loads(capsys.readouterr().out)
    assert first["layers"] == again["layers"] and first["environment"]["cases"] == again["environment"]["cases"]
    assert run(["kernel", "--stage", "U", "--variant", "mmq", "--shape", "33,3,96", "--seed", "9"]) == 0
    text = capsys.readouterr().out
    assert "seed 9" in text and "verdict: PASS" in text and max(map(len, text.splitlines())) <= 132


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--stage", "D", "--variant", "ref", "--shape", "64,3"], "M,N,K"),
        (["--stage", "D", "--variant", "ref", "--shape", "64,3,33"], "multiple of 32, found 33"),
        (["--stage", "D", "--variant", "ref", "--symbol", "f"], "together"),
        (["--stage", "D", "--variant", "ref", "--isa", "sse9"], "expected one of"),
        (["--stage", "A1", "--variant", "ref", "--shape", "32,2,256,2,3"], "no more chosen"),
        (["--stage", "D", "--variant", "ref", "--format", "Q3_K"], "Q8_0 or Q4_0"),
    ],
)
def test_the_command_refuses_bad_input_in_one_line(arguments, said, capsys):
    assert run(["kernel", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_the_entry_points_are_declared():
    text = (ROOT / "pyproject.toml").read_text()
    for name in ("latent_d_verify", "latent_u_verify", "latent_moe_verify"):
        assert f'{name} = "edge0verify.cli.kernel:{name}"' in text
        from edge0verify.cli import kernel

        assert callable(getattr(kernel, name))


def test_an_entry_point_names_its_stage(monkeypatch, capsys):
    from edge0verify.cli import kernel

    monkeypatch.setattr("sys.argv", ["latent_u_verify", "--variant", "mmq", "--shape", "33,2,64", "--seed", "4"])
    with pytest.raises(SystemExit) as ended:
        kernel.latent_u_verify()
    assert ended.value.code == 0 and "stage U: a = mmq" in capsys.readouterr().out
