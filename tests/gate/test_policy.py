"""The rules of a gate are read strictly: what is not understood is refused."""

from pathlib import Path

import pytest

from edge0verify.gate.policy import load, matches, parse
from edge0verify.records.errors import InputError

SCHEMA = "edge0verify.gate-policy/1"


class TestPatterns:
    @pytest.mark.parametrize(
        ("pattern", "path", "fits"),
        [
            ("kernels/", "kernels/cpu/d.cpp", True),
            ("kernels/", "kernels2/d.cpp", False),
            ("kernels/", "other/kernels/d.cpp", False),
            ("*.md", "a.md", True),
            ("*.md", "docs/a.md", False),
            ("**/*.md", "docs/deep/a.md", True),
            ("**/*.md", "a.md", True),
            ("a?c", "abc", True),
            ("a?c", "a/c", False),
            ("a.c", "abc", False),
            ("**", "any/thing", True),
            ("src/**/x", "src/x", True),
        ],
    )
    def test_a_pattern_fits_whole_paths(self, pattern, path, fits):
        assert matches(pattern, path) is fits


class TestRules:
    def test_an_exclusion_carries_its_reason(self):
        rules = parse({"schema": SCHEMA, "invalidating": ["**"], "exclude": [{"paths": ["**/*.md"], "reason": "text"}]}, where="t")
        assert rules.excused("docs/a.md") == "text"
        assert not rules.invalidates("docs/a.md")
        assert rules.invalidates("docs/a.py")

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"exclude": [{"paths": ["x"]}]}, "reason: expected why"),
            ({"exclude": [{"paths": ["x"], "reason": " "}]}, "reason: expected why"),
            ({"exclude": [{"paths": [], "reason": "r"}]}, "paths: expected a list"),
            ({"invalidating": []}, "invalidating: expected a list"),
            ({"invalidate": ["x"]}, "unknown 'invalidate'"),
            ({"schema": "2"}, "schema: expected"),
            ({"legs": {"d": {"required": ["x"]}}}, "unknown 'required'"),
            ({"legs": {"D!": {}}}, "leg's name"),
            ({"legs": {"d": {"allow_unmeasured_state": "yes"}}}, "expected bool"),
        ],
    )
    def test_what_is_not_understood_is_refused(self, change, said):
        with pytest.raises(InputError, match=said):
            parse({"schema": SCHEMA, "invalidating": ["**"], **change}, where="t")

    def test_a_file_that_is_no_toml_is_named(self, tmp_path):
        (tmp_path / "p.toml").write_text("a = [")
        with pytest.raises(InputError, match=r"p\.toml: expected TOML"):
            load(tmp_path / "p.toml")

    def test_this_project_s_own_rules_are_read_and_guard_the_kernels(self):
        rules = load(Path(__file__).parents[2] / "gate.toml")
        assert rules.invalidates("kernels/variants/d.cpp")
        assert rules.invalidates("edge0verify/compare/judge.py")
        assert not rules.invalidates("kernels/README.md")
