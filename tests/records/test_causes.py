"""The table of causes."""

from edge0verify.records import causes


def test_every_cause_of_the_design_is_there_once():
    expected = (
        "nonfinite unwritten by-design equal loose operands tie rounding stale permuted structured route-flip cascade "
        "unexplained biased"
    )
    assert sorted(causes.CAUSES) == sorted(expected.split())
    assert len(causes.ORDER) == len({cause.name for cause in causes.ORDER}) == 14


def test_what_conforms_is_decided_after_what_was_never_written_and_before_what_is_left():
    names = [cause.name for cause in causes.ORDER]
    assert names[:3] == ["nonfinite", "unwritten", "by-design"]
    assert set(names[3:8]) == {"equal", "loose", "operands", "tie", "rounding"}
    assert names[8:] == ["stale", "permuted", "structured", "route-flip", "cascade", "unexplained"]


def test_defaults_are_those_of_the_design():
    outcome = {name: cause.outcome for name, cause in causes.CAUSES.items()}
    assert {n for n, o in outcome.items() if o == "PASS"} == {"equal", "tie", "rounding", "operands", "by-design", "cascade"}
    assert {n for n, o in outcome.items() if o == "INCONCLUSIVE"} == {"loose"}
    assert {
        "nonfinite",
        "unwritten",
        "stale",
        "permuted",
        "structured",
        "unexplained",
        "route-flip",
        "biased",
    } == causes.FAILING
