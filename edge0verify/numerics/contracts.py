"""What each variant of each stage declares: operands, order of operations, store, and the roundings on its longest path.

Source: the contract table in kernels/README.md.  The orders themselves are code (kernels/, and a second time in
tests/transcription); this file holds what judging them needs.
"""

from __future__ import annotations

from dataclasses import dataclass

STAGES = ("D", "A1", "A2", "U")
VARIANTS = ("ref", "mmvq", "mmq", "w11")


@dataclass(frozen=True, kw_only=True)
class Contract:
    """One variant of one stage."""

    stage: str
    """D, A1, A2, U, or 'linear' for the attention projections, which belong to no variant."""
    variant: str
    operand: str
    """Quantiser of the activations the dot products read."""
    store: str | None
    """Quantiser of the stored output; None where the stage writes float32 rows only (A2, U)."""
    granularity: int
    """Values per exact integer dot that the kernel forms: the terms of S."""
    weighted_sum: str
    """Order of the expert sum: 'route', 'expert-id', or 'f64' (float64 in route order, one rounding)."""

    def roundings(self, *, nb: int, super_blocks: int | None = None, k: int = 0) -> int:
        """n: float32 roundings on the longest path to one row value.

        nb is the number of 32-blocks of the inner dimension, super_blocks the number of 256-blocks (default nb/8), k the number
        of experts summed (0 for a row, the route width for a-yl).
        """
        if self.variant == "ref":
            n = 1
        elif self.stage == "A1":
            blocks = -(-nb // 8) if super_blocks is None else super_blocks
            n = {"mmvq": 8 + blocks, "mmq": nb + 3, "w11": nb + 1}[self.variant]
        elif self.variant == "mmvq":
            n = 6 + -(-nb // 32)
        else:
            n = nb + 1
        return n + k


def _make(stage: str, variant: str) -> Contract:
    quantiser = "mmq" if variant == "mmq" else "mmvq"
    # D stores d-xlq by mmvq whatever its operands are; a-h is the operand of A2 and follows the variant.
    store = {"D": "mmvq", "A1": quantiser}.get(stage)
    granularity = {"mmvq": 4, "mmq": 16}.get(variant, 32) if stage == "A1" else 32
    weighted = {"mmq": "expert-id", "ref": "f64"}.get(variant, "route")
    return Contract(stage=stage, variant=variant, operand=quantiser, store=store, granularity=granularity, weighted_sum=weighted)


CONTRACTS = tuple(_make(stage, variant) for stage in STAGES for variant in VARIANTS) + (_make("linear", "mmvq"),)
_BY_NAME = {(c.stage, c.variant): c for c in CONTRACTS}


def contract(stage: str, variant: str) -> Contract:
    """The contract of `variant` of `stage`; ValueError for an unknown pair."""
    try:
        return _BY_NAME[stage, variant]
    except KeyError:
        raise ValueError(f"no contract for stage {stage!r} variant {variant!r}; stages {', '.join(STAGES)}, "
                         f"variants {', '.join(VARIANTS)}") from None
