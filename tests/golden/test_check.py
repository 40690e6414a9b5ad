"""A run on the committed inputs must give the golden's bits; what changes is named by layer, stage and cause."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge0verify.dump.reader import open_dump
from edge0verify.golden.check import Asked, check
from edge0verify.golden.making import RunAsked, make
from edge0verify.golden.store import Store
from edge0verify.golden.types import CONFORM, MODES, Rules
from edge0verify.model import DEFAULT_Q4_PROJECTION, encode, load_model, prompt
from edge0verify.records.errors import InputError
from edge0verify.records.verdict import Verdict
from edge0verify.variants.kernels import Kernels, kernel_source_sha256
from tests.golden.conftest import PLAN, TOKENS

BOTH = pytest.mark.parametrize("name", ["whole", "sketch"])


class OtherOrder(Kernels):
    """Stage D by the mmvq order where w11 was asked for, whose contract allows it; w11 is launched too and its rows thrown away."""

    def d(self, variant, weights, x):
        super().d(variant, weights, x)
        return super().d("mmvq", weights, x)


def dump_of(model, path: Path, *, text="prose", tokens=TOKENS, level="replay", kernels=None, **variants) -> Path:
    make(
        RunAsked(model=model, tokens=encode(prompt(text))[:tokens], variants={**PLAN, **variants}, kernels=kernels, threads=2),
        path,
        level,
    )
    return path


class TestTheSameBits:
    @BOTH
    @pytest.mark.parametrize("isa", [*Kernels().native.usable_isas()][:2])
    def test_pass_on_every_instruction_set(self, kept, name, isa):
        found = check(kept, name, Asked(kernels=Kernels(isa=isa, threads=1)))
        assert (found.status, found.reasons) == ("PASS", ())
        assert found.verdict.totals["equal"] == found.verdict.totals["n"] > 100_000
        assert found.verdict.engaged == {"a": True, "b": True}

    @BOTH
    def test_the_build_with_planted_faults_switched_off_passes_too(self, kept, name, mutants):
        assert check(kept, name, Asked(kernels=mutants(None), threads=2)).status == "PASS"

    def test_the_simulated_device_gives_them_too(self, kept):
        found = check(kept, "sketch", Asked(device="sim:0", threads=2))
        assert found.status == "PASS"
        assert found.verdict.environment["a"]["device"]["name"].startswith("sim")

    def test_a_device_that_is_not_here_proves_nothing(self, kept):
        found = check(kept, "sketch", Asked(device="hip:0"))
        assert found.status == "INCONCLUSIVE"
        assert "hip" in found.reasons[0]

    def test_the_answer_survives_json(self, kept):
        data = json.loads(json.dumps(check(kept, "whole", Asked(threads=2)).to_json(), allow_nan=False))
        assert Verdict.from_json(data["verdict"]).status == data["status"] == "PASS"


class TestAFaultInAKernel:
    """One bit of one constant, one row, one ulp: each shows, with its layer, stage and cause."""

    @BOTH
    @pytest.mark.parametrize(
        ("fault", "place", "cause"),
        [
            ("flip-hmask-bit", r"^layer 0 stage A a-(gate|h): .*column 5", "structured"),  # one bit of the packed weights
            ("skip-last-row-tile", r"^layer 0 stage D d-xl: ", "unwritten"),
            (
                "every-7th-row-ulp",
                r"^layer 0 stage [DA] .*every element keeps its contract, and this golden allows no change",
                None,
            ),
        ],
    )
    def test_fails(self, kept, name, fault, place, cause, mutants, tmp_path):
        found = check(kept, name, Asked(kernels=mutants(fault), keep=tmp_path / "kept", threads=2))
        assert (found.status, found.exit_code) == ("FAIL", 1)
        assert any(re.search(place, reason) for reason in found.reasons), found.reasons
        first = next(r for r in found.verdict.layers if r.status == "FAIL")
        assert first.layer == 0
        assert sum(first.causes.values()) == first.n
        assert cause is None or any(cause in r.causes for r in found.verdict.layers if r.layer == 0)
        with open_dump(found.kept) as dump:
            assert dump.level == ("full" if name == "whole" else "replay")

    def test_the_dump_of_a_pass_is_not_kept(self, kept, tmp_path):
        assert check(kept, "whole", Asked(keep=tmp_path / "none", threads=2)).kept is None
        assert not (tmp_path / "none").exists()

    @BOTH
    def test_another_variant_in_its_place_is_refused(self, kept, name, model, tmp_path):
        found = check(kept, name, Asked(dump=dump_of(model, tmp_path / "x.h5", level="full", D="mmvq")))
        assert found.status == "INCONCLUSIVE"
        assert "unlike runs: variants" in found.reasons[0]


class TestRefusal:
    @BOTH
    @pytest.mark.parametrize(
        ("changes", "what"),
        [({"text": "code"}, "prompt"), ({"tokens": TOKENS - 1}, "prompt"), ({"level": "outputs"}, "signature|level")],
    )
    def test_unlike_runs(self, kept, name, model, tmp_path, changes, what):
        found = check(kept, name, Asked(dump=dump_of(model, tmp_path / "x.h5", **{"level": "full", **changes})))
        assert found.status == "INCONCLUSIVE"
        assert any(f"unlike runs: {w}" in found.reasons[0] for w in what.split("|"))
        assert found.exit_code == 3

    @BOTH
    def test_another_model(self, kept, name, tmp_path):
        other = load_model(None, DEFAULT_Q4_PROJECTION)
        found = check(kept, name, Asked(model=other))
        assert (found.status, found.exit_code) == ("INCONCLUSIVE", 3)
        assert "unlike runs: model" in found.reasons[0]
        dump = dump_of(other, tmp_path / "q4.h5", level="full", D="mmvq", U="mmvq")
        assert "unlike runs: model" in check(kept, name, Asked(dump=dump)).reasons[0]

    def test_a_broken_dump_is_an_input_error(self, kept, model, tmp_path):
        path = dump_of(model, tmp_path / "x.h5", level="full")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(InputError):
            check(kept, "whole", Asked(dump=path))

    def test_no_such_golden(self, kept):
        with pytest.raises(InputError, match=r"golden whol: .*did you mean whole"):
            check(kept, "whol", Asked())

    def test_a_recorded_run_is_no_golden_before_it_is_accepted(self, store, kept):
        golden = kept.open("sketch")
        with kept.dump(golden, golden.current) as dump:
            store.record("new", replace(golden.current, n=0), dump=dump)
        found = check(store, "new", Asked())
        assert found.status == "INCONCLUSIVE"
        assert "not yet accepted" in found.reasons[0]

    def test_other_kernel_sources_make_it_stale_and_the_bits_decide(self, store, kept):
        golden = kept.open("sketch")
        with kept.dump(golden, golden.current) as path:
            old = path.with_name("old.h5")
            _with_manifest(path, old, kernel_source_sha256="1" * 64)
            manifest = replace(golden.current.manifest, kernel_source_sha256="1" * 64)
            made = store.record(
                "old", replace(golden.current, manifest=manifest), dump=old, tokens=kept.tokens(golden, golden.current)
            )
        store.accept("old", made, reason="test")
        found = check(store, "old", Asked(threads=2))
        assert (found.status, found.stale) == ("PASS", True)
        assert "stale: the kernels' source changed" in found.remarks[0]
        store.confirm("old", source=kernel_source_sha256(), reason="a comment was reworded")
        confirmed = check(store, "old", Asked(threads=2))
        assert (confirmed.status, confirmed.stale, confirmed.remarks) == ("PASS", False, ())
        with pytest.raises(InputError, match="expected a reason"):
            store.confirm("old", source="2" * 64, reason=" ")


class TestPolicy:
    @BOTH
    def test_another_order_of_the_same_sum_fails_exact_and_passes_conform(self, kept, name):
        exact, conform = (
            check(kept, name, Asked(kernels=OtherOrder(threads=2), rules=Rules(mode=mode), threads=2)) for mode in MODES
        )
        assert (exact.status, conform.status) == ("FAIL", "PASS"), conform.reasons
        assert re.search(r"layer 0 stage D d-xl.*rounding.*allows no change", " ".join(exact.reasons))
        assert conform.verdict.totals["causes"]["rounding"] > 0
        assert "unexplained" not in conform.verdict.totals["causes"]

    def test_conform_still_fails_what_breaks_a_contract(self, kept, mutants):
        found = check(kept, "sketch", Asked(kernels=mutants("flip-hmask-bit"), rules=Rules(mode=CONFORM), threads=2))
        assert found.status == "FAIL"

    def test_a_rule_that_is_not_understood_is_refused_when_it_is_recorded(self):
        with pytest.raises(InputError, match="matchd"):
            Rules(mode=CONFORM, text="[[rule]]\nmatchd = 1.0\n")
        with pytest.raises(InputError, match="expected exact or conform"):
            Rules(mode="loose")


def _with_manifest(source: Path, target: Path, **changes) -> None:
    """A copy of a dump whose manifest says something else."""
    import shutil

    import h5py

    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file:
        data = json.loads(file.attrs["manifest"])
        file.attrs["manifest"] = np.bytes_(json.dumps({**data, **changes}, sort_keys=True))


def test_every_golden_of_an_empty_store_is_none(tmp_path):
    assert Store(tmp_path / "nothing").names() == []
