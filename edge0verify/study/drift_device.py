"""What a drift study answers where a device is absent, refuses, or loses a kernel: why, and no number."""

from __future__ import annotations

from typing import Any

from edge0verify.model import Model
from edge0verify.study.drift_types import Drift
from edge0verify.study.on_device import settled
from edge0verify.study.pair import describe_model


def refused(
    error: Exception, *, over: str, stage: str, variant: str | None, reference: str, model: Model, device: str,
    prompt: dict[str, Any],
) -> Drift:
    """`error` as an answer: FAIL where a kernel faulted, INCONCLUSIVE where nothing could be run."""
    status, reason = settled(error)
    return Drift(over=over, status=status, reasons=(reason,), stage=stage, variant=variant, reference=reference,
                 model=describe_model(model), prompts=[prompt], findings={}, environment={"device": device})
