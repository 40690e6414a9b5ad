"""Dump against dump at the command line: runs that conform, and faults that are found."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cli.doctored import change, dump, manifest, reasons, swap, verdict


class TestTwoRuns:
    def test_the_same_variants_give_the_same_bits(self, plain, folder, capsys):
        code, found = verdict(capsys, plain, dump(folder / "again.h5"))
        assert code == 0 and found["totals"]["equal"] == found["totals"]["n"] > 0
        assert found["engaged"] == {"a": True, "b": True} and found["reasons"] == []

    def test_other_variants_conform_and_the_cascade_is_named(self, plain, other, capsys):
        code, found = verdict(capsys, plain, other)
        assert code == 0, reasons(found)
        assert found["totals"]["causes"]["cascade"] > 0 and "differences begin in D of layer 0" in reasons(found)
        assert found["totals"]["cascade_began"][0] == {"layer": 0, "stage": "D", "tensor": "d-xl", "rows": 24}
        assert all(layer["conforming"]["a"] == layer["n"] == layer["conforming"]["b"] for layer in found["layers"])
        assert found["a"] == "D=mmvq,A=mmvq,U=mmvq" and found["b"] == "D=w11,A=mmq,U=mmvq"
        assert found["top8"]["positions"] == 1
        for layer in found["layers"]:
            assert sum(layer["causes"].values()) == layer["n"]

    def test_layer_0_is_the_first_and_inherits_nothing(self, plain, other, capsys):
        _, found = verdict(capsys, plain, other, "--stage", "D", "--layer", "0")
        assert found["a"] == "mmvq" and found["b"] == "w11" and found["signature"]["layers"] == [0]
        assert {cause for layer in found["layers"] for cause in layer["causes"]} == {"equal", "rounding"}

    def test_a_stage_after_the_difference_inherits_it(self, plain, other, capsys):
        code, found = verdict(capsys, plain, other, "--stage", "U")
        assert code == 0 and found["totals"]["causes"]["cascade"] > 0 and "differences begin in D of layer 0" in reasons(found)

    def test_generated_tokens_with_the_drafter(self, folder, capsys):
        made = [dump(folder / f"made{i}.h5", "--generate", "10", *more) for i, more in enumerate(((), ("--set", "U=w11")))]
        code, found = verdict(capsys, *made)
        assert code == 0, reasons(found)
        assert "mtp" in found["signature"]["layers"] and found["signature"]["rows"] >= 33

    def test_rows_and_layers_can_be_picked(self, plain, other, capsys):
        _, found = verdict(capsys, plain, other, "--rows", "3:7", "--layer", "1,mtp", "--stage", "D")
        assert {layer["n"] for layer in found["layers"] if layer["tensor"] == "d-xl"} == {4 * 256}
        assert found["signature"]["layers"] == [1, "mtp"]


class TestFaults:
    """Each in b alone, unless it says otherwise."""

    def test_layers_swapped(self, plain, other, folder, capsys):
        for name, source in (("same", plain), ("another", other)):
            made = change(source, folder / f"swapped-{name}.h5", lambda f: swap(f, "layers/001", "layers/002"))
            code, found = verdict(capsys, plain, made)
            assert code == 1, reasons(found)
            assert any(r["status"] == "FAIL" and r["layer"] in (1, 2) and r["tensor"] == "a-h" for r in found["layers"])
        assert "layers 1 and 2 are swapped" in reasons(verdict(capsys, plain, folder / "swapped-same.h5")[1])

    @pytest.mark.parametrize("path", ["layers/002/u", "layers/000/d-xl", "layers/001/route-weights", "layers/001/ffn-in"])
    def test_nan_on_one_side(self, plain, folder, capsys, path):
        made = change(plain, folder / "nan.h5", lambda f: f[path].__setitem__((3, 1), np.nan))
        code, found = verdict(capsys, plain, made)
        assert code == 1, reasons(found)
        assert path.split("/")[2] in reasons(found)

    @pytest.mark.parametrize(
        "path", ["layers/002/u", "layers/000/d-xl", "layers/003/d-xlq/d", "layers/001/a-h/d", "layers/001/ffn-in"]
    )
    def test_nan_on_both_sides(self, plain, other, folder, capsys, path):
        def edit(f):
            f[path][3, 1] = np.nan

        both = [change(source, folder / f"nan{i}.h5", edit) for i, source in enumerate((plain, other))]
        code, found = verdict(capsys, *both)
        assert code == 3, reasons(found)
        assert "not finite" in reasons(found) or "nonfinite" in reasons(found)

    def test_one_value_that_breaks_the_contract(self, plain, other, folder, capsys):
        def edit(f):
            f["layers/003/u"][5, 7] += 1e-3

        code, found = verdict(capsys, plain, change(other, folder / "off.h5", edit))
        assert code == 1 and "layer 3 u: 1 of" in reasons(found) and "b does not conform" in reasons(found)

    def test_the_same_fault_on_both_sides(self, plain, other, folder, capsys):
        def edit(f):
            f["layers/003/d-xlq/codes"][5, 7] ^= 1

        both = [change(s, folder / f"fault{i}.h5", edit) for i, s in enumerate((plain, other))]
        code, found = verdict(capsys, *both)
        assert code == 1 and "layer 3 d-xlq" in reasons(found)

    def test_another_route_than_the_logits_say(self, plain, folder, capsys):
        def edit(f):
            ids = f["layers/002/route-ids"]
            spare = next(e for e in range(16) if e not in ids[4])
            ids[4, 2] = spare
            pairs = f["layers/002/pairs"]
            pairs[4 * 4 + 2, 3] = spare

        code, found = verdict(capsys, plain, change(plain, folder / "route.h5", edit))
        assert code == 1 and "route-ids" in reasons(found)


def test_flags_declare_what_a_dump_holds(other, plain, capsys):
    code, found = verdict(capsys, plain, other, "--flags-a", "STRATA_LATENT_FUSED_DU=0", "--stage", "D")
    assert code == 0 and found["a"] == "mmvq"
    code, found = verdict(capsys, plain, other, "--flags-a", "", "--stage", "D")
    assert code == 3 and "its manifest says D mmvq, it was given as w11" in reasons(found)


def test_a_routing_flag_declares_what_its_rule_makes(plain, folder, capsys):
    flagged = dump(folder / "flag.h5", "--flags", "STRATA_LATENT_FUSED_DU=0 STRATA_ROUTE_TAIL_SKIP=0.2")
    code, found = verdict(capsys, plain, flagged, "--stage", "route")
    assert code == 0 and set(found["totals"]["causes"]) == {"equal", "by-design", "cascade"}

    def edit(f):
        f["layers/002/route-weights"][4, 1] *= 1.5

    code, found = verdict(capsys, plain, change(flagged, folder / "wrong.h5", edit), "--stage", "route")
    assert code == 1 and "layer 2 route-weights" in reasons(found)


def test_another_engines_flag_is_taken_at_its_word(plain, folder, capsys):
    """What the flag means over there is not known here, and launches neither."""

    def edit(f):
        f["layers/002/route-weights"][4, 1] *= 1.5
        manifest(f, lambda m: m["flags"].update({"STRATA_ROUTE_TAIL_SKIP": "on"}))
        manifest(f, lambda m: (m["engine"].update({"name": "other"}), m.update({"launches": None})))

    code, found = verdict(capsys, plain, change(plain, folder / "foreign.h5", edit), "--stage", "route")
    assert code == 3 and found["totals"]["causes"]["by-design"] == 1


def test_variants_by_flags(capsys):
    code, found = verdict(
        capsys, "--stage", "A", "--flags-a", "STRATA_LATENT_MMQ=1", "--flags-b", "STRATA_LATENT_FUSED=1 STRATA_LAT_FUSED_Q3K=1",
        "--prompt", "list", "--rows", "0:16", "--layer", "0",
    )
    assert code == 0 and (found["a"], found["b"]) == ("mmq", "w11")


def test_a_variants_own_difference_is_told_from_what_came_in(plain, other, capsys):
    """A differs in both dumps' variants: on a's inputs it leaves the codes that mmq and mmvq operands make different, no more."""
    _, found = verdict(capsys, plain, other, "--stage", "A", "--layer", "0-5")
    codes = {r["layer"]: r["causes"] for r in found["layers"] if r["tensor"] == "a-h"}
    assert "cascade" not in codes[0] and codes[0]["operands"] > 0            # D's w11 rows round to the same codes here
    for layer in range(1, 6):
        assert 0 < codes[layer]["operands"] < 0.03 * sum(codes[layer].values()) < codes[layer]["cascade"]
    assert "on equal inputs also in A of layer 0" in reasons(found)
