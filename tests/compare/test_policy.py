"""Rules of a file over the derived limits; what each failure says would have passed."""

import math
import re

import numpy as np
import pytest

from edge0verify.compare import Policy, compare, hold_movement, judge, load_policy
from edge0verify.compare.policy import read_policy, stage_of
from edge0verify.records.errors import InputError
from edge0verify.records.evidence import Engagement, Side
from tests.compare.sides import at, blocks_pair, blocks_side, edited, pair, rows_side, token_keys
from tests.compare.test_judge import entry

RAN = Engagement(asked="w11", wanted=("D/w11/Q8_0",), launches={"D/w11/Q8_0": 1})


def rules(*given, **more):
    return read_policy({"rule": list(given) or [{}], **more}, source="p.toml")


def faulty(n=10):
    rng = np.random.default_rng(1)
    where = rng.integers(0, 97, n), rng.integers(0, 64, n)
    b = edited(rows_side("w11"), rows=lambda r: r.__setitem__(where, 12.5))
    return pair(rows_side("mmvq"), b, keys=token_keys())


def verdict(results, policy, **more):
    return judge(results, a="mmvq", b="w11", engaged_a=RAN, engaged_b=RAN, policy=policy, **more)


class TestRules:
    def test_the_first_that_matches_holds(self):
        policy = rules({"tensor": "d-xlq", "matched": 0.5}, {"tensor": "d-.*", "matched": 0.9})
        assert policy.limits("D", "d-xlq", 0).matched == 0.5
        assert policy.limits("D", "d-xl", 0).matched == 0.9
        assert policy.limits("U", "u", 0) is None

    def test_a_pattern_matches_the_whole_name(self):
        policy = rules({"tensor": "d-xl"}, {"layer": "1"}, {"stage": "A"})
        assert policy.limits("D", "d-xlq", 5) is None
        assert policy.limits("A2", "a-y", 11) is None
        assert policy.limits("A2", "a-y", 1) is not None

    def test_a_tensor_s_rule_holds_for_its_scales_and_sums(self):
        policy = rules({"tensor": r"d-xlq\.d", "matched": 0.1}, {"tensor": "d-xlq", "matched": 0.2})
        assert [policy.limits("D", name, 0).matched for name in ("d-xlq", "d-xlq.d", "d-xlq.s")] == [0.2, 0.1, 0.2]

    def test_layers_are_numbers_or_names(self):
        policy = rules({"layer": 3, "matched": 0.3}, {"layer": "mtp|[0-2]", "matched": 0.4})
        assert [getattr(policy.limits("D", "x", at), "matched", None) for at in (3, "mtp", 1, 4)] == [0.3, 0.4, 0.4, None]

    @pytest.mark.parametrize(
        "tensor, stage",
        [("d-xlq.d", "D"), ("d-hq", "D"), ("a-h.s", "A1"), ("a-gate", "A1"), ("a-yl", "A2"), ("u", "U"), ("u-ylq", "U"),
         ("route-ids", "route"), ("ffn-in", "route"), ("top8-ids", "head"), ("somebody-s", "")],
    )
    def test_stages_of_tensors(self, tensor, stage):
        assert stage_of(tensor) == stage

    def test_what_a_rule_leaves_out_is_derived(self):
        limits = rules({"matched": 0.9}).limits("D", "x", 0)
        assert (limits.loose_share, limits.route_gap, limits.bias_t) == (1e-3, 1.0, 6.0)


class TestUnmatched:
    def test_a_tensor_without_a_rule_is_an_error_and_no_pass(self):
        (found,) = compare(pair(rows_side("mmvq"), rows_side("w11")), policy=rules({"tensor": "u"}))
        assert found.status == "INCONCLUSIVE"
        assert found.reasons == ("layer 3 d-xl: error, no rule of p.toml matches this tensor",)

    def test_it_still_fails_where_it_is_wrong(self):
        (found,) = compare(faulty(), policy=rules({"tensor": "u"}))
        assert found.status == "FAIL" and len(found.reasons) == 2

    def test_a_rule_that_holds_for_nothing_is_no_pass(self):
        policy = rules({"tensor": "d-.*"}, {"tensor": "u", "matched": 1.0})
        found = verdict([entry()], policy)
        assert (found.status, found.exit_code) == ("INCONCLUSIVE", 3)
        assert found.reasons == ("rule[2] of p.toml matches no tensor that was compared",)

    def test_rules_that_all_hold_pass(self):
        assert verdict([entry(), entry(tensor="u")], rules({"tensor": "d-.*"}, {"tensor": "u"})).status == "PASS"


