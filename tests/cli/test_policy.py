"""`compare --policy FILE`: exit codes, and the limit that a failure prints."""

from __future__ import annotations

import re

from edge0verify.cli.main import run
from tests.cli.doctored import change, verdict

STAGE = ("compare", "--stage", "D", "--a", "mmq", "--b", "w11", "--prompt", "prose", "--layer", "0")


def policy(folder, text):
    path = folder / "policy.toml"
    path.write_text(text)
    return path


def told(capsys, *words):
    capsys.readouterr()
    code = run(list(map(str, words)))
    out = capsys.readouterr()
    return code, re.sub(r"\s+", " ", out.out), out.err


def test_rules_for_every_tensor_pass(tmp_path, capsys):
    rules = policy(tmp_path, '[[rule]]\nstage = "D"\ntensor = "d-.*"\nmatched = 1.0\n')
    code, out, _ = told(capsys, *STAGE, "--policy", rules)
    assert code == 0 and "verdict: PASS" in out


def test_a_tensor_without_a_rule_ends_with_three(tmp_path, capsys):
    code, out, _ = told(capsys, *STAGE, "--policy", policy(tmp_path, '[[rule]]\ntensor = "d-xlq"\n'))
    assert code == 3 and "layer 0 d-xl: error, no rule of" in out


def test_a_rule_for_nothing_ends_with_three(tmp_path, capsys):
    code, out, _ = told(capsys, *STAGE, "--policy", policy(tmp_path, '[[rule]]\ntensor = "d-.*"\n[[rule]]\ntensor = "a-yl"\n'))
    assert code == 3 and "rule[2] of" in out and "matches no tensor that was compared" in out


def test_a_file_that_is_not_understood_ends_with_two(tmp_path, capsys):
    for text, message in (
        ("[[rule]]\nmatch = 1\n", "rule[1].match: expected one of"),
        ("[[rule]]\ntensor = '['\n", "rule[1].tensor: expected a regular expression"),
        ("[[rule]]\nmatched = 'all'\n", "rule[1].matched: expected a number"),
        ("[[rule\n", "expected TOML"),
    ):
        code, out, err = told(capsys, *STAGE, "--policy", policy(tmp_path, text))
        assert code == 2 and out == "" and "policy.toml" in err and message in err
    code, _, err = told(capsys, *STAGE, "--policy", tmp_path / "none.toml")
    assert code == 2 and "none.toml: expected a policy file" in err


def test_a_failing_dump_prints_the_limit_and_passes_with_it(plain, folder, capsys, tmp_path):
    def damage(file):
        file["layers/002/d-xl"][5, 40:44] += 1

    wrong = change(plain, folder / "four.h5", damage)
    code, found = verdict(capsys, plain, wrong, "--stage", "D")
    assert code == 1
    said = re.compile(r"layer 2 (\S+): .*?matched = (\S+) would have passed")
    limits = {tensor: float(share) for reason in found["reasons"] for tensor, share in said.findall(reason)}
    assert limits
    rules = "".join(f'[[rule]]\nlayer = 2\ntensor = "{re.escape(t)}"\nmatched = {share!r}\n' for t, share in limits.items())
    rules = policy(tmp_path, rules.replace("\\", "\\\\") + "[[rule]]\n")
    code, found = verdict(capsys, plain, wrong, "--stage", "D", "--policy", rules)
    assert not [reason for reason in found["reasons"] if "would have passed" in reason]
