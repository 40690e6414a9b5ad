"""A user's kernels in a shared library: the right ones pass, wrong ones fail with place and cause, crashes stay in the child."""

import shutil
import subprocess
from pathlib import Path

import pytest

from edge0verify.cli.main import run
from edge0verify.records.errors import InputError
from edge0verify.study.kernel import Request, libraries_for, verify
from edge0verify.study.kernel_cases import Shape
from edge0verify.study.kernel_library import WRITES, Library

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """user_kernels.c, built as a user would."""
    if shutil.which("gcc") is None:
        print("not run: no gcc here to build a user's kernel with")
        pytest.skip("not run: no gcc")
    out = tmp_path_factory.mktemp("user") / "k.so"
    flags = ["-std=gnu17", "-O2", "-shared", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", f"-I{ROOT / 'kernels'}"]
    done = subprocess.run(["gcc", *flags, HERE / "user_kernels.c", "-o", out, "-lm"], capture_output=True, text=True)
    if "_Float16" in done.stderr:
        pytest.skip("not run: this gcc has no _Float16")
    assert done.returncode == 0, done.stderr
    return out


def by_user(library, symbol, stage="D", writes=None, timeout_s=10.0, **more):
    with Library(library, symbol, writes or WRITES[stage], timeout_s) as loaded:
        return verify(Request(stage=stage, variant="mmvq", seed=3, libraries={stage: loaded}, **more))


def test_right_kernels_of_a_user_pass(library):
    report = by_user(library, "right")
    assert report.verdict.status == "PASS" and report.verdict.engaged["a"] is True
    assert all(r.equal == r.n for case in report.cases for r in case.results), "same order of operations, same bits"
    assert by_user(library, "a2_right", "A2").verdict.status == "PASS"
    report = by_user(library, "a1_right", "A1")
    assert report.verdict.status == "PASS", report.verdict.reasons
    rows = [r for case in report.cases for r in case.results if r.tensor in ("a-gate", "a-up")]
    assert all(r.equal == r.n for r in rows), "same order of operations, same bits"


@pytest.mark.parametrize(
    ("symbol", "said"),
    [
        ("last_block_dropped", "33 blocks d-xl"),
        ("next_scale", "3 super blocks d-xl"),
        ("last_tile_unwritten", "unwritten"),
        ("writes_nothing", "unwritten"),
        ("one_past_the_end", "one past a tile: 4 bytes after d-xl were written, the first at +0"),
        ("writes_its_input", "1 bytes of its input codes were written, the first at 7"),
        ("reads_past_the_input", "nonfinite"),
        ("crashes_on_33_blocks", "33 blocks: the kernel's process ended by SIGSEGV"),
        ("exits", "exit code 7 (its last words: out of patience)"),
        ("fails", "the kernel returned -5"),
        ("stores_truncated", "d-xlq"),
        ("stores_half_to_even", "ties in the store d-xlq"),
    ],
)
def test_wrong_kernels_of_a_user_fail_with_place_and_cause(library, symbol, said):
    report = by_user(library, symbol)
    assert report.verdict.status == "FAIL"
    every = [*report.verdict.reasons, *(note for case in report.cases for note in case.notes)]
    every += [reason for case in report.cases for result in case.results for reason in result.reasons]
    assert any(said in reason for reason in every), every


@pytest.mark.parametrize(
    ("symbol", "said"),
    [
        ("split_in_a_block", "64 of 64 values structured (a does not conform: a: values 528..543 of 1056 along K are"),
        ("dots_of_four_reversed", "a: the weights are read with every four values in reverse (relative L2 error"),
        ("keeps_the_token_before", "one past a tile d-xl: 160 of 2720 values stale (a does not conform: a holds rows of this run"),
    ],
)
def test_the_rule_behind_a_wrong_kernel_is_named(library, symbol, said):
    report = by_user(library, symbol, writes=("d-xl",))
    assert report.verdict.status == "FAIL" and any(said in reason for reason in report.verdict.reasons), report.verdict.reasons


def test_the_other_cases_go_on_after_a_crash(library):
    report = by_user(library, "crashes_on_33_blocks")
    assert [case.case for case in report.cases if case.status == "FAIL"] == ["33 blocks"]
    assert sum(case.status == "PASS" for case in report.cases) == len(report.cases) - 1


def test_a_hang_is_ended_and_the_rest_left(library):
    report = by_user(library, "hangs", timeout_s=0.2)
    assert report.verdict.status == "FAIL" and "no answer within 0.2 s" in report.verdict.reasons[0]
    assert "not run after 3" in report.cases[-1].notes[0]


def test_an_error_of_the_last_bit_is_biased(library):
    verdict = by_user(library, "off_by_an_ulp", writes=("d-xl",)).verdict
    assert verdict.status == "FAIL" and all("biased" in reason for reason in verdict.reasons)
    assert verdict.signature["tensors"] == ["d-xl"], "what is not written is not judged, and not said to be"


def test_a_wrong_route_is_found(library):
    verdict = by_user(library, "a2_first_expert_only", "A2").verdict
    assert verdict.status == "FAIL" and "a-y" in verdict.reasons[0]


def test_what_a_wrong_a1_spoils_first_is_named(library):
    verdict = by_user(library, "a1_scales_of_the_first_half", "A1").verdict
    assert verdict.status == "FAIL" and " a-gate: " in verdict.reasons[0] and "a does not conform" in verdict.reasons[0]
    verdict = by_user(library, "a1_up_through_silu", "A1").verdict
    assert verdict.status == "FAIL"
    assert {r.tensor for r in verdict.layers if r.status == "FAIL"} <= {"a-h", "a-h.d", "a-h.s"}


def test_refused_shapes_prove_nothing_unless_allowed(library):
    report = by_user(library, "refuses_odd_tails")
    assert report.verdict.status == "INCONCLUSIVE" and any("poisoned tails" in reason for reason in report.verdict.reasons)
    assert by_user(library, "refuses_odd_tails", allow_refused=True).verdict.status == "PASS"
    assert by_user(library, "refuses_everything", allow_refused=True).verdict.status == "INCONCLUSIVE"


def test_bad_requests_name_what_is_wrong(library, tmp_path):
    with pytest.raises(InputError, match="symbol nosuch"):
        by_user(library, "nosuch")
    with pytest.raises(InputError, match="no such file"):
        Library(tmp_path / "none.so", "f", ("d-xl",))
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(InputError, match=r"text\.so"):
        by_user(tmp_path / "text.so", "right")
    with pytest.raises(InputError, match="expected 2 for stage A"):
        list(libraries_for("A", library, "one", None, 1.0))
    with pytest.raises(InputError, match="--writes"):
        list(libraries_for("D", library, "f", ("a-h",), 1.0))
    with pytest.raises(InputError, match="multiple of 32, found 31"):
        verify(Request(stage="D", variant="ref", seed=1, shape=Shape(31, 1, 32)))
    with pytest.raises(InputError, match="did you mean"):
        verify(Request(stage="D", variant="w12", seed=1))


def test_the_command_fails_a_wrong_kernel(library, capsys):
    arguments = ["kernel", "--stage", "D", "--variant", "mmvq", "--seed", "9", "--library", str(library), "--symbol"]
    assert run([*arguments, "last_block_dropped"]) == 1
    text = capsys.readouterr().out
    assert "k.so:last_block_dropped" in text and "33 blocks d-xl" in text and "verdict: FAIL" in text
    assert run([*arguments, "right"]) == 0
    assert run([*arguments, "right", "--writes", "u"]) == 2


def test_the_shipped_example_keeps_its_contract(tmp_path, capsys):
    """The kernel that the documents hand out, built from what the command prints."""
    if shutil.which("gcc") is None:
        pytest.skip("not run: no gcc")
    for what, name in (("header", "edge0_kernel.h"), ("example", "k.c")):
        assert run(["kernel", "--print", what]) == 0
        (tmp_path / name).write_text(capsys.readouterr().out)
    flags = ["-O2", "-shared", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", tmp_path / "k.so", tmp_path / "k.c", "-lm"], check=True)
    report = by_user(tmp_path / "k.so", "d_mmvq")
    assert report.verdict.status == "PASS" and all(r.equal == r.n for case in report.cases for r in case.results)
