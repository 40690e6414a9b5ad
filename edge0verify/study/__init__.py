"""Brings engine and compare together: replay, evidence, drift, bisect, kernel tests, selftest."""
