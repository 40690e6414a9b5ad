"""What dumps bring beside their own values, so that a fault in one is named: the terms of its sums, rows of the layer before."""

from __future__ import annotations

import numpy as np

from edge0verify.model import load_model
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
    assert "structured (b does not conform: b: values 144..255 of 256 along K are missing from the sum), rows 8..15" in reasons(found)
