"""A/B benchmarks: what is measured, what is refused, and what is named for what it is."""

import inspect
import json
import os
import random

import pytest

from edge0verify.gate import ab_config
from edge0verify.gate.ab import order_of, run_ab
from edge0verify.gate.ab_config import load_arm, load_pair
from edge0verify.gate.ab_judge import paired_ratio
from edge0verify.records.errors import InputError

ENGINE = """#!/bin/sh
# version {version}
echo "prompt 128 tokens, first token after $((TTFT + 0)) ms"
echo "prompt 512 tokens, first token after $((TTFT * 3)) ms"
echo "$SPEED tok/s"
echo "launches D/mmvq 4"
echo "launches D/w11 $NEW"
echo "reply: ${{REPLY:-the answer}}"
echo "generated 32 tokens"
{extra}
"""

ARM = """
name = "{name}"
command = ["./{program}"]
differs_by = "{differs_by}"
timeout_s = {timeout_s}
engaged = {engaged}
{top}
[env]
TTFT = "{ttft}"
SPEED = "{speed}"
NEW = "{new}"
{env}
[patterns]
ttft = 'prompt (?P<tokens>\\d+) tokens, first token after (?P<ms>[\\d.]+) ms'
decode = '(?P<tok_s>[\\d.]+) tok/s'
launch = 'launches (?P<kernel>\\S+) (?P<count>\\d+)'
output = 'reply: (?P<text>.*)'
[counters]
generated = 'generated (\\d+) tokens'
[faults]
gpu = 'illegal memory access|page fault'
{tail}
"""


def arm(folder, name, *, version=None, extra="", **changes):
    """An engine in a folder and the TOML that runs it; returns the TOML's path."""
    program = folder / f"engine-{version or name}"
    program.write_text(ENGINE.format(version=version or name, extra=extra))
    program.chmod(0o755)
    values = {"differs_by": "build", "timeout_s": 20, "engaged": '["D/mmvq"]', "ttft": 100, "speed": 20, "new": 0}
    values |= {"top": "", "env": "", "tail": ""}
    path = folder / f"{name}.toml"
    path.write_text(ARM.format(name=name, program=program.name, **{**values, **changes}))
    return path


def ab(a, b, *, rounds=3, warm_up=0):
    return run_ab(*load_pair(a, b), rounds=rounds, warm_up=warm_up)


NEW = {"engaged": '["D/w11"]', "new": 4, "ttft": 90, "speed": 22}


