"""JUnit XML."""

from xml.etree import ElementTree

from edge0verify.report.junit import junit
from tests.compare.test_judge import IDLE, entry, verdict


def parsed(*verdicts):
    return ElementTree.fromstring(junit(verdicts).split("\n", 1)[1])


def test_a_pass_has_neither_failures_nor_errors():
    root = parsed(verdict([entry(), entry(layer="mtp")]))
    assert root.attrib == {"name": "edge0verify", "tests": "3", "failures": "0", "errors": "0"}
    assert [case.get("name") for case in root.iter("testcase")] == ["layer 0 d-xlq", "layer mtp d-xlq", "verdict"]


def test_a_fail_is_a_failure_with_its_reason():
    root = parsed(verdict([entry("FAIL")]))
    assert root.get("failures") == "2"
    assert next(root.iter("failure")).get("message") == "layer 0 d-xlq: FAIL for a reason"


def test_nothing_proven_is_an_error_never_skipped():
    root = parsed(verdict([entry()], b=IDLE))
    assert (root.get("failures"), root.get("errors")) == ("0", "1")
    assert not list(root.iter("skipped"))
    assert "not engaged" in next(root.iter("error")).get("message")


def test_several_verdicts_are_several_suites():
    root = parsed(verdict([entry()]), verdict([entry("FAIL")]))
    assert [suite.get("failures") for suite in root] == ["0", "2"]
    assert root.get("tests") == "4"


def test_text_that_xml_cannot_hold_is_replaced_or_escaped():
    root = parsed(verdict([entry("FAIL", reasons=("a < b & \x00 \x1b[31m",))]))
    assert next(root.iter("failure")).get("message") == "a < b & ? ?[31m"
