"""The nightly matrix and its history."""
