"""What dumps bring beside their own values, so that a fault is named: terms of sums, weights read wrongly, the layer before."""

from __future__ import annotations

import numpy as np
import pytest

from edge0verify.model import load_model
from edge0verify.numerics.formats import decode
from edge0verify.numerics.quantise import quantise
from tests.cli.doctored import change, reasons, verdict


def test_a_part_of_a_sum_that_is_missing(plain, folder, capsys):
    """Half of U's inner dimension is left out in rows 8 to 15, and the cut lies inside a block of 32."""
    w = load_model().tensor("latent_up.weight").values().astype(np.float64)

    def edit(f):
        x = quantise("mmvq", f["layers/003/a-yl"][8:16]).values()
        f["layers/003/u"][8:16] -= (x[:, 144:] @ w[:, 144:].T).astype(np.float32)

    code, found = verdict(capsys, plain, change(plain, folder / "split.h5", edit), "--stage", "U", "--layer", "3")
    assert code == 1
    assert "structured (b does not conform: b: values 144..255 of 256 along K are missing from the sum), rows 8" in reasons(found)


@pytest.mark.parametrize("layer, before", [("003", "002"), ("000", "mtp")])
def test_a_tile_that_keeps_what_the_layer_before_left(plain, folder, capsys, layer, before):
    def edit(f):
        f[f"layers/{layer}/u"][16:20, 64:128] = f[f"layers/{before}/u"][16:20, 64:128]

    code, found = verdict(capsys, plain, change(plain, folder / "kept.h5", edit), "--stage", "U")
    assert code == 1
    assert f"256 of 9216 values stale (b does not conform: b holds rows of layer {before.lstrip('0')}: row 16" in reasons(found)


def test_weights_that_were_read_wrongly(plain, folder, capsys):
    """U's scales of the next block all over."""
    tensor = load_model().tensor("latent_up.weight")
    blocks = tensor.raw.reshape(len(tensor.raw), -1, 34).copy()
    blocks[..., :2] = np.roll(blocks[..., :2], -1, axis=1)
    w = decode("Q8_0", blocks.reshape(tensor.raw.shape)).astype(np.float64)

    def edit(f):
        f["layers/003/u"][...] = (quantise("mmvq", f["layers/003/a-yl"][...]).values() @ w.T).astype(np.float32)

    code, found = verdict(capsys, plain, change(plain, folder / "misread.h5", edit), "--stage", "U", "--layer", "3")
    assert code == 1 and "b: the weights' scales are those of the next block (relative L2 error" in reasons(found)
    assert "where quantising the activations makes 0.00" in reasons(found)


def test_what_came_in_is_not_said_to_break_the_contract(plain, other, folder, capsys):
    """One code of a layer that inherits differences is wrong: that leads, and nothing is said against the elements that came in."""
    def edit(f):
        codes = f["layers/002/d-xlq/codes"]
        codes[5, 7] = int(codes[5, 7]) + (1 if codes[5, 7] < 100 else -1)

    code, found = verdict(capsys, plain, change(other, folder / "one.h5", edit), "--stage", "D")
    (entry,) = (r for r in found["layers"] if r["layer"] == 2 and r["tensor"] == "d-xlq")
    assert code == 1 and entry["causes"]["cascade"] > 1
    assert "1 of 6144 codes" in entry["reasons"][0] and "b does not conform" in entry["reasons"][0]
    assert not any("cascade" in text and "conform" in text for text in entry["reasons"])