class TestMeasured:
    def test_ratios_come_per_prompt_length_and_for_decode(self, tmp_path):
        found = ab(arm(tmp_path, "old"), arm(tmp_path, "new", **NEW))
        assert (found.status, found.judged.reasons) == ("PASS", ())
        ratios = {(ratio.what.split(",")[0], ratio.tokens): ratio for ratio in found.judged.ratios}
        assert ratios["time to first token", 128].ratio == pytest.approx(0.9)
        assert ratios["time to first token", 512].ratio == pytest.approx(0.9)
        assert ratios["decode", None].ratio == pytest.approx(1.1)
        assert ratios["decode", None].says == ratios["time to first token", 128].says == "B is better"
        assert ratios["wall time", None].rounds == 3

    def test_rounds_rotate(self, tmp_path):
        assert order_of(4) == (("a", "b"), ("b", "a"), ("a", "b"), ("b", "a"))
        found = ab(arm(tmp_path, "old"), arm(tmp_path, "new", **NEW), rounds=2, warm_up=1)
        assert [run.arm for run in found.runs] == ["a", "b", "a", "b", "b", "a"]
        assert "".join(found.order) == "abba"

    def test_variables_that_are_not_named_are_unset(self, tmp_path, monkeypatch):
        monkeypatch.setenv("REPLY", "from the caller")
        monkeypatch.setenv("STRATA_LATENT_MMQ", "1")
        leaks = 'env | grep STRATA && echo "page fault" || true'
        found = ab(arm(tmp_path, "old", extra=leaks), arm(tmp_path, "new", extra=leaks, top='inherit = ["REPLY"]', **NEW))
        assert found.judged.reasons == ()
        named = ab(arm(tmp_path, "old", extra=leaks), arm(tmp_path, "new", extra=leaks, env='STRATA_LATENT_MMQ = "0"', **NEW))
        assert named.judged.reasons == ("b (new): 3 faults 'gpu' in the log",)
        assert found.judged.output["identical"] == 0  # b alone inherits REPLY
        kept = found.to_json()["arms"]["b"]
        assert (kept["inherited"], "REPLY" in kept["environment"], kept["environment"]["TTFT"]) == (["REPLY"], False, "90")

    def test_one_run_per_prompt_where_the_arm_names_prompts(self, tmp_path):
        top = 'binaries = ["engine-{0}"]\n'
        tail = '[[prompts]]\ntokens = 7\nvalue = "short"\n[[prompts]]\ntokens = 9\nvalue = "long"\n'
        paths = [
            arm(tmp_path, "old", top=top.format("old"), tail=tail),
            arm(tmp_path, "new", top=top.format("new"), tail=tail, **NEW),
        ]
        for path in paths:
            path.write_text(path.read_text().replace('"]\ndiffers', '", "{prompt}"]\ndiffers').replace("(?P<tokens>\\d+)", "\\d+"))
        found = ab(*paths, rounds=2)
        assert sorted({ratio.tokens for ratio in found.judged.ratios}) == [7, 9]
        assert len(found.runs) == 8

    def test_the_result_is_json_with_hashes_and_engagement(self, tmp_path):
        data = json.loads(json.dumps(ab(arm(tmp_path, "old"), arm(tmp_path, "new", **NEW), rounds=2).to_json()))
        assert data["schema"] == "edge0verify.ab/1"
        assert data["engaged"] == {"a": True, "b": True}
        assert data["launches"]["b"] == {"D/mmvq": 8, "D/w11": 8}
        [hashes] = data["arms"]["a"]["binaries"].values()
        assert hashes["before"] == hashes["after"]
        assert len(data["statistics"]["ratios_b_over_a"]) == 4


