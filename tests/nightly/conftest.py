"""A store with goldens that are quickly repeated, one of them wrong."""

from __future__ import annotations

import pytest

from edge0verify.golden.record import Wanted, accept_candidate, record_new
from edge0verify.golden.store import Store
from edge0verify.model import encode, load_model, prompt
from edge0verify.nightly.config import load
from edge0verify.variants import _mutants
from edge0verify.variants.kernels import Kernels


@pytest.fixture(scope="session")
def goldens(tmp_path_factory) -> Store:
    """`right` and `wrong`, the latter recorded from kernels with a fault, so that the product's own fail against it."""
    store, model = Store(tmp_path_factory.mktemp("nightly") / "golden"), load_model()
    for name, fault in (("right", None), ("wrong", "flip-hmask-bit")):
        _mutants.set_fault(fault)
        kernels = Kernels(native=_mutants, threads=2) if fault else None
        wanted = Wanted(name=name, model=model, prompt="prose", tokens=encode(prompt("prose"))[:5], level="sketch", kernels=kernels,
                        threads=2)  # fmt: skip
        record_new(store, wanted)
        _mutants.set_fault(None)
        accept_candidate(store, name, reason="for the tests", anyway=True)
    return store


@pytest.fixture
def config(tmp_path, goldens):
    """Write nightly.toml and read it."""

    def made(*parts: str, top=""):
        (tmp_path / "nightly.toml").write_text(f'store = "{goldens.folder}"\n{top}\n' + "\n".join(parts))
        return load(tmp_path / "nightly.toml")

    return made
