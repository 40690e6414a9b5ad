"""The blind faults do what they say on a few tokens of the embedded model: bits change, shapes do not, nothing else is touched.

Judged by numerics alone: these faults were made without the comparator, and their tests do not ask it either.
"""

import copy
from functools import cache

import numpy as np
import pytest

from edge0verify import model as models
from edge0verify.numerics import formats
from edge0verify.numerics.bias import BiasTest
from edge0verify.numerics.blocks import Blocks, same_floats
from edge0verify.numerics.conform import rows_conform, store_matches
from edge0verify.numerics.contracts import contract
from edge0verify.numerics.oracle import bound, own_oracle
from edge0verify.numerics.spread import row_spread
from edge0verify.records.causes import FAILING
from edge0verify.study.capture import capture
from edge0verify.study.replay import replay
from edge0verify.study.selftest.blind import BLIND_FAULTS, weighted_sum
from edge0verify.variants.kernels import Kernels

TOKENS = 41
LAYER = 2
WRITES = {"D": ("d-hq", "d-xl", "d-xlq"), "A": ("a-gate", "a-up", "a-h", "a-y", "a-yl"), "U": ("u-ylq", "u")}
FAULTS = {fault.name: fault for fault in BLIND_FAULTS}
every_fault = pytest.mark.parametrize("fault", BLIND_FAULTS, ids=FAULTS)


@cache
def inputs(stage):
    tokens = models.encode(models.prompt("prose"))[:TOKENS]
    return capture(models.load_model(), tokens, stage, layers=(LAYER,), threads=2).tensors[LAYER]


@cache
def right(stage, variant):
    return dict(replay(models.load_model(), stage, LAYER, variant, inputs(stage), Kernels(threads=2)).tensors)


def doctor(fault):
    rng = np.random.default_rng(7)
    return fault.apply(copy.deepcopy(right(fault.stage, fault.variant)), rng, copy.deepcopy(inputs(fault.stage)))


def before_and_after(name):
    return right(FAULTS[name].stage, FAULTS[name].variant), doctor(FAULTS[name])


def parts(value):
    return [value] if not isinstance(value, Blocks) else [p for p in (value.codes, value.d, value.s) if p is not None]


def alike(a, b):
    """Where two arrays hold the same bits."""
    return a == b if a.dtype.kind == "i" else same_floats(a, b)


def same(a, b):
    return all(alike(x, y).all() for x, y in zip(parts(a), parts(b), strict=True))


def pick(value, row):
    return value.take([row]) if isinstance(value, Blocks) else value[[row]]


def changed(a, b):
    return ~alike(a, b)


def weights(name):
    tensor = models.load_model().tensor(name)
    return formats.unpack(tensor.fmt, tensor.raw)