class TestNothingProven:
    def test_one_binary_said_to_be_two_builds(self, tmp_path):
        found = ab(arm(tmp_path, "old", version="x"), arm(tmp_path, "new", version="x", **NEW))
        assert found.status == "INCONCLUSIVE"
        assert "same binary" in found.judged.reasons[0]

    def test_the_same_binary_outranks_a_fault(self, tmp_path):
        fault = 'echo "illegal memory access"'
        found = ab(arm(tmp_path, "old", version="x", extra=fault), arm(tmp_path, "new", version="x", extra=fault, **NEW))
        assert found.status == "INCONCLUSIVE"

    def test_one_binary_with_other_settings_is_a_comparison_when_it_is_said_to_be(self, tmp_path):
        found = ab(
            arm(tmp_path, "old", version="x", differs_by="settings"),
            arm(tmp_path, "new", version="x", differs_by="settings", **NEW),
        )
        assert found.status == "PASS"

    def test_one_binary_with_one_setting_is_none(self, tmp_path):
        found = ab(
            arm(tmp_path, "old", version="x", differs_by="settings"), arm(tmp_path, "new", version="x", differs_by="settings")
        )
        assert found.status == "INCONCLUSIVE"
        assert "the arms are one" in found.judged.reasons[0]

    def test_a_kernel_that_never_ran_is_named_with_its_harmless_look(self, tmp_path):
        found = ab(arm(tmp_path, "old"), arm(tmp_path, "new", engaged='["D/w11"]', ttft=101, speed=20))
        assert found.status == "INCONCLUSIVE"
        [reason] = found.judged.reasons
        for fact in (
            "not engaged: launches of D/w11 are 0",
            "byte-identical in 3 of 3",
            "equal time",
            "old kernel compared with itself",
        ):
            assert fact in reason
        assert found.judged.engaged == {"a": True, "b": False}

    def test_a_kernel_that_never_ran_and_another_output_is_not_called_the_old_kernel(self, tmp_path):
        found = ab(arm(tmp_path, "old"), arm(tmp_path, "new", engaged='["D/w11"]', env='REPLY = "other"'))
        assert "itself" not in found.judged.reasons[0]
        assert "identical in 0 of 3" in found.judged.reasons[0]

    def test_the_new_kernel_in_both_arms(self, tmp_path):
        found = ab(arm(tmp_path, "old", new=4), arm(tmp_path, "new", **NEW))
        assert found.status == "INCONCLUSIVE"
        assert "launched D/w11 too" in found.judged.reasons[0]

    def test_an_arm_that_declares_no_kernel(self, tmp_path):
        found = ab(arm(tmp_path, "old", engaged="[]"), arm(tmp_path, "new", **NEW))
        assert found.status == "INCONCLUSIVE"
        assert "engagement is unknown" in found.judged.reasons[0]

    def test_one_round_is_an_observation(self, tmp_path):
        found = ab(arm(tmp_path, "old"), arm(tmp_path, "new", **NEW), rounds=1)
        assert found.status == "INCONCLUSIVE"
        assert "an observation, not an A/B" in found.judged.reasons[0]
        assert {ratio.says for ratio in found.judged.ratios} == {"one round: no interval"}

    def test_a_pattern_that_finds_nothing(self, tmp_path):
        found = ab(arm(tmp_path, "old"), arm(tmp_path, "new", **{**NEW, "speed": "nan"}))
        assert found.status == "INCONCLUSIVE"
        assert "patterns.decode found nothing" in found.judged.reasons[0]

    def test_a_counter_that_stands_still(self, tmp_path):
        tail = "idle = 'steps (\\d+)'"
        path = arm(tmp_path, "new", extra='echo "steps 0"', **NEW)
        path.write_text(path.read_text().replace("[faults]", f"{tail}\n[faults]"))
        found = ab(arm(tmp_path, "old"), path)
        assert found.status == "INCONCLUSIVE"
        assert "counter 'idle' is 0" in found.judged.reasons[0]

    def test_a_binary_that_is_rebuilt_meanwhile(self, tmp_path):
        rebuild = f'echo "# touched" >> {tmp_path}/engine-new'
        found = ab(arm(tmp_path, "old", extra=rebuild), arm(tmp_path, "new", **NEW), rounds=2)
        assert found.status == "INCONCLUSIVE"
        assert "engine-new changed while the benchmark ran" in found.judged.reasons[0]

    def test_an_answer_file_that_a_run_did_not_write(self, tmp_path):
        (tmp_path / "out.bin").write_bytes(b"of some earlier run")
        top = 'output_files = ["out.bin"]'
        found = ab(arm(tmp_path, "old", top=top, extra="echo a > out.bin"), arm(tmp_path, "new", top=top, **NEW))
        assert found.status == "INCONCLUSIVE"
        assert "out.bin (not written by this run)" in found.judged.reasons[0]


class TestFailed:
    def test_faults_in_the_log_are_counted_per_arm(self, tmp_path):
        found = ab(
            arm(tmp_path, "old"),
            arm(tmp_path, "new", extra='echo "GPU: page fault" >&2; echo "page fault"', **NEW),
            rounds=2,
            warm_up=1,
        )
        assert found.status == "FAIL"
        assert found.judged.reasons == ("b (new): 6 faults 'gpu' in the log",)

    def test_a_crash_is_a_failure_of_its_arm(self, tmp_path):
        found = ab(arm(tmp_path, "old", extra="kill -SEGV $$"), arm(tmp_path, "new", **NEW), rounds=2)
        assert found.status == "FAIL"
        assert found.judged.reasons[0] == "a (old): 2 of 2 runs: it was ended by signal 11"

    def test_a_run_past_its_limit_is_ended(self, tmp_path):
        found = ab(arm(tmp_path, "old"), arm(tmp_path, "new", extra="exec sleep 60", timeout_s=0.3, **{**NEW}), rounds=1)
        assert found.status == "FAIL"
        assert "ran past its time limit" in found.judged.reasons[0]

    def test_what_outlives_a_run_is_ended_and_noted(self, tmp_path):
        path = arm(tmp_path, "new", extra="/bin/sleep 61 & /bin/sleep 0.1", **NEW)
        found = ab(arm(tmp_path, "old"), path, rounds=2)
        assert found.status == "PASS"
        assert "b: processes outlived the command and were ended: sleep" in found.judged.notes


