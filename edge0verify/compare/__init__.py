"""Conformance, comparators, causes, policy and verdict."""
