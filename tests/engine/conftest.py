from pathlib import Path

import numpy as np
import pytest

from edge0verify.engine import native
from edge0verify.model import load_model

REFERENCE = Path(__file__).parents[1] / "data" / "reference-q3_k.npz"


@pytest.fixture(scope="session")
def model():
    return load_model()


@pytest.fixture(scope="session")
def reference():
    """Outputs of the same weights in float64, no activation quantisation, made by other code (tools/convert_edge0_mini.py)."""
    with np.load(REFERENCE) as z:
        return {k: z[k] for k in z.files}


@pytest.fixture(params=native.usable_isas())
def isa(request):
    """Each instruction set that this processor runs, in turn."""
    before = native.isa()
    native.set_isa(request.param)
    yield request.param
    native.set_isa(before)


def bits(a: np.ndarray) -> bytes:
    return np.ascontiguousarray(a).tobytes()