class TestInterval:
    def test_it_covers_the_truth_as_often_as_it_says_with_four_rounds(self):
        chance, covered = random.Random(7), 0
        for _ in range(2000):
            a = [chance.lognormvariate(0, 0.1) for _ in range(4)]
            b = [0.8 * chance.lognormvariate(0, 0.1) for _ in range(4)]
            _, low, high = paired_ratio(a, b, confidence=0.95)
            covered += low <= 0.8 <= high
        assert 0.935 <= covered / 2000 <= 0.965

    def test_a_drift_that_both_arms_share_cancels(self):
        drift = [1.0, 1.5, 2.0, 2.5]
        ratio, low, high = paired_ratio(drift, [1.1 * value for value in drift], confidence=0.95)
        assert (ratio, low, high) == (pytest.approx(1.1),) * 3

    def test_one_pair_has_no_interval(self):
        assert paired_ratio([2.0], [1.0], confidence=0.95) == (0.5, None, None)


class TestArmFile:
    def test_the_example_in_the_documentation_is_read(self, tmp_path):
        text = inspect.cleandoc(inspect.getdoc(ab_config).split("\n\n", 1)[1])
        (tmp_path / "build").mkdir()
        (tmp_path / "build/engine").write_text("#!/bin/sh\n")
        (tmp_path / "build/engine").chmod(0o755)
        (tmp_path / "a.toml").write_text(text)
        found = load_arm(tmp_path / "a.toml")
        assert (found.name, found.prompts[0].tokens, found.engaged) == ("w11", 512, ("A1/w11/*",))
        assert found.env == {"PATH": os.environ["PATH"], "STRATA_LATENT_FUSED": "1"}

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("engaged =", "engagd =", "unknown 'engagd'"),
            ('"build"', '"luck"', "differs_by: expected"),
            ("timeout_s = 20", "timeout_s = 0", "timeout_s: expected"),
            ('["./engine-x"]', '["./none"]', "expected a program './none'"),
            ('["./engine-x"]', '["engine-x"]', "on the arm's own PATH"),
            ('["./engine-x"]', "[]", "command: expected a list of texts"),
            ('["./engine-x"]', '["./engine-x", "{prompt}"]', "together, found one without the other"),
            ('TTFT = "100"', "TTFT = 100", "env.TTFT: expected a text"),
            ("(?P<tok_s>", "(?P<speed>", "patterns.decode: expected a group"),
            ("(?P<tokens>\\d+)", "\\d+", "patterns.ttft: expected a group"),
            ("generated (\\d+)", "generated \\d+", "counters.generated: expected one group"),
            ("page fault'", "page (fault'", "faults.gpu: expected a regular expression"),
            ("launch =", "launched =", "unknown 'launched'"),
            ("[env]", "[env", "expected TOML"),
        ],
    )
    def test_what_is_not_understood_is_refused(self, tmp_path, old, new, said):
        path = arm(tmp_path, "x")
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(InputError) as caught:
            load_arm(path)
        assert said in str(caught.value)

    def test_arms_that_claim_different_things_are_refused(self, tmp_path):
        with pytest.raises(InputError, match="differs_by: expected 'build' as in"):
            load_pair(arm(tmp_path, "a"), arm(tmp_path, "b", differs_by="settings"))
