"""The text a person reads at a glance."""

from dataclasses import replace

import pytest

from edge0verify.compare import compare, judge, movement
from edge0verify.records.evidence import Engagement
from edge0verify.report.tables import WIDTH, correlation, keeps, percentage, share, verdict_text
from tests.compare.sides import at, blocks_pair, blocks_side, edited, pair, rows_side, stage_oracle
from tests.compare.test_top8 import A, tokens

RAN = Engagement(asked="w11", wanted=("D/w11/Q8_0",), launches={"D/w11/Q8_0": 6})


def text(results, **more):
    found = judge(results, a="mmvq", b="w11", engaged_a=RAN, engaged_b=more.pop("b", RAN), stage="D", reference="mmvq", **more)
    return verdict_text(found)


class TestFigures:
    @pytest.mark.parametrize(
        "part, whole, shown",
        [
            (10, 10, "100"),
            (9, 10, "90.000"),
            (1348601, 1348608, "99.99948"),
            (10**8 - 1, 10**8, "99.9999990"),
            (0, 0, "-"),
            (0, 7, "0.000"),
        ],
    )
    def test_a_share_never_rounds_to_all(self, part, whole, shown):
        assert share(part, whole) == shown
        assert whole == 0 or percentage(100.0 * part / whole) == shown

    def test_a_correlation_is_shown_by_its_distance_from_one(self):
        assert (correlation(1.0), correlation(1 - 2e-9), correlation(0.5), correlation(None)) == ("1", "1-2.0e-09", "0.5000", "-")

    def test_what_does_not_conform_is_counted(self):
        assert (keeps(10, 10), keeps(7, 10), keeps(None, 10)) == ("all", "not 3", "-")


class TestText:
    def test_one_line_per_tensor_then_engaged_then_the_verdict(self):
        results = [
            *compare(pair(rows_side("mmvq"), rows_side("w11"), oracle=stage_oracle())),
            *compare(blocks_pair(blocks_side("mmvq"), blocks_side("w11"))),
        ]
        lines = text(results).splitlines()
        assert lines[0] == "stage D: a = mmvq, b = w11, on the reference path of mmvq"
        assert sum(line.startswith("3 ") for line in lines) == 2
        assert any("rounding" in line for line in lines)
        assert "a mmvq: engaged   b w11: engaged" in lines
        assert lines[-1] == "verdict: PASS"

    def test_scales_get_a_line_of_their_own_where_they_fail(self):
        def shift(d):
            d[:, 0] = d[:, 1]

        shown = text(compare(blocks_pair(blocks_side("mmvq"), edited(blocks_side("w11"), d=shift))))
        assert "d-xlq.d" in shown and "FAIL: structured" in shown and "  - layer 3 d-xlq.d:" in shown

    def test_no_line_is_wider_than_a_terminal(self):
        def wreck(rows):
            rows[:, ::2] = 1e9

        results = compare(pair(rows_side("mmq"), edited(rows_side("w11"), rows=wreck)))
        results += compare(blocks_pair(edited(blocks_side("mmq"), codes=at(slice(0, 50), 5)), blocks_side("w11")))
        wide = [replace(r, n=r.n * 1000, equal=r.equal * 1000, layer="mtp") for r in results]
        assert max(map(len, text(wide).splitlines())) <= WIDTH

    def test_what_was_asked_for_and_what_ran_is_said(self):
        idle = Engagement(asked="w11", wanted=("D/w11/Q4_0",), launches={"D/mmvq/Q4_0": 6})
        shown = text(compare(pair(rows_side("mmvq"), rows_side("mmvq"))), b=idle)
        assert "b w11: NOT engaged" in shown and "w11 was asked for and mmvq ran" in shown
        assert "INCONCLUSIVE" in shown

    def test_nothing_compared_is_said(self):
        assert "nothing was compared" in text([])

    def test_the_top_eight_follow_the_table(self):
        moved = movement(A, tokens([[2, 5, 9]], [[-0.7, -0.75, -3.0]]))
        shown = text(compare(pair(rows_side("mmvq"), rows_side("w11"))), top8=moved)
        assert "top-8: largest movement 0.3 over 1 positions, 1 best changed, 0 sets changed" in shown
        assert "prose: log-probs move by 0.3, 3 ids shared, best 5 -> 2 (margin 0.5)" in shown
