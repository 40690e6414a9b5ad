"""From entries to a verdict: who outranks whom, and what the reasons say."""

from dataclasses import replace
from itertools import product

import pytest

from edge0verify.compare import Policy, judge
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Engagement
from edge0verify.records.verdict import LayerResult, Verdict, percent

RAN = Engagement(asked="w11", wanted=("D/w11/Q8_0",), launches={"D/w11/Q8_0": 6})
IDLE = Engagement(asked="w11", wanted=("D/w11/Q4_0",), launches={"D/mmvq/Q4_0": 6})
FOREIGN = Engagement(asked="theirs", launches=None)


def entry(status="PASS", *, n=10, equal=9, reasons=None, layer=0, poison_b=0, tensor="d-xlq"):
    causes = {"PASS": {"equal": equal, "tie": n - equal}, "FAIL": {"unexplained": n}, "INCONCLUSIVE": {"loose": n}}[status]
    reasons = reasons if reasons is not None else () if status == "PASS" else (f"layer {layer} {tensor}: {status} for a reason",)
    return LayerResult(
        layer=layer,
        tensor=tensor,
        n=n,
        equal=equal,
        equal_pct=percent(equal, n),
        max_code_diff=1,
        code_diffs={"1": 1},
        scale_equal_pct=100.0,
        rel_l2=0.0,
        max_abs=0.0,
        max_ulp=None,
        corr=1.0,
        conforming={"a": n, "b": n},
        poison={"a": 0, "b": poison_b},
        causes=causes,
        status=status,
        reasons=reasons,
    )


def verdict(results, *, a=RAN, b=RAN, **more):
    found = judge(results, a="mmvq", b="w11", engaged_a=a, engaged_b=b, stage="D", **more)
    assert Verdict.loads(found.dumps()) == found
    return found


class TestPrecedence:
    def test_something_compared_that_conforms_by_kernels_that_ran_is_a_pass(self):
        found = verdict([entry(), entry(layer=1)])
        assert (found.status, found.exit_code, found.reasons) == ("PASS", 0, ())
        assert found.engaged == {"a": True, "b": True}

    def test_all_combinations_follow_the_order(self):
        for error, unlike, suspect, fail, idle, unproven in product([False, True], repeat=6):
            results = [entry(), *([entry("FAIL")] if fail else []), *([entry("INCONCLUSIVE")] if unproven else [])]
            arguments = {
                "unlike": ["prompts differ"] if unlike else [],
                "suspect": ["the reference is far from the oracle"] if suspect else [],
                "b": IDLE if idle else RAN,
                "input_error": "x.h5: wrong" if error else None,
            }
            if error:
                with pytest.raises(InputError, match=r"x\.h5: wrong"):
                    verdict(results, **arguments)
                continue
            found = verdict(results, **arguments)
            if unlike or suspect:
                assert found.status == "INCONCLUSIVE"
            elif fail:
                assert found.status == "FAIL"
            else:
                assert found.status == ("INCONCLUSIVE" if idle or unproven else "PASS")
            assert bool(found.reasons) == (unlike or suspect or fail or idle or unproven)

    def test_a_failure_of_the_whole_tensor_counts(self):
        assert verdict([entry()], failures=["layer 0 d-xl: biased"]).status == "FAIL"

    def test_any_other_doubt_counts(self):
        assert verdict([entry()], inconclusive=["hardware absent"]).reasons == ("hardware absent",)


class TestNeverAPass:
    def test_nothing_at_all(self):
        found = verdict([])
        assert (found.status, found.exit_code) == ("INCONCLUSIVE", 3)
        assert found.reasons == ("nothing was compared",)

    def test_only_empty_tensors(self):
        empty = entry("INCONCLUSIVE", n=0, equal=0, reasons=("layer 0 d-xlq: empty, nothing compared",))
        assert verdict([empty]).status == "INCONCLUSIVE"

    def test_a_tensor_missing_beside_one_that_passes(self):
        missing = entry("INCONCLUSIVE", n=0, equal=0, reasons=("layer 0 d-xl: missing on side b",))
        assert verdict([entry(), missing]).status == "INCONCLUSIVE"


