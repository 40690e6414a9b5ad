"""Machine state: read where a tool is there, told why not where none is, and throttling is seen."""

import os

import pytest

from edge0verify.gate import machine

NVIDIA = """#!/bin/sh
case "$1" in
*clocks_event_reasons_counters*) {counters} ;;
*) echo "NVIDIA H200, 580.159.04, 39, 1980, 1980, 3201, 127.60"; echo "NVIDIA H200, 580.159.04, [N/A], 1975, 1980, 3201, 127.60" ;;
esac
"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """A PATH that holds only what the test puts there."""

    def put(name, text):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    return put


class TestSnapshot:
    def test_an_absent_tool_is_told_and_its_values_are_null(self, tool):
        found = machine.snapshot()
        assert found["unreadable"]["nvidia-smi"] == found["unreadable"]["rocm-smi"] == "not installed"
        assert found["devices"] == []

    def test_counters_add_up_over_the_devices(self, tool):
        tool("nvidia-smi", NVIDIA.format(counters='echo "1, 20, 300, 0, 0"; echo "2, 30, 400, 0, 0"'))
        found = machine.snapshot()
        assert [device["sm_clock_mhz"] for device in found["devices"]] == [1980, 1975]
        assert found["devices"][1]["temp_c"] is None
        assert {name: found["throttle_counters"][name] for name in machine.NVIDIA_COUNTERS} == {
            "sw_power_cap_us": 3,
            "sw_thermal_us": 50,
            "hw_thermal_us": 700,
            "hw_power_brake_us": 0,
            "sync_boost_us": 0,
        }

    def test_a_driver_without_counters_is_told(self, tool):
        tool("nvidia-smi", NVIDIA.format(counters='echo "Field is not a valid field to query."; exit 2'))
        found = machine.snapshot()
        assert "exited with 2" in found["unreadable"]["nvidia throttle counters"]
        assert len(found["devices"]) == 2

    def test_a_tool_that_answers_nonsense_is_told(self, tool):
        tool("rocm-smi", "#!/bin/sh\necho no devices\n")
        assert "no JSON answer" in machine.snapshot()["unreadable"]["rocm-smi"]

    def test_rocm_cards_are_kept_as_reported(self, tool):
        tool("rocm-smi", """#!/bin/sh\necho '{"card0": {"Card Series": "Radeon"}, "system": {"Driver version": "6.3"}}'\n""")
        [card] = machine.snapshot()["devices"]
        assert (card["name"], card["driver"], card["reported"]) == ("card0", "6.3", {"Card Series": "Radeon"})

    def test_the_identity_names_processors(self):
        assert machine.identity()["cpus"] == len(os.sched_getaffinity(0))


def state(**counters):
    return {"throttle_counters": counters or None}


class TestJudgeState:
    def test_an_advancing_thermal_counter_makes_a_speed_run_invalid(self):
        found = machine.judge_state(
            state(sw_thermal_us=5, sw_power_cap_us=1), state(sw_thermal_us=6, sw_power_cap_us=1), kind="speed"
        )
        assert (found["validity"], found["concerns"], found["delta"]["sw_thermal_us"]) == (
            "invalid",
            ["sw_thermal_us advanced by 1"],
            1,
        )

    def test_counters_that_stand_still_make_it_valid(self):
        assert machine.judge_state(state(hw_thermal_us=5), state(hw_thermal_us=5), kind="speed")["validity"] == "valid"

    def test_a_power_cap_is_a_concern_and_not_a_fault(self):
        found = machine.judge_state(
            state(sw_power_cap_us=1, sw_thermal_us=0), state(sw_power_cap_us=9, sw_thermal_us=0), kind="speed"
        )
        assert (found["validity"], found["concerns"]) == ("valid", ["sw_power_cap_us advanced by 8"])

    def test_a_counter_that_went_back_is_no_proof_of_a_cool_run(self):
        found = machine.judge_state(state(hw_thermal_us=5), state(hw_thermal_us=1), kind="speed")
        assert found["validity"] == "invalid"
        assert "reset" in found["concerns"][0]

    @pytest.mark.parametrize(
        ("before", "after"), [(None, state(hw_thermal_us=1)), (state(), state()), (state(sw_power_cap_us=1),) * 2]
    )
    def test_without_thermal_counters_on_both_ends_it_is_unmeasured(self, before, after):
        assert machine.judge_state(before, after, kind="speed")["validity"] == "unmeasured"

    def test_where_time_is_not_measured_it_does_not_apply(self):
        assert (
            machine.judge_state(state(hw_thermal_us=1), state(hw_thermal_us=9), kind="correctness")["validity"] == "not-applicable"
        )
