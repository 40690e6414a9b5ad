"""The self test tests the suite; these tests hold it to failing where it should."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace

import pytest

from edge0verify.cli.main import run
from edge0verify.records.causes import FAILING
from edge0verify.study.selftest import comparators, runner, trial, trials
from edge0verify.study.selftest.judging import outcome
from edge0verify.study.selftest.runner import Report, Survivor, selftest, try_broken
from edge0verify.study.selftest.types import CAUGHT, FALSE_ALARM, MISNAMED, MISSED, NOT_EXERCISED, PASSED, Outcome
from edge0verify.variants import _mutants

SPENT: list[float] = []
"""Processor seconds of the reduced form."""


@pytest.fixture(scope="module")
def reduced() -> Report:
    before = time.process_time()
    found = selftest(quick=True)
    SPENT.append(time.process_time() - before)
    return found


class TestReducedForm:
    def test_nothing_is_missed_misnamed_or_unexercised_and_there_is_no_false_alarm(self, reduced: Report) -> None:
        wrong = [o for o in reduced.outcomes if o.result not in (CAUGHT, PASSED)]
        assert wrong == []
        assert reduced.reasons == []

    def test_every_failing_cause_is_among_it(self, reduced: Report) -> None:
        causes = {cause for o in reduced.outcomes for cause in o.expect}
        assert set(FAILING) == causes

    def test_every_broken_comparator_would_make_it_fail(self, reduced: Report) -> None:
        assert [c.name for c in reduced.comparators] == [b.name for b in comparators.BROKEN]
        assert reduced.unnoticed == []

    def test_it_is_quick(self, reduced: Report) -> None:
        assert len(reduced.outcomes) >= 40
        assert SPENT[0] < 25


class TestWhatTheWholeFormHolds:
    def test_as_many_faults_and_changes_as_it_promises(self) -> None:
        found = list(trials.trials())
        planted = [t for t in found if t.source in ("compiled", "doctored", "blind", "route")]
        assert len(planted) >= 40
        assert len({t.name.split()[0] for t in planted if t.source == "compiled"}) >= 15
        assert sum(t.source == "blind" for t in planted) >= 10
        assert sum(t.source == "legitimate" for t in found) >= 30
        first = Counter(t.expect[0] for t in planted)
        assert all(first[cause] >= 3 for cause in FAILING), first

    def test_names_are_told_apart(self) -> None:
        names = Counter((t.source, t.stage, t.name, t.where) for t in trials.trials())
        assert max(names.values()) == 1

    def test_every_fault_of_the_mutant_module_is_tried(self) -> None:
        assert {t.name.split()[0] for t in trials.trials() if t.source == "compiled"} == set(_mutants.faults())

    def test_the_reduced_form_names_trials_that_exist(self) -> None:
        assert {t.name for t in trials.trials()} >= trials.QUICK_FAULTS
        quick = {t.name for t in trials.trials() if t.quick}
        assert all(set(broken.by.split("; ")) <= quick for broken in comparators.BROKEN)


def of(result: str, **more) -> Outcome:
    told = dict(name="x", source="compiled", stage="D", where="text", tensor="d-xl", expect=("biased",), status="FAIL", cause="")
    return Outcome(**{**told, "result": result, "first": "", "note": "", **more})


def report(*results: str, **more) -> Report:
    return Report(**{"quick": True, "outcomes": tuple(map(of, results)), "comparators": (), "seconds": 1.0, **more})


class TestVerdict:
    @pytest.mark.parametrize("result", [MISSED, NOT_EXERCISED, FALSE_ALARM])
    def test_one_is_too_many(self, result: str) -> None:
        assert report(CAUGHT, PASSED).ok
        assert report(CAUGHT, PASSED, result).reasons == [f"1 {result}"]

    def test_two_may_be_misnamed(self) -> None:
        assert report(CAUGHT, MISNAMED, MISNAMED).ok
        assert not report(CAUGHT, *[MISNAMED] * 3).ok

    def test_nothing_tried_is_no_pass(self) -> None:
        assert not report().ok

    def test_a_comparator_that_nobody_notices_fails_it(self) -> None:
        silent = Survivor(name="says equal always", caught_by="", how="unnoticed")
        assert not report(CAUGHT, comparators=(silent,)).ok

    def test_a_battery_that_shrank_fails_the_whole_form(self) -> None:
        assert any("planted faults" in reason for reason in report(CAUGHT, quick=False).reasons)
        assert any("cause stale" in reason for reason in report(CAUGHT, quick=False).reasons)


def one(name: str):
    return next(t for t in trials.trials() if t.name == name)


class TestNegativeControls:
    def test_a_fault_that_changes_no_bit_is_not_exercised(self) -> None:
        """The lanes start over after 32 blocks, and the text's rows have twelve."""
        idle = next(p for p in trials.PLANTED if p.fault == "lanes-once" and p.stage == "D")
        made = trials._compiled(replace(idle, long_rows=False))
        assert outcome(made, made.make()).result == NOT_EXERCISED

    def test_a_fault_called_a_legitimate_change_is_a_false_alarm(self) -> None:
        fault = one("column-block-zero")
        assert outcome(replace(fault, source="legitimate", status="PASS"), fault.make()).result == FALSE_ALARM

    def test_a_legitimate_change_called_a_fault_is_missed(self) -> None:
        change = next(t for t in trials.trials() if t.source == "legitimate" and t.name == "mmvq - w11" and t.stage == "D")
        assert outcome(replace(change, source="compiled", status="FAIL", expect=("biased",)), change.make()).result == MISSED

    def test_another_name_is_misnamed(self) -> None:
        fault = one("stale-row")
        assert outcome(replace(fault, expect=("unwritten",)), fault.make()).result == MISNAMED

    def test_bits_that_had_to_stay_are_a_false_alarm(self) -> None:
        change = next(t for t in trials.trials() if t.name == "one thread" and t.stage == "D")
        assert outcome(change, change.make()).result == PASSED
        assert outcome(change, replace(change.make(), broken="bits changed in d-xl")).result == FALSE_ALARM

    def test_a_broken_comparator_that_makes_no_difference_is_unnoticed(self) -> None:
        fault = one("column-block-zero")
        same = comparators.Broken("is not broken", comparators.rows, "rows_conform", lambda right: right, fault.name)
        assert try_broken(same, [(fault, fault.make())]).caught_by == ""

    def test_a_broken_comparator_is_mended_afterwards(self) -> None:
        before = [b.owner.__dict__[b.attribute] for b in comparators.BROKEN]
        for broken in comparators.BROKEN:
            with broken.planted():
                assert broken.owner.__dict__[broken.attribute] is not before[comparators.BROKEN.index(broken)]
        assert [b.owner.__dict__[b.attribute] for b in comparators.BROKEN] == before

    def test_the_planted_fault_is_gone_afterwards(self) -> None:
        stage = trials.scenes.text("U")
        trial.planted(stage, "mmvq", "stale-token")
        assert trial.changed(trial.kept(stage, "mmvq").tensors, trial.run(stage, "mmvq", trial.mutants()).tensors) == []


class TestCommand:
    def test_exit_and_json(self, reduced: Report, monkeypatch, capsys) -> None:
        monkeypatch.setattr(runner, "selftest", lambda **given: reduced)
        assert run(["selftest", "--quick", "--json", "-"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["status"] == "PASS" and data["counts"]["missed"] == 0
        assert len(data["trials"]) == len(reduced.outcomes)

    def test_a_missed_fault_exits_with_1_and_is_listed(self, monkeypatch, capsys) -> None:
        monkeypatch.setattr(runner, "selftest", lambda **given: report(CAUGHT, MISSED))
        assert run(["selftest"]) == 1
        text = capsys.readouterr().out
        assert "1 missed" in text and "verdict: FAIL" in text

    def test_without_the_mutant_module_it_is_an_input_error(self, monkeypatch, capsys) -> None:
        monkeypatch.setitem(__import__("sys").modules, "edge0verify.variants._mutants", None)
        monkeypatch.delattr("edge0verify.variants._mutants")
        assert run(["selftest", "--quick"]) == 2
        assert "kernels with planted faults" in capsys.readouterr().err

    def test_criteria_and_the_reduced_form_exclude_each_other(self, capsys) -> None:
        assert run(["selftest", "--criteria", "--quick"]) == 2
