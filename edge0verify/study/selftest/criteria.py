"""The same faults and changes under the criteria that people use today, which see two arrays and nothing else.

Each criterion gets what stage D hands on, the float32 rows and the stored blocks decoded, of the variant under test and of mmvq,
and accepts the variant where both pass.  Sources: numpy.allclose and torch.testing.assert_close with their default tolerances (the
latter by the type that the author calls the result); the normalised mean square error of ggml's test-backend-ops for products; and
the thresholds on correlation, cosine and relative error that porting guides give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from edge0verify.numerics.blocks import Blocks
from edge0verify.study.selftest.judging import outcome
from edge0verify.study.selftest.trials import need_mutants, trials
from edge0verify.study.selftest.types import CAUGHT, FALSE_ALARM, MISNAMED, Trial, Tried

SUITE = "edge0verify"


@dataclass(frozen=True)
class Criterion:
    """A rule on two arrays of one shape, the reference second."""

    name: str
    accepts: Callable[[np.ndarray, np.ndarray], bool]


def _close(rtol: float, atol: float) -> Callable[[np.ndarray, np.ndarray], bool]:
    return lambda y, reference: bool((np.abs(y - reference) <= atol + rtol * np.abs(reference)).all())


def nmse(y: np.ndarray, reference: np.ndarray) -> float:
    """Mean square error over the reference's mean square."""
    return float(np.mean((y - reference) ** 2) / np.mean(reference**2))


def correlation(y: np.ndarray, reference: np.ndarray) -> float:
    """Pearson correlation of all elements."""
    a, b = y.ravel() - y.mean(), reference.ravel() - reference.mean()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def cosine(y: np.ndarray, reference: np.ndarray) -> float:
    """Cosine of the angle between the two, all elements as one vector."""
    a, b = y.ravel(), reference.ravel()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def relative(y: np.ndarray, reference: np.ndarray) -> float:
    """Norm of the difference over the reference's norm."""
    return float(np.linalg.norm(y - reference) / np.linalg.norm(reference))


CRITERIA: tuple[Criterion, ...] = (
    Criterion("np.allclose, defaults", _close(1e-5, 1e-8)),
    Criterion("torch assert_close, float32", _close(1.3e-6, 1e-5)),
    Criterion("torch assert_close, float16", _close(1e-3, 1e-5)),
    Criterion("torch assert_close, bfloat16", _close(1.6e-2, 1e-5)),
    Criterion("NMSE <= 5e-4", lambda y, r: nmse(y, r) <= 5e-4),
    Criterion("PCC >= 0.9999", lambda y, r: correlation(y, r) >= 0.9999),
    Criterion("cosine >= 0.999", lambda y, r: cosine(y, r) >= 0.999),
    Criterion("relative L2 <= 1e-3", lambda y, r: relative(y, r) <= 1e-3),
)


@dataclass(frozen=True, kw_only=True)
class Score:
    """One criterion over all faults and changes."""

    name: str
    caught: int
    faults: int
    false_alarms: int
    changes: int
    missed: tuple[str, ...]
    """Names of the faults it accepts."""
    alarms: tuple[str, ...]
    """Names of the changes it refuses."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {f.name: list(v) if isinstance(v := getattr(self, f.name), tuple) else v for f in fields(self)}


def chosen() -> list[Trial]:
    """Stage D: faults against an honest mmvq (or w11), and changes that change a bit."""
    found = []
    for trial in trials():
        if trial.stage != "D" or trial.source in ("unproven", "route") or trial.name.endswith("both sides"):
            continue
        if trial.source == "legitimate" and not trial.changes_bits:
            continue
        found.append(trial)
    return found


def scores(progress: Callable[[str, int, int], None] | None = None) -> list[Score]:
    """The suite first, then each criterion."""
    need_mutants()
    report = progress or (lambda what, done, total: None)
    names = [SUITE, *(c.name for c in CRITERIA)]
    missed: dict[str, list[str]] = {name: [] for name in names}
    alarms: dict[str, list[str]] = {name: [] for name in names}
    faults = changes = 0
    found = chosen()
    for at, trial in enumerate(found):
        report("stage D", at, len(found))
        tried = trial.make()
        label = f"{trial.name} ({trial.where})"
        refused = _refused(trial, tried)
        if trial.source == "legitimate":
            changes += 1
            for name in refused:
                alarms[name].append(label)
        else:
            faults += 1
            for name in set(names) - refused:
                missed[name].append(label)
    return [
        Score(
            name=name,
            caught=faults - len(missed[name]),
            faults=faults,
            false_alarms=len(alarms[name]),
            changes=changes,
            missed=tuple(missed[name]),
            alarms=tuple(alarms[name]),
        )
        for name in names
    ]


def _refused(trial: Trial, tried: Tried) -> set[str]:
    """Names of the criteria, the suite among them, that refuse side b."""
    refused = set()
    result = outcome(trial, tried).result
    if result == (FALSE_ALARM if trial.source == "legitimate" else CAUGHT) or (trial.source != "legitimate" and result == MISNAMED):
        refused.add(SUITE)
    pairs = list(_arrays(tried))
    for criterion in CRITERIA:
        with np.errstate(all="ignore"):
            if not all(criterion.accepts(y, reference) for y, reference in pairs):
                refused.add(criterion.name)
    return refused


def _arrays(tried: Tried) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """(side b, side a) float64 of the rows and of the stored blocks."""
    for item in tried.items:
        if item.tensor == "d-xl":
            yield item.b.rows.astype(np.float64), item.a.rows.astype(np.float64)
        if item.tensor == "d-xlq":
            yield _values(item.b.blocks), _values(item.a.blocks)


def _values(blocks: Blocks) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return blocks.values()
