"""The files for cron, systemd and GitHub Actions say what the program understands."""

import configparser
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from edge0verify.nightly.config import load

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools/nightly"
COMMAND = "edge0verify nightly tools/nightly/nightly.toml"


def test_the_configuration_is_understood_and_has_a_matrix():
    config = load(TOOLS / "nightly.toml")
    kinds = [c.name.split("/")[0] for c in config.cells]
    assert kinds.count("pair") == 36
    assert kinds.count("golden") >= 12
    assert kinds.count("stable") == 2
    assert (config.out, config.store) == (ROOT / "nightly", ROOT / "golden")
    assert (TOOLS / config.base.command[0]).resolve() == TOOLS / "base.sh"
    assert os.access(TOOLS / "base.sh", os.X_OK)


def test_all_of_them_run_the_same_command():
    workflow = yaml.safe_load((TOOLS / "github-actions.yml").read_text())
    runs = [step["run"] for step in workflow["jobs"]["nightly"]["steps"] if "run" in step]
    assert any(COMMAND in line for line in runs)
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str
    unit.read(TOOLS / "edge0verify-nightly.service")
    assert unit["Service"]["ExecStart"].endswith(COMMAND)
    timer = configparser.ConfigParser()
    timer.read(TOOLS / "edge0verify-nightly.timer")
    assert re.fullmatch(r"\*-\*-\* \d\d:\d\d:00", timer["Timer"]["OnCalendar"])
    [line] = [line for line in (TOOLS / "crontab").read_text().splitlines() if line[:1].isdigit()]
    assert re.match(r"\d+ \d+ \* \* \* cd ", line) and COMMAND in line
    assert workflow[True]["schedule"][0]["cron"].split()[:2] == line.split()[:2]


def test_base_sh_runs_the_cell_in_the_commit_that_was_named(tmp_path):
    """A small repository whose two commits answer differently stands in for the project: no minute of building."""
    repository = tmp_path / "repository"
    child = repository / "edge0verify/nightly/child.py"
    (repository / "tools/nightly").mkdir(parents=True)
    child.parent.mkdir(parents=True)
    (repository / "tools/nightly/base.sh").write_bytes((TOOLS / "base.sh").read_bytes())
    (repository / "Makefile").write_text(f"install:\n\t@mkdir -p .venv/bin && ln -sf {sys.executable} .venv/bin/python\n")
    for name in ("edge0verify", "edge0verify/nightly"):
        (repository / name / "__init__.py").write_text("")

    def git(*words):
        who = ("-c", "user.name=t", "-c", "user.email=t@t")
        done = subprocess.run(["git", *who, *words], cwd=repository, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    commits = []
    for answer in ("FAIL", "PASS"):
        child.write_text(
            f"import json, sys\njson.dump({{'status': {answer!r}, 'cell': json.load(open(sys.argv[1]))}}, open(sys.argv[2], 'w'))\n"
        )
        git("add", ".")
        git("commit", "-q", "-m", answer)
        commits.append(git("rev-parse", "HEAD"))
    (tmp_path / "cell.json").write_text('{"kind": "x"}')
    environment = {**os.environ, "EDGE0VERIFY_BASE": str(tmp_path / "base"), "PYTHONPATH": str(ROOT)}
    for commit, answer in [(commits[0], "FAIL"), (commits[1], "PASS"), (commits[0], "FAIL")]:
        argv = ["bash", str(repository / "tools/nightly/base.sh"), commit, str(tmp_path / "cell.json"), str(tmp_path / "out.json")]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / "out.json").read_text()) == {"status": answer, "cell": {"kind": "x"}}
