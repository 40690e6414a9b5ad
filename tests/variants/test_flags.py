"""Engine flags: the table, unset flags included, and what is refused."""

import itertools

import pytest

from edge0verify.records.errors import InputError
from edge0verify.variants import flags


def chosen(text):
    return flags.variants_of(flags.read_flags(text))


@pytest.mark.parametrize(
    ("text", "d", "a", "u"),
    [
        ("", "w11", "mmvq", "w11"),
        ("STRATA_LATENT_FUSED_DU=0", "mmvq", "mmvq", "mmvq"),
        ("STRATA_LATENT_FUSED_DU=1", "w11", "mmvq", "w11"),
        ("STRATA_LATENT_MMQ=1", "w11", "mmq", "w11"),
        ("STRATA_LATENT_MMQ=0", "w11", "mmvq", "w11"),
        ("STRATA_LATENT_FUSED=1 STRATA_LAT_FUSED_Q3K=1", "w11", "w11", "w11"),
        ("STRATA_LATENT_FUSED=1", "w11", "mmvq", "w11"),
        ("STRATA_LAT_FUSED_Q3K=1", "w11", "mmvq", "w11"),
        ("STRATA_LATENT_FUSED=1 STRATA_LAT_FUSED_Q3K=0", "w11", "mmvq", "w11"),
        ("STRATA_LATENT_MMQ=1 STRATA_LATENT_FUSED=1 STRATA_LAT_FUSED_Q3K=1", "w11", "mmq", "w11"),
        ("STRATA_LATENT_FUSED_DU=0 STRATA_LATENT_MMQ=1", "mmvq", "mmq", "mmvq"),
        ("STRATA_ROUTE_TAIL_SKIP=1 STRATA_ROUTE_PRIOR=0.3", "w11", "mmvq", "w11"),
    ],
)
def test_the_table(text, d, a, u):
    assert chosen(text) == {"D": d, "A1": a, "A2": a, "U": u}


def test_every_combination_chooses_for_every_stage():
    for values in itertools.product((None, "0", "1"), repeat=len(flags.SWITCHES)):
        text = " ".join(f"{n}={v}" for n, v in zip(flags.SWITCHES, values) if v is not None)
        got = chosen(text)
        assert list(got) == ["D", "A1", "A2", "U"] and got["A1"] == got["A2"] and got["D"] == got["U"]


def test_unset_flags_are_recorded_as_unset():
    found = flags.read_flags("STRATA_LATENT_MMQ=1")
    assert found["STRATA_LATENT_MMQ"] == "1" and found["STRATA_LATENT_FUSED_DU"] is None and set(found) == set(flags.KNOWN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("STRATA_LATENT_MQM=1", "did you mean STRATA_LATENT_MMQ"),
        ("STRATA_LAT_FUSED_Q3=1", "did you mean STRATA_LAT_FUSED_Q3K"),
        ("STRATA_LATENT_MMQ", "expected NAME=VALUE"),
        ("STRATA_LATENT_MMQ=yes", "expected 0 or 1, found 'yes'"),
        ("STRATA_LATENT_MMQ=", "expected 0 or 1"),
        ("STRATA_LATENT_MMQ=1 STRATA_LATENT_MMQ=1", "found twice"),
        ("STRATA_LATENT_MMQ='1", "No closing quotation"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        flags.read_flags(text)


def test_by_design_flags_that_are_in_effect():
    assert flags.by_design(flags.read_flags("STRATA_ROUTE_TAIL_SKIP=1 STRATA_ROUTE_PRIOR=0")) == ("STRATA_ROUTE_TAIL_SKIP=1",)
    assert flags.by_design(flags.read_flags("")) == ()
