"""Small accepted steps add up against the frozen anchor, and a step too far is refused."""

from dataclasses import replace

import pytest

from edge0verify.golden.check import Asked, check
from edge0verify.golden.record import Wanted, accept_candidate, record_again, record_new
from edge0verify.golden.store import Store
from edge0verify.golden.types import Rules
from edge0verify.model import encode, prompt
from edge0verify.records.errors import InputError
from edge0verify.variants.kernels import Kernels
from tests.golden.conftest import PLAN


class Nudged(Kernels):
    """Stage U with every value a little too large: each step lies far within what people call rounding, and they add up."""

    def __init__(self, steps: int) -> None:
        super().__init__(threads=2)
        self.factor = 1 + 1e-4 * steps

    def u(self, variant, weights, yl):
        out = super().u(variant, weights, yl)
        return replace(out, u=(out.u * self.factor).astype("f4"))


@pytest.fixture(params=["replay"])
def drifting(request, tmp_path, model):
    store = Store(tmp_path / "s")
    wanted = Wanted(name="g", model=model, prompt="prose", tokens=encode(prompt("prose"))[:4], variants=PLAN, level=request.param,
                    rules=Rules(l2=4e-4), threads=2)  # fmt: skip
    record_new(store, wanted)
    accept_candidate(store, "g", reason="the anchor")
    return store


def test_drift_adds_up_and_the_step_too_far_is_refused(drifting):
    moves = []
    for step in (1, 3, 5):
        run = record_again(drifting, "g", kernels=Nudged(step), threads=2)
        assert run.conforming is False
        with pytest.raises(InputError, match=r"breaks its contract.*--anyway"):
            accept_candidate(drifting, "g", reason="a small change")
        try:
            accept_candidate(drifting, "g", reason="a small change", anyway=True)
        except InputError as wrong:
            assert "--reanchor" in str(wrong) and "drift" in str(wrong)
            break
        found = check(drifting, "g", Asked(kernels=Nudged(step), threads=2))
        assert (found.status, found.drift.accepted) == ("PASS", len(moves) + 1)
        moves.append(found.drift.first_l2["u"])
        assert 0 < found.drift.equal_pct < 100
    else:
        pytest.fail("no step was too far")
    assert moves == pytest.approx([1e-4, 3e-4], rel=0.01)
    _, done = accept_candidate(drifting, "g", reason="the new scale is meant", anyway=True, reanchor=True)
    assert done.anchor
    found = check(drifting, "g", Asked(kernels=Nudged(step), threads=2))
    assert (found.status, found.drift) == ("PASS", None)


def test_a_run_too_far_from_the_anchor_fails_though_it_is_the_golden(drifting):
    golden = drifting.open("g")
    run = record_again(drifting, "g", kernels=Nudged(400), rules=golden.current.rules, threads=2)
    drifting.accept("g", run, reason="past the check of the command")
    found = check(drifting, "g", Asked(kernels=Nudged(400), threads=2))
    assert found.status == "FAIL"
    assert found.reasons[0].startswith("drift: u of the first layer stands 0.0")
    assert found.verdict.status == "FAIL"


def test_nothing_new_is_nothing_to_accept(drifting):
    with pytest.raises(InputError, match="record one first"):
        accept_candidate(drifting, "g", reason="again")


def test_the_movement_of_the_top_8_has_a_limit_of_its_own(drifting):
    rules = Rules(l2=None, top8=1e-6)
    run = record_again(drifting, "g", kernels=Nudged(1), rules=rules, threads=2)
    with pytest.raises(InputError, match=r"drift: top-8 log-probs stand .* the limit is 1e-06.*--reanchor"):
        accept_candidate(drifting, "g", reason="a small change", anyway=True)
    assert run.rules == rules


def test_a_sketch_shows_how_many_tiles_and_how_far_the_top_8_stand(kept, model, tmp_path):
    import shutil

    shutil.copytree(kept.folder, tmp_path / "s")
    store = Store(tmp_path / "s")
    record_again(store, "sketch", kernels=Nudged(1), threads=2)
    accept_candidate(store, "sketch", reason="a small change", anyway=True)
    found = check(store, "sketch", Asked(kernels=Nudged(1), threads=2))
    assert (found.status, found.drift.accepted, found.drift.first_l2.get("u")) == ("PASS", 1, None)
    assert found.drift.equal_pct < 100 and found.drift.top8_move > 0