def within_bound(stage, operand, rows, variant, tensor):
    rules, w = contract(stage, variant), weights(tensor)
    t, s = own_oracle(rules, w, operand)
    return rows_conform(rows, t, bound(rules.roundings(nb=operand.columns // 32), s))


def test_ten_with_names_of_their_own_and_causes_that_fail():
    assert len(BLIND_FAULTS) == len(FAULTS) == 10
    assert all(f.name.startswith("blind-") and f.what and f.apply.__doc__ for f in BLIND_FAULTS)
    assert {f.stage for f in BLIND_FAULTS} == set(WRITES)
    assert all(f.expect and set(f.expect) <= FAILING for f in BLIND_FAULTS)
    assert len({f.apply for f in BLIND_FAULTS}) == 10


@every_fault
def test_changes_bits_and_keeps_shapes(fault):
    before, after = right(fault.stage, fault.variant), doctor(fault)
    assert set(after) == set(before)
    for name, value in before.items():
        for a, b in zip(parts(value), parts(after[name]), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
    order = WRITES[fault.stage]
    first = next(n for n in order if not same(before[n], after[n]))
    assert first == fault.tensor


@every_fault
def test_the_same_again_and_inputs_untouched(fault):
    given = copy.deepcopy(inputs(fault.stage))
    fault.apply(copy.deepcopy(right(fault.stage, fault.variant)), np.random.default_rng(7), given)
    assert all(same(given[n], v) for n, v in inputs(fault.stage).items())
    first, second = doctor(fault), doctor(fault)
    assert all(same(first[n], second[n]) for n in first)


@pytest.mark.parametrize("variant", ["mmvq", "mmq", "w11"])
def test_the_sum_over_experts_is_the_engines(variant):
    given, out = inputs("A"), right("A", variant)
    ids = given["route-ids"]
    slots = np.argsort(ids, axis=1, kind="stable") if variant == "mmq" else np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    assert same(weighted_sum(out["a-y"].reshape(*ids.shape, -1), given["route-weights"], slots), out["a-yl"])


@pytest.mark.parametrize("name", ["blind-last-k-block", "blind-missed-barrier"])
def test_blocks_are_stored_from_the_faulty_rows(name):
    _, after = before_and_after(name)
    assert all(m.all() for m in store_matches(after["d-xlq"], after["d-xl"], "mmvq"))


def test_last_k_block_is_beyond_the_bound_nearly_everywhere():
    before, after = before_and_after("blind-last-k-block")
    fine, faulty = (within_bound("D", out["d-hq"], out["d-xl"], "w11", "latent_down.weight") for out in (before, after))
    assert fine.all() and faulty.mean() < 0.01
    gap = after["d-xl"] - before["d-xl"]
    assert 0.1 < np.std(gap) / np.std(before["d-xl"]) < 1


def test_missed_barrier_keeps_to_its_columns_and_some_tokens():
    before, after = before_and_after("blind-missed-barrier")
    hit = changed(before["d-xl"], after["d-xl"])
    rows = np.flatnonzero(hit.any(axis=1))
    assert 0 < len(rows) < TOKENS / 2
    assert not hit[:, :32].any() and not hit[:, 64:].any()
    assert same(after["d-xl"][rows, 32:64], before["d-xl"][rows - 1, 32:64])


def test_pack_sign_as_c_packs_it():
    before, after = before_and_after("blind-pack-sign")
    q = before["d-xlq"].codes.astype(np.int64).reshape(TOKENS, -1, 4)
    word = (q[..., 0] & 255) | (q[..., 1] & 255) << 8 | q[..., 2] << 16 | q[..., 3] << 24
    assert (np.ascontiguousarray((word & 0xFFFFFFFF).astype("<u4")).view(np.int8) == after["d-xlq"].codes).all()
    assert same(before["d-xlq"].d, after["d-xlq"].d) and same(before["d-xlq"].s, after["d-xlq"].s)


def test_butterfly_mask_spoils_s_of_every_fourth_block_only():
    before, after = before_and_after("blind-butterfly-mask")
    codes, d, s = store_matches(after["d-xlq"], after["d-xl"], "mmvq")
    assert codes.all() and d.all()
    assert s.reshape(TOKENS, -1, 4).any(axis=(0, 1)).tolist() == [True, True, True, False]
    even = before["d-xl"].astype(np.float64).reshape(TOKENS, -1, 32)[:, 3::4, ::2].sum(axis=-1)
    assert np.allclose(after["d-xlq"].s[:, 3::4], 2 * even, rtol=2e-3, atol=1e-3 * np.abs(before["d-xl"]).max())


def test_scale_toward_zero_is_one_ulp_low_in_about_half():
    before, after = before_and_after("blind-scale-toward-zero")
    hit = changed(before["d-xlq"].d, after["d-xlq"].d)
    assert 0.35 < hit.mean() < 0.65
    assert (before["d-xlq"].d.view(np.uint16) - after["d-xlq"].d.view(np.uint16))[hit].tolist() == [1] * hit.sum()
    exact = np.abs(after["d-xl"]).reshape(TOKENS, -1, 32).max(axis=-1) / np.float32(127)
    assert (after["d-xlq"].d.astype(np.float32) <= exact).all()


def test_tile_not_reloaded_repeats_rows_of_the_same_expert():
    before, after = before_and_after("blind-tile-not-reloaded")
    ids = inputs("A")["route-ids"]
    hit = np.flatnonzero(changed(before["a-gate"], after["a-gate"]).any(axis=1))
    expert = np.unique(ids.reshape(-1)[hit])
    assert len(expert) == 1 and 0 < len(hit) <= 8
    for pair in hit:
        source = np.flatnonzero((before["a-gate"] == after["a-gate"][pair]).all(axis=1))
        assert source.size and pair not in source and set(ids.reshape(-1)[source]) == set(expert)
        for name in ("a-up", "a-h", "a-y"):
            assert same(pick(after[name], pair), pick(before[name], source[0]))
    tokens = changed(before["a-yl"], after["a-yl"]).any(axis=1)
    assert np.flatnonzero(tokens).tolist() == np.unique(hit // ids.shape[1]).tolist()


def test_weights_not_sorted_spares_routes_in_ascending_order():
    before, after = before_and_after("blind-weights-not-sorted")
    ids, w = inputs("A")["route-ids"], inputs("A")["route-weights"]
    hit = changed(before["a-yl"], after["a-yl"]).any(axis=1)
    assert (hit == (np.diff(ids, axis=1) < 0).any(axis=1)).all() and hit.mean() > 0.5
    y = after["a-y"].reshape(*ids.shape, -1).astype(np.float64)
    by_id = np.take_along_axis(y, np.argsort(ids, axis=1)[..., None], axis=1)
    assert np.allclose(np.einsum("nk,nkm->nm", w, by_id)[hit], after["a-yl"][hit], rtol=1e-4, atol=1e-5)


def test_d_and_s_swapped_in_the_last_row_tile():
    before, after = before_and_after("blind-d-s-swapped")
    pairs = before["a-h"].rows
    tail = np.arange(pairs) >= (pairs - 1) // 16 * 16
    assert same(before["a-h"].take(~tail), after["a-h"].take(~tail))
    assert same(before["a-h"].d[tail], after["a-h"].s[tail]) and same(before["a-h"].s[tail], after["a-h"].d[tail])
    assert same(before["a-h"].codes, after["a-h"].codes)


def test_clamp_one_short_touches_the_last_column_alone():
    before, after = before_and_after("blind-clamp-one-short")
    hit = changed(before["u"], after["u"])
    assert hit[:, -1].all() and not hit[:, :-1].any()


def test_scale_one_ulp_up_conforms_and_is_biased():
    before, after = before_and_after("blind-scale-one-ulp-up")
    w, found = weights("latent_up.weight"), []
    for out in (before, after):
        assert within_bound("U", out["u-ylq"], out["u"], "mmq", "latent_up.weight").all()
        test = BiasTest(out["u"].shape[1], out["u-ylq"].columns // 32)
        test.add(out["u"], row_spread(contract("U", "mmq"), w, out["u-ylq"]))
        found.append(test.result())
    assert found[0].tested and not found[0].biased
    assert found[1].biased and found[1].gain > 6
