"""The variants: one line per kernel of a stage, with its names, weight formats, contract and compiled symbol.

A new variant is one line in `VARIANTS`, one line in kernels/cpu/entries.h, its kernel, and one line in kernels/README.md.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from edge0verify.numerics.contracts import Contract
from edge0verify.numerics.contracts import contract as contract_of
from edge0verify.records.errors import InputError

STAGES = ("D", "A1", "A2", "U")
FALLBACK = "mmvq"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One kernel for one stage."""

    stage: str
    name: str
    aliases: tuple[str, ...] = ()
    formats: tuple[str, ...]
    """Weight formats that it has compiled entries for."""

    @property
    def contract(self) -> str:
        """Name of its contract: row STAGE/NAME of kernels/README.md."""
        return f"{self.stage}/{self.name}"

    @property
    def rules(self) -> Contract:
        """The contract as judging needs it."""
        return contract_of(self.stage, self.name)

    @property
    def symbol(self) -> str:
        """Compiled symbol without its format suffix."""
        return f"e0_{self.stage.lower()}_{self.name}"

    def entry(self, fmt: str) -> str:
        """The compiled symbol for weights of `fmt`; InputError where there is none."""
        if fmt not in self.formats:
            raise InputError(f"{self.contract}: expected weights in {' or '.join(self.formats)}, found {fmt}")
        return f"{self.symbol}_{fmt.lower()}"

    def key(self, fmt: str) -> str:
        """Key of its launch counter."""
        return f"{self.stage}/{self.name}/{fmt}"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was asked for and what runs: they differ where the asked variant has no kernel for the weights."""

    asked: Variant
    runs: Variant
    fmt: str

    @property
    def fell_back(self) -> bool:
        return self.asked is not self.runs


def _variant(stage: str, name: str, formats: tuple[str, ...], *aliases: str) -> Variant:
    return Variant(stage=stage, name=name, aliases=aliases, formats=formats)


VARIANTS = (
    _variant("D", "ref", ("Q8_0", "Q4_0")),
    _variant("D", "mmvq", ("Q8_0", "Q4_0"), "native"),
    _variant("D", "mmq", ("Q8_0",)),
    _variant("D", "w11", ("Q8_0",)),
    _variant("A1", "ref", ("Q3_K",)),
    _variant("A1", "mmvq", ("Q3_K",), "native", "iq_mmvq"),
    _variant("A1", "mmq", ("Q3_K",)),
    _variant("A1", "w11", ("Q3_K",), "fused_q3k"),
    _variant("A2", "ref", ("IQ4_NL",)),
    _variant("A2", "mmvq", ("IQ4_NL",), "native", "iq_mmvq"),
    _variant("A2", "mmq", ("IQ4_NL",)),
    _variant("A2", "w11", ("IQ4_NL",), "fused_q3k"),
    _variant("U", "ref", ("Q8_0", "Q4_0")),
    _variant("U", "mmvq", ("Q8_0", "Q4_0"), "native", "latent_u_grouped"),
    _variant("U", "mmq", ("Q8_0",)),
    _variant("U", "w11", ("Q8_0",)),
)

LINEAR = Variant(stage="linear", name="mmvq", formats=("Q8_0", "Q4_0"))
"""Attention q, k, v, output and mtp.fc: part of no stage, so not in VARIANTS."""


def find(stage: str, name: str) -> Variant:
    """The variant of `stage` called `name` or known by that alias; InputError with the nearest name otherwise."""
    if stage not in STAGES:
        raise InputError(f"stage {stage}: expected one of {', '.join(STAGES)}")
    here = [v for v in VARIANTS if v.stage == stage]
    for v in here:
        if name == v.name or name in v.aliases:
            return v
    known = [n for v in here for n in (v.name, *v.aliases)]
    near = difflib.get_close_matches(name, known, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise InputError(f"variant {name} of stage {stage}: expected one of {', '.join(known)}{hint}")


def resolve(stage: str, name: str, fmt: str) -> Choice:
    """The variant that runs for weights of `fmt` when `name` is asked for: itself, or mmvq where it has no kernel for them."""
    asked = find(stage, name)
    runs = asked if fmt in asked.formats else find(stage, FALLBACK)
    runs.entry(fmt)
    return Choice(asked=asked, runs=runs, fmt=fmt)
