"""Cross-device memory probes and triage."""
