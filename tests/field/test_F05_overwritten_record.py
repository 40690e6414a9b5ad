"""F05: a rerun overwrote a failed record of the same day. Here both stay, in the gate's store and in the nightly's history."""

from dataclasses import replace

from edge0verify.gate.policy import Policy
from edge0verify.gate.store import Store
from edge0verify.gate.validity import decide
from edge0verify.nightly import run as nightly
from edge0verify.nightly.history import History
from tests.gate.samples import SHA, record
from tests.nightly.test_history import a_result, a_run

NOON = 1_790_000_000.0


def gate(tmp_path, *records):
    """(records kept, the answer for the commit) after adding them."""
    store = Store(tmp_path)
    for kept in records:
        store.append(kept)
    stored = store.records("decode")
    return stored, decide("decode", stored, SHA, None, Policy(invalidating=()))


def test_a_rerun_that_proves_nothing_does_not_take_the_failure_back(tmp_path):
    stored, answer = gate(tmp_path, record(status="FAIL", reasons=("the rows differ",), recorded_at=NOON),
                          record(status="INCONCLUSIVE", reasons=("no device",), recorded_at=NOON + 3600))  # fmt: skip
    assert [s.record.status for s in stored] == ["FAIL", "INCONCLUSIVE"]
    assert answer.status == "FAIL"
    assert "an earlier record says FAIL" in answer.reasons[0]


def test_a_later_valid_record_of_the_commit_does_and_the_failure_is_shown_beside_it(tmp_path):
    stored, answer = gate(tmp_path, record(status="FAIL", recorded_at=NOON), record(status="PASS", recorded_at=NOON + 3600))
    assert [s.record.status for s in stored] == ["FAIL", "PASS"]
    assert answer.status == "PASS"
    assert "earlier FAIL" in answer.remarks[-1]


def test_a_nightly_that_passes_after_a_failure_on_the_same_commit_and_binary_is_not_believed(tmp_path):
    this = a_run()
    with History(tmp_path / "history.db") as history:
        history.add_result(history.begin(this, []), a_result(status="FAIL", exit_code=1))
        now = nightly._held_to_the_past(a_result(), replace(this, run=history.begin(this, [])), history)
        assert now.status == "INCONCLUSIVE" and "said FAIL" in now.reasons[0]
        later = replace(this, commit="e" * 40)
        assert nightly._held_to_the_past(a_result(), replace(later, run=history.begin(later, [])), history).status == "PASS"
