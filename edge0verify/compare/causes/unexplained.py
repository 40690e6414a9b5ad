"""What is left: a side does not conform, and no other cause claims the element."""

from __future__ import annotations

from edge0verify.compare.causes.rest import Rest
from edge0verify.compare.elements import Mask
from edge0verify.records import causes

CAUSE = causes.UNEXPLAINED


def plan(rest: Rest) -> bool:
    return True


def execute(rest: Rest) -> Mask:
    return rest.open