def limit_of(reasons, name):
    found = [float(m) for reason in reasons for m in re.findall(rf"{name} = (\S+) would have passed", reason)]
    assert found, reasons
    return found[0]


class TestLimits:
    """The limit that a failure names is the smallest that passes."""

    def test_matched(self):
        (found,) = compare(faulty())
        share = limit_of(found.reasons, "matched")
        assert compare(faulty(), policy=rules({"matched": share}))[0].status == "PASS"
        assert compare(faulty(), policy=rules({"matched": math.nextafter(share, 2)}))[0].status == "FAIL"

    def test_matched_never_excuses_what_is_no_number_or_was_not_written(self):
        from edge0verify.numerics.blocks import poison_f32

        for value in (np.nan, poison_f32(1)[0]):
            item = pair(rows_side("mmvq"), edited(rows_side("w11"), rows=at((3, 4), value)))
            (found,) = compare(item, policy=rules({"matched": 0.0}))
            assert found.status == "FAIL" and "no limit excuses it" in found.reasons[0]

    def test_permuted_share(self):
        def item():
            return pair(rows_side("mmvq"), edited(rows_side("mmvq"), rows=lambda r: r.__setitem__([3, 9], r[[9, 3]])))

        share = limit_of(compare(item())[0].reasons, "permuted_share")
        assert compare(item(), policy=rules({"permuted_share": share}))[0].status == "PASS"
        assert compare(item(), policy=rules({"permuted_share": math.nextafter(share, 0)}))[0].status == "FAIL"

    def test_loose_share(self):
        t, bound = np.zeros((1, 32)), np.full((1, 32), 1.2)
        t[0, 0] = 127.0
        from tests.compare.sides import blocks_of_rows

        side = blocks_of_rows(t.astype(np.float32), t, bound, known_rows=False)
        item = blocks_pair(side, edited(side, codes=at((0, 5), 1)))
        share = limit_of(compare(item)[0].reasons, "loose_share")
        assert compare(item, policy=rules({"loose_share": share}))[0].status == "PASS"
        assert compare(item, policy=rules({"loose_share": math.nextafter(share, 0)}))[0].status == "INCONCLUSIVE"

    def test_without_a_bound_a_share_of_equal_elements_decides_only_where_policy_says_so(self):
        rows = rows_side("mmvq").rows
        item = pair(Side(rows=rows), edited(Side(rows=rows), rows=at((0, slice(0, 8)), 1.0)), keys=token_keys())
        assert compare(item)[0].status == "INCONCLUSIVE"
        assert compare(item, policy=rules({}))[0].status == "INCONCLUSIVE"
        assert compare(item, policy=rules({"matched": 0.99}))[0].status == "PASS"
        (found,) = compare(item, policy=rules({"matched": 1.0}))
        assert found.status == "FAIL"
        assert compare(item, policy=rules({"matched": limit_of(found.reasons, "matched")}))[0].status == "PASS"

    def test_allow_foreign(self):
        foreign = Engagement(asked="theirs", launches=None)
        for allowed in (True, False):
            found = judge([entry()], a="x", b="y", engaged_a=RAN, engaged_b=foreign, policy=rules({}, allow_foreign=allowed))
            assert found.status == ("PASS" if allowed else "INCONCLUSIVE")


def moved(by, spread=0.02):
    return {"max_move": by, "spread": {"max_move": spread}}


class TestMovement:
    def test_beyond_the_spread_it_fails_with_the_limit_that_would_do(self):
        found = verdict([entry()], rules({}, top8_spread=1.0), top8=moved(0.03))
        assert found.status == "FAIL" and "1.5 times the 0.02 of the accepted variants" in found.reasons[0]
        limit = limit_of(found.reasons, "top8_spread")
        assert verdict([entry()], rules({}, top8_spread=limit), top8=moved(0.03)).status == "PASS"
        assert verdict([entry()], rules({}, top8_spread=math.nextafter(limit, 0)), top8=moved(0.03)).status == "FAIL"

    def test_without_a_limit_it_is_only_shown(self):
        found = verdict([entry()], Policy(), top8={"max_move": 99.0, "spread": {"max_move": 0.02}})
        assert found.status == "PASS" and found.top8["max_move"] == 99.0

    @pytest.mark.parametrize("top8", [None, {"max_move": 0.03}, {"max_move": None, "spread": {"max_move": 0.02}}])
    def test_a_limit_that_cannot_be_checked_is_no_pass(self, top8):
        assert verdict([entry()], rules({}, top8_spread=1.0), top8=top8).status == "INCONCLUSIVE"

    def test_measured_afterwards_it_decides_the_same(self):
        policy = rules({}, top8_spread=1.0)
        late = hold_movement(verdict([entry()], rules({})), moved(0.03), policy)
        assert late.status == "FAIL" and late.top8 == moved(0.03)
        assert hold_movement(verdict([entry()], rules({})), moved(0.01), policy).status == "PASS"

    def test_no_spread_at_all_allows_no_movement(self):
        still = {"max_move": 0.0, "spread": {"max_move": 0.0}}
        assert verdict([entry()], rules({}, top8_spread=1.0), top8=still).status == "PASS"
        assert verdict([entry()], rules({}, top8_spread=1.0), top8={**still, "max_move": 1e-6}).status == "FAIL"


