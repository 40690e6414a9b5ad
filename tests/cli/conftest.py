"""Dumps that several modules read."""

from __future__ import annotations

import pytest

from tests.cli.doctored import dump


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dumps")


@pytest.fixture(scope="session")
def plain(folder):
    return dump(folder / "plain.h5")


@pytest.fixture(scope="session")
def other(folder):
    """Another variant of D and A in the same run."""
    return dump(folder / "other.h5", "--set", "D=w11,A=mmq")
