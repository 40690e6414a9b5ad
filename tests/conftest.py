"""Shared by all tests: the options that turn on what takes long."""

from __future__ import annotations

import signal

import pytest

# A shell ignores the interrupt in what it starts in the background, and every child inherits that: the tests that interrupt a
# command would then prove nothing. A handler of ours is reset to the default when a child starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run what takes minutes (kill loops of 200, long sweeps)")


@pytest.fixture
def slow(request: pytest.FixtureRequest) -> bool:
    """Whether the long form of a test is wanted; the short form always runs."""
    return bool(request.config.getoption("--slow"))
