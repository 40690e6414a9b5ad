"""Small configurations, and how a test runs them."""

from __future__ import annotations

import json
from pathlib import Path

from edge0verify.nightly import run as nightly
from edge0verify.nightly.history import History
from edge0verify.records.errors import InputError

PAIR = '[[pairs]]\nprompts = ["list"]\nstages = ["D"]\nvariants = ["mmvq:w11"]\nlayers = [0]\n'


def golden(*names: str) -> str:
    return f"[[goldens]]\nnames = {json.dumps(names)}\n"


def go(config, commit="c" * 40, dirty=False, **options):
    return nightly.run(config, commit=commit, dirty=dirty, **options)


def folder(tmp_path: Path) -> Path:
    (tmp_path / "nightly").mkdir(exist_ok=True)
    return tmp_path / "nightly"


def results_of(path: Path) -> list:
    try:
        with History(path, create=False) as history:
            return [(r.run, r.cell, r.status) for r in history.results()]
    except InputError:  # created, and not a history yet
        return []