class TestEngaged:
    def test_what_was_asked_for_and_what_ran_are_both_named(self):
        found = verdict([entry()], b=IDLE)
        assert found.status == "INCONCLUSIVE"
        assert found.engaged == {"a": True, "b": False}
        assert "b: not engaged, w11 was asked for and mmvq ran" in found.reasons[0]
        assert "D/w11/Q4_0 launched 0 times" in found.reasons[0] and "D/mmvq/Q4_0 6 times" in found.reasons[0]

    def test_equal_in_every_bit_and_never_launched_are_both_named(self):
        """F04: byte-identical output, because the new kernel never ran."""
        (reason,) = verdict([entry(equal=10)], b=IDLE).reasons
        assert "not engaged" in reason and "every compared bit is equal" in reason

    def test_nothing_ran_at_all(self):
        (reason,) = verdict([entry()], b=Engagement(asked="w11", wanted=("D/w11/Q8_0",), launches={})).reasons
        assert "w11 was asked for and no kernel ran" in reason

    def test_one_part_of_a_stage_that_did_not_run(self):
        half = Engagement(asked="w11", wanted=("A1/w11/Q3_K", "A2/w11/IQ4_NL"), launches={"A1/w11/Q3_K": 6, "A2/mmvq/IQ4_NL": 6})
        (reason,) = verdict([entry()], b=half).reasons
        assert "A2/w11/IQ4_NL launched 0 times" in reason and "A1/w11/Q3_K" not in reason

    def test_a_kernel_that_was_launched_and_wrote_nothing_fails_and_is_not_engaged(self):
        """F03: launched, and the output is what it was preset to."""
        found = verdict([entry("FAIL", poison_b=10)])
        assert found.status == "FAIL"
        assert found.engaged == {"a": True, "b": False}
        assert "still holds the poison" in found.reasons[-1]

    def test_a_tile_left_unwritten_does_not_hide_that_the_kernel_ran(self):
        assert verdict([entry("FAIL", poison_b=9)]).engaged == {"a": True, "b": True}

    def test_a_foreign_dump_is_at_best_inconclusive(self):
        found = verdict([entry()], b=FOREIGN)
        assert (found.status, found.engaged) == ("INCONCLUSIVE", {"a": True, "b": None})
        assert "launches of theirs are not known" in found.reasons[0]

    def test_a_policy_may_allow_a_foreign_dump(self):
        found = verdict([entry()], b=FOREIGN, policy=Policy(allow_foreign=True))
        assert (found.status, found.engaged["b"]) == ("PASS", None)


class TestReport:
    def test_reasons_that_decided_come_first(self):
        found = verdict([entry("INCONCLUSIVE"), entry("FAIL")], b=IDLE)
        assert "FAIL" in found.reasons[0] and "INCONCLUSIVE" in found.reasons[1] and "not engaged" in found.reasons[2]

    def test_many_reasons_are_counted_not_listed(self):
        found = verdict([entry("FAIL", layer=i) for i in range(40)])
        assert len(found.reasons) == 13
        assert found.reasons[-1] == "and 28 more of this kind"

    def test_every_tensor_and_cause_is_among_those_listed(self):
        def said(layer, tensor, cause):
            reason = f"layer {layer} {tensor}: 7 of 10 values {cause} (b does not conform), row 1"
            return entry("FAIL", layer=layer, tensor=tensor, reasons=(reason,))

        results = [said(i, "d-xl", "structured") for i in range(30)]
        results += [said(30, "d-xl", "stale"), said(31, "d-xlq", "unexplained"), said(32, "d-xl", "structured")]
        listed = verdict(results).reasons
        assert len(listed) == 13 and listed[-1] == "and 21 more of this kind"
        assert [text.split(":")[0] for text in listed[:10]] == [f"layer {i} d-xl" for i in range(10)]
        assert "stale" in listed[10] and "unexplained" in listed[11]

    def test_what_was_not_written_is_said_before_what_was_made_of_it(self):
        wrong = [entry("FAIL", layer=2), replace(entry("FAIL", tensor="d-xl", layer=4), causes={"unwritten": 10}),
                 replace(entry("FAIL", tensor="d-xlq.s", layer=4), causes={"nonfinite": 10})]
        assert [text.split(":")[0] for text in verdict(wrong).reasons] == ["layer 4 d-xl", "layer 4 d-xlq.s", "layer 2 d-xlq"]

    def test_totals_add_up(self):
        totals = verdict([entry(), entry("FAIL", equal=0)]).totals
        assert (totals["n"], totals["equal"], totals["codes_equal_pct"]) == (20, 9, 45.0)
        assert totals["causes"] == {"equal": 9, "tie": 1, "unexplained": 10}
        assert totals["status"] == {"PASS": 1, "FAIL": 1, "INCONCLUSIVE": 0}

    def test_the_signature_names_what_was_compared(self):
        found = verdict([entry(), entry(layer="mtp", tensor="d-xl")])
        assert found.signature == {"tensors": ["d-xlq", "d-xl"], "layers": [0, "mtp"]}

    def test_a_correlation_never_decides(self):
        from dataclasses import replace

        assert verdict([replace(entry(), corr=-1.0)]).status == "PASS"
        assert verdict([replace(entry("FAIL"), corr=1.0)]).status == "FAIL"
