"""Records, verdicts and repositories for the tests of the gate."""

import json
import subprocess
from pathlib import Path

from edge0verify.gate.record import GateRecord

ATLAS = Path(__file__).parents[1] / "data" / "atlas_benchmarks"
SHA = "0123456789abcdef0123456789abcdef01234567"


def record(**changes):
    values = {
        "leg": "decode",
        "kind": "correctness",
        "status": "PASS",
        "reasons": (),
        "recorded_at": 1_790_000_000.0,
        "commit": SHA,
        "dirty": (),
        "validity": "not-applicable",
    }
    return GateRecord(**{**values, **changes})


def verdict(**changes):
    values = {
        "schema": "edge0verify.verdict/1",
        "status": "PASS",
        "reasons": [],
        "stage": "D",
        "a": "mmvq",
        "b": "w11",
        "engaged": {"a": True, "b": True},
        "layers": [{"layer": 0, "tensor": "d-xlq", "status": "PASS"}],
        "environment": {},
    }
    return {**values, **changes}


def write(path, document):
    path.write_text(json.dumps(document))
    return path


class Repository:
    """A git repository in a folder, with a clock of its own."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments):
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-C", str(self.folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, **files):
        """Write files (double underscores are folders, a trailing suffix is '.x') and commit; returns the hash."""
        for name, text in files.items():
            path = self.folder / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")
