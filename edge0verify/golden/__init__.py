"""Accepted dumps, kept and re-checked."""
