"""A store with a whole and a sketched golden of one short run, made once; tests that write take a copy."""

from __future__ import annotations

import shutil

import pytest

from edge0verify.golden.record import Wanted, accept_candidate, record_new
from edge0verify.golden.store import Store
from edge0verify.model import encode, load_model, prompt
from edge0verify.variants import _mutants
from edge0verify.variants.kernels import Kernels

TOKENS = 12
PLAN = {"D": "w11", "A1": "w11", "A2": "w11", "U": "w11"}


@pytest.fixture(scope="session")
def model():
    return load_model()


@pytest.fixture(scope="session")
def kept(tmp_path_factory, model) -> Store:
    """Goldens `whole` and `sketch` of the same run, accepted. Not to be written to."""
    store = Store(tmp_path_factory.mktemp("store"))
    tokens = encode(prompt("prose"))[:TOKENS]
    for name, level in (("whole", "full"), ("sketch", "sketch")):
        wanted = Wanted(name=name, model=model, prompt="prose", tokens=tokens, variants=PLAN, level=level, threads=2)
        assert record_new(store, wanted).conforming is True
        accept_candidate(store, name, reason="first run")
    return store


@pytest.fixture
def store(kept, tmp_path) -> Store:
    """A copy that a test may change."""
    shutil.copytree(kept.folder, tmp_path / "golden")
    return Store(tmp_path / "golden")


class Faulty(Kernels):
    """Kernels with a planted fault in the stages alone: the fault would reach attention too, which calls the same code."""

    def __init__(self, fault: str | None) -> None:
        super().__init__(native=_mutants, threads=2)
        self.fault = fault

    def linear(self, weights, x):
        _mutants.set_fault(None)
        try:
            return super().linear(weights, x)
        finally:
            _mutants.set_fault(self.fault)


@pytest.fixture
def mutants():
    """Kernels with a planted fault: `mutants("drop-block")`; without one, the product's own code built the same way."""

    def made(fault: str | None) -> Kernels:
        _mutants.set_fault(fault)
        return Faulty(fault)

    yield made
    _mutants.set_fault(None)
