"""From the logs of a multi-device fault to its likeliest causes, each with the lines that speak for and against it."""

from edge0verify.probe.triage.causes import Cause, Evidence
from edge0verify.probe.triage.report import Triage, triage, triage_text

__all__ = ["Cause", "Evidence", "Triage", "triage", "triage_text"]