class TestFile:
    def read(self, tmp_path, text):
        path = tmp_path / "p.toml"
        path.write_text(text)
        return load_policy(path)

    def test_a_whole_file(self, tmp_path):
        policy = self.read(
            tmp_path,
            'schema = "edge0verify.policy/1"\nallow_foreign = true\ntop8_spread = 2\nworst = 3\n'
            '[[rule]]\nstage = "D|U"\ntensor = "d-.*|u"\nlayer = "[0-5]"\nmatched = 0.99\nroute_flips = 2\nbias_z2 = 3\n[[rule]]\n',
        )
        assert (policy.allow_foreign, policy.top8_spread, policy.worst, len(policy.rules)) == (True, 2.0, 3, 2)
        assert policy.limits("D", "d-xl", 4).route_flips == 2
        assert policy.limits("A1", "a-h", 4).matched is None

    @pytest.mark.parametrize(
        "text, said",
        [
            ("x = 1\n[[rule]]", r"p\.toml: x: expected one of schema, allow_foreign, top8_spread, worst, rule, found this key"),
            ("[[rule]]\nmatch = 1", r"p\.toml: rule\[1\]\.match: expected one of stage, tensor, layer, matched, .* found this key"),
            ("[[rule]]\n[[rule]]\ntensor = '('", r"p\.toml: rule\[2\]\.tensor: expected a regular expression, found '\(': miss"),
            ("[[rule]]\ntensor = 1.5", r"rule\[1\]\.tensor: expected a regular expression, found 1\.5"),
            ("[[rule]]\nmatched = '1'", r"rule\[1\]\.matched: expected a number of at least 0, found '1'"),
            ("[[rule]]\nmatched = true", r"rule\[1\]\.matched: expected a number of at least 0, found True"),
            ("[[rule]]\nmatched = nan", r"rule\[1\]\.matched: expected a number of at least 0, found nan"),
            ("[[rule]]\nmatched = 1.01", r"rule\[1\]\.matched: expected a share from 0 to 1, found 1\.01"),
            ("[[rule]]\nloose_share = -1", r"rule\[1\]\.loose_share: expected a number of at least 0, found -1"),
            ("[[rule]]\nroute_flips = 1.5", r"rule\[1\]\.route_flips: expected a whole number of at least 0, found 1\.5"),
            ("[[rule]]\nbias_z2 = 0.5", r"rule\[1\]\.bias_z2: expected at least 1, found 0\.5"),
            ("allow_foreign = 1\n[[rule]]", r"allow_foreign: expected true or false, found 1"),
            ("top8_spread = 'x'\n[[rule]]", r"top8_spread: expected a number"),
            ("worst = -1\n[[rule]]", r"worst: expected a whole number of at least 0, found -1"),
            ("schema = 'other'\n[[rule]]", r"schema: expected 'edge0verify\.policy/1', found 'other'"),
            ("allow_foreign = true", r"p\.toml: rule: expected at least one \[\[rule\]\], found none"),
            ("rule = 3", r"p\.toml: rule: expected at least one \[\[rule\]\], found int"),
            ("[[rule]", r"p\.toml: expected TOML, found"),
        ],
    )
    def test_anything_else_is_refused_with_file_and_key(self, tmp_path, text, said):
        with pytest.raises(InputError, match=said):
            self.read(tmp_path, text)

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(InputError, match=r"none\.toml: expected a policy file, found: No such file"):
            load_policy(tmp_path / "none.toml")

    def test_bytes_that_are_no_text(self, tmp_path):
        (tmp_path / "p.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(InputError, match="expected TOML"):
            load_policy(tmp_path / "p.toml")

    def test_blocks_are_held_entry_by_entry(self):
        found = compare(blocks_pair(blocks_side("mmvq"), blocks_side("w11")), policy=rules({"tensor": "d-xlq"}))
        assert [r.status for r in found] == ["PASS"] * 3
