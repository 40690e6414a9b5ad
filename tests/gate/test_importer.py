"""The field's own gate records: what they say, what their state makes of it, and what must hold within each."""

import json

import pytest

from edge0verify.gate.importer import read_atlas
from edge0verify.gate.policy import LegRules
from edge0verify.gate.validity import shortcomings
from edge0verify.records.errors import InputError
from tests.gate.samples import ATLAS

FILES = sorted(ATLAS.glob("*.json"))
CONCURRENCY = ATLAS / "concurrency-sweep__2026-10-09-0ad9897308.json"
POISONING = ATLAS / "ssm-state-poisoning-gate__2026-10-09-0ad9897308.json"
DECODE = ATLAS / "decode-floor__2026-10-09-0ad9897308.json"


def doctored(source, tmp_path, change, *, name=None):
    data = json.loads(source.read_text())
    change(data)
    path = tmp_path / (name or source.name)
    path.write_text(json.dumps(data))
    return path


def good(path):
    return not shortcomings(read_atlas(path), LegRules())


class TestTheRecordsOfTheField:
    def test_there_are_six(self):
        assert len(FILES) == 6

    @pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition("__")[0])
    def test_every_invariant_holds_and_what_it_said_is_kept(self, path):
        found = read_atlas(path)
        assert found.status == json.loads(path.read_text())["verdict"] == "PASS"
        assert f"{found.leg}__{found.date}-{found.commit}.json" == path.name

    def test_only_the_throttled_pass_is_not_good(self):
        assert [path for path in FILES if not good(path)] == [CONCURRENCY]

    def test_the_throttled_pass_says_what_it_stands_on(self):
        [(status, why)] = shortcomings(read_atlas(CONCURRENCY), LegRules())
        assert status == "INCONCLUSIVE"
        assert "the PASS stands on an invalid measurement" in why
        assert "thermal throttle counter advanced" in why


class TestValidityDecides:
    @staticmethod
    def _set(value):
        def change(data):
            data["hardware_state"]["postcheck"]["validity"] = value

        return change

    def test_flipping_the_recorded_validity_flips_the_answer(self, tmp_path):
        assert not good(CONCURRENCY)
        assert good(doctored(CONCURRENCY, tmp_path, self._set("valid")))

    def test_flipping_it_the_other_way_flips_it_too(self, tmp_path):
        assert good(DECODE)
        assert not good(doctored(DECODE, tmp_path, self._set("invalid")))

    def test_the_name_of_the_leg_decides_nothing(self, tmp_path):
        def rename(data):
            data["benchmark_id"] = "decode-floor"

        assert not good(doctored(CONCURRENCY, tmp_path, rename, name=DECODE.name))

    def test_a_correctness_leg_on_an_invalid_measurement_is_not_good_either(self, tmp_path):
        assert not good(doctored(POISONING, tmp_path, self._set("invalid")))

    def test_a_speed_leg_that_recorded_no_validity_is_not_good(self, tmp_path):
        assert not good(doctored(DECODE, tmp_path, lambda data: data["hardware_state"].pop("postcheck")))

    def test_an_unknown_validity_is_refused(self, tmp_path):
        with pytest.raises(InputError, match=r"postcheck\.validity: expected one of"):
            read_atlas(doctored(DECODE, tmp_path, self._set("fine")))


class TestShownAsWhatItIs:
    def test_a_pass_with_one_of_twelve_identical_says_so(self):
        found = read_atlas(POISONING)
        assert found.remarks == ("PASS with 1 of 12 replays byte-identical, 11 not",)
        assert (found.statistics["invariant"]["k"], found.statistics["invariant"]["n"]) == (1, 12)
        assert found.statistics["invariant"]["failures_allowed_at_95"] > 0.99

    def test_with_all_identical_nothing_is_remarked(self, tmp_path):
        path = doctored(POISONING, tmp_path, lambda data: data["metrics"].update(invariant=12.0))
        assert read_atlas(path).remarks == ()

    def test_all_of_few_still_shows_what_they_allow(self):
        found = read_atlas(ATLAS / "vision-fidelity__2026-08-31-dd77f3e779.json").statistics
        assert found["probes_passed"]["failures_allowed_at_95"] == pytest.approx(1 - 0.05 ** (1 / 3))

    def test_a_bar_that_the_run_itself_moved_is_remarked(self):
        assert "update_baseline" in read_atlas(ATLAS / "ttft-warm-gate__2026-10-09-0ad9897308.json").remarks[0]

    def test_a_pass_of_a_run_that_did_not_complete_is_none(self, tmp_path):
        found = read_atlas(doctored(DECODE, tmp_path, lambda data: data.update(frame_status="Aborted")))
        assert found.status == "INCONCLUSIVE"
        assert "frame_status is 'Aborted'" in found.reasons[0]


class TestInvariants:
    @pytest.mark.parametrize(
        "field", ["elapsed_s", "sw_thermal_us", "hw_thermal_us", "gpu_temp_delta_c", "hottest_chassis_delta_c"]
    )
    def test_delta_is_after_minus_before(self, tmp_path, field):
        def change(data):
            data["hardware_state"]["delta"][field] += 1

        with pytest.raises(InputError, match=rf"delta\.{field}: expected after - before"):
            read_atlas(doctored(CONCURRENCY, tmp_path, change))

    @pytest.mark.parametrize(
        ("name", "field"),
        [
            ("concurrency-sweep__2026-10-10-0ad9897308.json", "UTC date of recorded_at: expected 2026-10-10"),
            ("concurrency-sweep__2026-10-09-0ad9897309.json", "git_sha: expected 0ad9897309"),
            ("decode-floor__2026-10-09-0ad9897308.json", "benchmark_id: expected decode-floor"),
            ("concurrency-sweep.json", "name: expected LEG__YYYY-MM-DD-SHA.json"),
        ],
    )
    def test_the_name_is_what_is_inside(self, tmp_path, name, field):
        with pytest.raises(InputError, match=field):
            read_atlas(doctored(CONCURRENCY, tmp_path, lambda data: None, name=name))

    def test_the_date_is_that_of_utc(self, tmp_path):
        def late(data):
            data["recorded_at"] = 1791590399  # 2026-10-09 23:59:59 UTC

        assert read_atlas(doctored(CONCURRENCY, tmp_path, late)).date == "2026-10-09"

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda d: d.update(schema=2), "schema: expected 1, found 2"),
            (lambda d: d.update(recorded_at="soon"), "recorded_at: expected int"),
            (lambda d: d.update(recorded_at=1791568700), "in order of time"),
            (lambda d: d.update(verdict="OK"), "verdict: expected"),
            (lambda d: d["metrics"].update(peak_aggregate_tok_s="76"), "metric peak_aggregate_tok_s: expected a finite number"),
            (lambda d: d["hardware_state"]["after"]["machine"].update(hostname="other"), "one machine"),
            (lambda d: d["hardware_state"].update(sensitivity="maybe"), "sensitivity: expected"),
            (lambda d: d["hardware_state"]["after"].pop("throttle_counters"), "expected after - before = None"),
        ],
    )
    def test_a_contradictory_record_is_refused(self, tmp_path, change, said):
        with pytest.raises(InputError, match=said):
            read_atlas(doctored(CONCURRENCY, tmp_path, change))

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1, "schema": 1}', '{"schema": NaN}', "\xff"])
    def test_what_is_no_record_is_refused_in_one_line(self, tmp_path, text):
        path = tmp_path / "decode-floor__2026-10-09-0ad9897308.json"
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(InputError) as caught:
            read_atlas(path)
        assert "\n" not in str(caught.value)
