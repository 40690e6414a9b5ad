"""The claims' outcomes and exact sets, and that each check can come out the other way."""

import time

import numpy as np
import pytest

from edge0verify.numerics import claims


@pytest.fixture(scope="module")
def outcomes():
    start = time.perf_counter()
    found = {c.name: c for c in claims.prove()}
    assert time.perf_counter() - start < 2
    return found


def test_truth_and_falsehood(outcomes):
    assert {name for name, c in outcomes.items() if not c.holds} == {"q3k-int8-textbook", "e4m3-plain-shift", "bf16-f16"}
    assert len(outcomes) == len(claims.CLAIMS)
    assert all(function.__doc__ and "Source" in function.__doc__ for function in claims.CLAIMS)


@pytest.mark.parametrize(("name", "checked", "parts"), [
    ("q3k-int8", 512, ["[-128, 124]"]),
    ("q3k-int8-textbook", 512, ["code 0, sc 0: 128"]),
    ("q3k-sum", 65536, ["524,288", "2^22"]),
    ("e2m1-byte", 16, ["all 16"]),
    ("nvfp4-f16", 4064, ["4064 of 4064", "largest 2688", "smallest 2^-10"]),
    ("e4m3-shift", 254, ["all 254", "14 codes"]),
    ("e4m3-plain-shift", 254, ["wrong for 127 of 254"]),
    ("e4m3-f16", 254, ["all 254"]),
    ("bf16-f16", 36608, ["2^-17 <= |a| <= 65280 and zero", "27,904 of 36,608"]),
    ("radix-order", 262144, ["all 262,144"]),
])
def test_exact_sets(outcomes, name, checked, parts):
    assert outcomes[name].checked == checked
    for part in parts:
        assert part in outcomes[name].where


def test_the_checks_can_fail(monkeypatch):
    """Negative controls: a wrong key, a wrong table, a wider scale turn true claims false."""
    real = claims.radix_key
    monkeypatch.setattr(claims, "radix_key", lambda x: np.where(np.isnan(x), np.uint32(0xFFFFFFFF), real(x)))
    assert not claims.radix_order_is_rank_order().holds
    monkeypatch.setattr(claims, "radix_key", lambda x: real(np.where(x == 0, np.copysign(np.float32(1e-45), x), x)))
    assert not claims.radix_order_is_rank_order().holds
    table = claims.E2M1_VALUES.copy()
    table[3] = 1.4375 + 2.0**-9
    monkeypatch.setattr(claims, "E2M1_VALUES", table)
    assert not claims.e2m1_low_byte_is_zero().holds and not claims.e2m1_times_e4m3_is_exact().holds
    monkeypatch.setattr(claims, "_q3_k_products", lambda sign: sign * np.multiply.outer(np.arange(8) - 5, np.arange(64) - 32))
    assert not claims.q3_k_negated_product_fits_int8().holds
