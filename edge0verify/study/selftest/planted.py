"""Faults compiled into the kernels of the mutant module (kernels/cpu/faults.h), and where each of them is tried."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Planted:
    """One compiled fault in one stage."""

    fault: str
    """Name in kernels/cpu/faults.h."""
    stage: str
    """'D', 'A' or 'U'."""
    tensor: str
    """The first tensor that it shows in."""
    expect: tuple[str, ...]
    """Causes that are right for it."""
    variant: str = "w11"
    """The variant that carries it; the other side is mmvq (w11 where that one carries it)."""
    long_rows: bool = False
    """Tried on the long rows, not on the text."""
    both: bool = False
    """Both sides run this variant with the same fault: equal bits that must still fail."""

    @property
    def name(self) -> str:
        return f"{self.fault} {self.stage} {self.variant}{' both sides' if self.both else ''}"


def _planted(stage: str, text: str, **more) -> list[Planted]:
    """Lines 'fault tensor cause[|cause]' as planted faults."""
    made = []
    for line in text.strip().splitlines():
        fault, tensor, causes = line.split()
        made.append(Planted(fault=fault, stage=stage, tensor=tensor, expect=tuple(causes.split("|")), **more))
    return made


PLANTED: tuple[Planted, ...] = (
    *_planted(
        "D",
        """
        next-block-scale d-xl unexplained|structured
        skip-last-partial-tile d-hq unwritten
        skip-last-row-tile d-xl unwritten
        weight-scale-21 d-xl biased
        scale-inverted d-xl unexplained|structured
        scale-rows-swapped d-xl unexplained|structured
        weight-row-shifted d-xl structured
        drop-block d-xl structured
        drop-k-half d-xl structured
        blocks-swapped d-xl unexplained|structured
        stale-token d-xl stale
        tokens-rotated d-xl stale
        code-off-by-one d-xl unexplained
        activation-scale-ulp d-xl biased
        activation-scale-ulp-one-block d-xl biased
        f32-operand-scale d-xl unexplained
        rows-f16 d-xl unexplained
        every-7th-row-ulp d-xl biased
        row-tiles-swapped d-xl structured
        one-column-zero d-xl structured
        last-row-nan d-xl nonfinite
        f16-accumulation d-xl unexplained
        bf16-accumulation d-xl unexplained
        round-toward-zero d-xl biased
        dot-saturates d-xl unexplained|structured
        store-truncates d-xlq unexplained
        store-next-scale d-xlq unexplained|structured
        sum-of-codes d-xlq unexplained|structured
        """,
    ),
    *_planted(
        "D",
        """
        lanes-once d-xl structured
        round-toward-zero d-xl biased
        weight-scale-21 d-xl biased
        """,
        variant="mmvq",
        long_rows=True,
    ),
    *_planted("D", "block-scale-18 d-xl biased", long_rows=True),
    *_planted("D", "next-block-scale d-xl unexplained|structured\nskip-last-row-tile d-xl unwritten", both=True),
    *_planted(
        "A",
        """
        flip-hmask-bit a-gate structured
        skip-last-partial-tile a-gate unwritten
        next-expert a-gate unexplained|structured
        gate-up-swapped a-h unexplained
        rough-exp a-h unexplained
        nibbles-swapped a-y unexplained|structured
        drop-slot a-yl unexplained|structured
        one-route-weight a-yl unexplained
        """,
    ),
    *_planted("A", "first-super-scale a-gate unexplained|structured\nlast-row-nan a-gate nonfinite", long_rows=True),
    *_planted(
        "A",
        "activation-scale-ulp a-gate biased\nstore-truncates a-h unexplained\nbf16-accumulation a-gate unexplained",
        variant="mmq",
    ),
    *_planted("A", "flip-hmask-bit a-gate structured", both=True),
    *_planted(
        "U",
        """
        skip-last-partial-tile u-ylq unwritten
        stale-token u stale
        drop-block u structured
        """,
        variant="mmq",
    ),
    *_planted("U", "weight-scale-21 u biased", variant="mmq", long_rows=True),
    *_planted(
        "U", "lanes-once u structured\nskip-last-row-tile u unwritten\nlast-row-nan u nonfinite", variant="mmvq", long_rows=True
    ),
)
