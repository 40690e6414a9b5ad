"""Decoders and encoders, bit for bit against ggml's own output."""

import numpy as np
import pytest

from edge0verify.numerics import formats
from edge0verify.numerics.quantise import quantise
from tests.numerics.vectors import KINDS, load, same_bits

DECODED = ("Q8_0", "Q8_K", "Q4_0", "Q3_K", "IQ4_NL", "NVFP4")


@pytest.mark.parametrize("fmt", DECODED)
def test_decode_has_ggmls_bits(fmt):
    z = load(fmt.lower())
    checked = 0
    for kind in KINDS:
        for stored, decoded in (("ref", "deq"), ("chunk", "deqchunk")):
            if f"{decoded}__{kind}" in z:
                raw = z[f"{stored}__{kind}"]
                assert same_bits(formats.decode(fmt, raw.reshape(raw.shape[0], -1)), z[f"{decoded}__{kind}"]).all(), (kind, stored)
                checked += raw.size
    if "raw" in z:
        assert same_bits(formats.decode(fmt, z["raw"]), z["rawdeq"]).all()
    assert checked > 10000


@pytest.mark.parametrize("fmt", ["Q8_0", "Q8_1", "Q4_0", "Q8_K"])
@pytest.mark.parametrize("kind", KINDS)
def test_encode_has_ggmls_bytes(fmt, kind):
    z = load(fmt.lower())
    ref, ok = z[f"ref__{kind}"], z[f"ok__{kind}"]
    got = formats.encode(fmt, load("inputs")[f"x__{kind}"]).reshape(ref.shape)
    assert (got[ok] == ref[ok]).all()


def test_bf16_rows_go_both_ways():
    x = load("inputs")["x__normal"]
    raw = formats.encode("BF16", x)
    assert raw.shape == (x.shape[0], 2 * x.shape[1])
    assert (raw.view("<u2") == load("small_floats")["bf16__normal"]).all()
    assert (np.abs(formats.decode("BF16", raw) - x) <= np.abs(x) * 2.0**-8).all()


@pytest.mark.parametrize("fmt", ["Q8_0", "Q4_0", "IQ4_NL", "Q3_K"])
def test_unpacked_integers_and_scales_give_the_values(fmt):
    raw = load(fmt.lower())["ref__normal"]
    raw = raw.reshape(raw.shape[0], -1)
    u = formats.unpack(fmt, raw)
    exact = u.values()
    decoded = formats.decode(fmt, raw)
    assert u.columns == decoded.shape[1]
    # exact products, so only Q3_K's two roundings lie between them
    assert np.abs(exact - decoded).max() <= np.abs(exact).max() * 2.0**-23
    assert u[3:5].values().shape == (2, u.columns)
    if fmt == "Q3_K":
        assert u.sc.shape == (raw.shape[0], u.columns // 16) and u.q.min() >= -4 and u.q.max() <= 3
        assert u.sc.min() >= -32 and u.sc.max() <= 31


def test_q3_k_fields_one_by_one():
    """A set hmask bit means that 4 is not subtracted; every field sits where ggml keeps it."""
    for v in (0, 31, 32, 127, 128, 255):
        block = np.zeros((1, 110), np.uint8)
        block[0, 108:110] = np.array([1.0], np.float16).view(np.uint8)
        assert (formats.unpack("Q3_K", block).q == -4).all() and (formats.unpack("Q3_K", block).sc == -32).all()
        block[0, v % 32] = 1 << (v // 32)
        block[0, 32 + 32 * (v // 128) + v % 32] = 3 << (2 * (v % 128 // 32))
        q = formats.unpack("Q3_K", block).q[0]
        assert q[v] == 3 and (np.delete(q, v) == -4).all()


def test_a_wrong_layout_fails_the_vectors():
    """Negative control: nibbles swapped, hmask inverted."""
    z = load("q4_0")
    swapped = z["raw"].copy()
    swapped[:, 2:] = (swapped[:, 2:] >> 4) | (swapped[:, 2:] << 4)
    assert not same_bits(formats.decode("Q4_0", swapped), z["rawdeq"]).all()
    z = load("q3_k")
    inverted = z["raw"].copy()
    inverted[:, :32] ^= 0xFF
    assert not same_bits(formats.decode("Q3_K", inverted), z["rawdeq"]).all(axis=1).any()


def test_shapes_and_names_are_checked():
    with pytest.raises(ValueError, match="multiples of 34 bytes"):
        formats.decode("Q8_0", np.zeros((2, 35), np.uint8))
    with pytest.raises(ValueError, match="unknown format 'Q9'"):
        formats.decode("Q9", np.zeros(34, np.uint8))
    with pytest.raises(ValueError, match="no encoder for Q3_K"):
        formats.encode("Q3_K", np.zeros(256, np.float32))
    with pytest.raises(ValueError, match="multiples of 256"):
        formats.encode("Q8_K", np.zeros(300, np.float32))
    with pytest.raises(ValueError, match="no weight format"):
        formats.unpack("Q8_1", np.zeros(36, np.uint8))
    with pytest.raises(ValueError, match="mmq has none"):
        formats.pack_q8(quantise("mmq", np.ones((1, 32))), "Q8_0")
    assert formats.FORMATS["Q3_K"].row_bytes(512) == 220
    with pytest.raises(ValueError, match="multiples of 256"):
        formats.FORMATS["Q3_K"].row_bytes(100)
