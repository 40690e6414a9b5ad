"""Forward pass, decode, drafter, layer split and dump hooks."""

from edge0verify.engine.decode import Generation, generate
from edge0verify.engine.forward import Engine
from edge0verify.engine.step import Step

__all__ = ["Engine", "Generation", "Step", "generate"]
