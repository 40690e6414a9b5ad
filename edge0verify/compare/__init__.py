"""Conformance of each side, the cause of every difference, and the verdict. Reads Evidence and nothing else."""

from edge0verify.compare.judge import hold_movement, judge
from edge0verify.compare.policy import DEFAULT, Policy, load_policy
from edge0verify.compare.reference import suspicions
from edge0verify.compare.tensors import compare, compare_all
from edge0verify.compare.top8 import movement

__all__ = ["DEFAULT", "Policy", "compare", "compare_all", "hold_movement", "judge", "load_policy", "movement", "suspicions"]
