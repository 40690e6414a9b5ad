"""Statuses, their exit codes, and the worst of many."""

from __future__ import annotations

from collections.abc import Iterable

PASS = "PASS"
FAIL = "FAIL"
INCONCLUSIVE = "INCONCLUSIVE"

STATUSES = (PASS, FAIL, INCONCLUSIVE)

EXIT_PASS = 0
EXIT_FAIL = 1
EXIT_INPUT = 2
EXIT_INCONCLUSIVE = 3
EXIT_INTERNAL = 70
EXIT_INTERRUPT = 130

EXIT_CODES = {PASS: EXIT_PASS, FAIL: EXIT_FAIL, INCONCLUSIVE: EXIT_INCONCLUSIVE}

WORST_FIRST = (EXIT_INTERNAL, EXIT_FAIL, EXIT_INPUT, EXIT_INCONCLUSIVE, EXIT_PASS)


def exit_code(status: str) -> int:
    """The exit code of a verdict's status."""
    return EXIT_CODES[status]


def worst_exit(codes: Iterable[int]) -> int:
    """The exit code of a run of many parts: 70, 1, 2, 3, 0, the first that occurs.

    No part at all is INCONCLUSIVE: nothing was proven. An interrupt (130) ends a run, so it outranks all; a code that
    is none of ours came from something that broke, so it counts as internal.
    """
    seen = set(codes)
    if not seen:
        return EXIT_INCONCLUSIVE
    if EXIT_INTERRUPT in seen:
        return EXIT_INTERRUPT
    if seen - set(WORST_FIRST):
        return EXIT_INTERNAL
    return next(code for code in WORST_FIRST if code in seen)


def worst_status(statuses: Iterable[str]) -> str:
    """FAIL before INCONCLUSIVE before PASS; INCONCLUSIVE when there is none."""
    seen = set(statuses)
    return next((status for status in (FAIL, INCONCLUSIVE, PASS) if status in seen), INCONCLUSIVE)
