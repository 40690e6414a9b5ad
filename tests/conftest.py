"""Shared by all tests: the options that turn on what takes long."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run what takes minutes (kill loops of 200, long sweeps)")


@pytest.fixture
def slow(request: pytest.FixtureRequest) -> bool:
    """Whether the long form of a test is wanted; the short form always runs."""
    return bool(request.config.getoption("--slow"))
