"""Loads tests/vectors once per process."""

import functools
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent.parent / "vectors"
KINDS = ("normal", "heavy", "zeros", "spike", "tiny", "huge", "halfway", "negamax", "mixed")


@functools.cache
def load(name):
    """dict of arrays of tests/vectors/NAME.npz."""
    with np.load(FOLDER / f"{name}.npz") as archive:
        return {key: archive[key] for key in archive}


def same_bits(a, b):
    """Where float32 arrays agree bit for bit, NaNs being equal whatever their payload."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    assert a.dtype == b.dtype == np.float32
    return (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
