"""A pytest fixture that holds an array or a dump against a golden: `edge0_golden(name, value)`.

Everything heavy is imported when the fixture is used, since pytest loads the plugin in every run of an environment that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import numpy as np

    from edge0verify.golden.check import Checked
    from edge0verify.golden.types import Rules

STORE_INI = "edge0_golden_store"
ACCEPTED = pytest.StashKey[list]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("edge0verify", "goldens of edge0verify")
    group.addoption(
        "--edge0-golden-store", metavar="DIR", help=f"Folder of goldens; ini {STORE_INI}, default golden in the root folder."
    )
    group.addoption("--edge0-golden-accept", metavar="REASON", help="Make what the tests compute the goldens, for this reason.")
    parser.addini(STORE_INI, "Folder of goldens, from the root folder.", default="golden")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ACCEPTED] = []


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash.get(ACCEPTED, []):
        terminalreporter.write_line(f"golden accepted: {line}")


@pytest.fixture
def edge0_golden(request: pytest.FixtureRequest) -> GoldenCheck:
    """`edge0_golden(name, value, policy=None)`: fails the test, with the verdict as its text, unless the value passes."""
    config = request.config
    folder = config.getoption("--edge0-golden-store") or config.getini(STORE_INI)
    return GoldenCheck(config.rootpath / folder, config.getoption("--edge0-golden-accept"), config.stash[ACCEPTED])


class GoldenCheck:
    """What the fixture hands out."""

    def __init__(self, store: Path, accept: str | None, accepted: list[str]) -> None:
        self.store, self._accept, self._accepted = store, accept, accepted

    def __call__(
        self,
        name: str,
        value: np.ndarray | Mapping[str, np.ndarray] | str | Path,
        *,
        policy: str | Path | Mapping[str, Any] | None = None,
    ) -> Checked:
        """Hold a value against the golden `name`.

        value: an array (f16, f32, f64, i8, i32, i64, u64), arrays by name, or the path of a dump. policy: 'exact', 'conform', a
        TOML file or the plain values of one; default the golden's own, which is exact unless it was recorded otherwise. The test
        fails on FAIL, on INCONCLUSIVE, and where there is no such golden. Returns what was found when it passes.
        """
        from edge0verify.records.errors import InputError

        found, refused = None, None
        try:
            found = self._check(name, value, policy)
        except InputError as wrong:
            refused = str(wrong)
        if refused is not None:
            pytest.fail(f"golden {name}: {refused}", pytrace=False)
        if found.status != "PASS":
            pytest.fail(failure_text(found), pytrace=False)
        return found

    def _check(self, name: str, value: Any, policy: Any) -> Checked:
        import tempfile

        from edge0verify.golden.arrays import write_arrays
        from edge0verify.golden.check import Asked, check
        from edge0verify.golden.store import Store
        from edge0verify.records.errors import InputError

        store = Store(self.store)
        with tempfile.TemporaryDirectory(prefix="edge0verify-") as folder:
            dump = Path(value) if isinstance(value, (str, Path)) else Path(folder) / "value.h5"
            if not isinstance(value, (str, Path)):
                write_arrays(value, dump)
            rules = None if policy is None else _rules(policy)
            known = store.has(name)
            if not known and self._accept is None:
                raise InputError(f"expected it in {self.store}, found none; --edge0-golden-accept REASON makes this the golden")
            found = check(store, name, Asked(dump=dump, rules=rules)) if known else None
            if self._accept is None or (found is not None and found.status == "PASS"):
                return found
            self._make(store, name, dump, rules)
            return check(store, name, Asked(dump=dump, rules=rules))

    def _make(self, store: Any, name: str, dump: Path, rules: Rules | None) -> None:
        from edge0verify.dump.reader import open_dump
        from edge0verify.golden.making import describe
        from edge0verify.golden.types import Inputs, Rules

        with open_dump(dump) as opened:
            opened.verify()
            manifest = opened.manifest
            inputs = Inputs(model_sha256=manifest.model_sha256, variants=dict(manifest.variants))
            run = describe(opened, model=None, inputs=inputs, rules=rules or Rules(), threads=1)
        made = store.record(name, run, dump=dump)
        done = store.accept(name, made, reason=self._accept)
        self._accepted.append(f"{name} (run {done.recorded}): {done.reason}")


def failure_text(found: Checked) -> str:
    """The verdict as a person reads it: status and reasons first, then the table."""
    from edge0verify.report.tables import verdict_text

    lines = [f"golden {found.name}: {found.status}", *(f"  - {reason}" for reason in found.reasons[:8])]
    lines += [f"  note: {remark}" for remark in found.remarks]
    if found.verdict is not None and found.verdict.layers:
        lines += ["", verdict_text(found.verdict)]
    return "\n".join(lines)


def _rules(policy: Any) -> Rules:
    """Rules from what a test gives."""
    from edge0verify.compare.policy import read_policy
    from edge0verify.golden.types import CONFORM, MODES, Rules
    from edge0verify.records.errors import InputError

    if isinstance(policy, Mapping):
        read_policy(policy, source="policy of the test")
        return Rules(mode=CONFORM, values=dict(policy))
    if str(policy) in MODES:
        return Rules(mode=str(policy))
    try:
        return Rules(mode=CONFORM, text=Path(policy).read_text(encoding="utf-8"))
    except OSError as wrong:
        raise InputError(f"{policy}: expected a policy file, found: {wrong.strerror}") from None
