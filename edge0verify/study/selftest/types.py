"""What the self test is made of: faults, legitimate changes, and what came of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from edge0verify.numerics.blocks import Blocks
from edge0verify.records.evidence import Engagement, Evidence

Tensor = np.ndarray | Blocks
Tensors = dict[str, Tensor]
Doctor = Callable[[Tensors, np.random.Generator, Mapping[str, Tensor]], Tensors]
"""(outputs, rng, inputs) -> outputs.

outputs: what one variant wrote for one stage of one layer, a copy that may be changed in place; n tokens of k slots, pairs = n*k in
token-major order (pair = token*k + slot).
  D: d-hq Blocks [n, hidden], d-xl f32 [n, latent], d-xlq Blocks [n, latent]
  A: a-gate f32 [pairs, ff], a-up f32 [pairs, ff], a-h Blocks [pairs, ff], a-y f32 [pairs, latent], a-yl f32 [n, latent]
  U: u-ylq Blocks [n, latent], u f32 [n, hidden]
inputs: what the stage read (never to be changed).
  D: ffn-in f32 [n, hidden]
  A: d-xl f32 [n, latent], d-xlq Blocks [n, latent], route-ids i32 [n, k], route-weights f32 [n, k]
  U: a-yl f32 [n, latent]
rng: a generator of a fixed seed, the same in each run.
"""


@dataclass(frozen=True, kw_only=True)
class Doctored:
    """A fault made in the outputs of a kernel after it ran, as a wrong kernel or a wrong dump would have left them."""

    name: str
    stage: str
    """'D', 'A' or 'U'."""
    tensor: str
    """The first tensor that the fault shows in: its entries (`T`, `T.d`, `T.s`) must name a cause of `expect`."""
    expect: tuple[str, ...]
    """Names of the causes that are right for it (records.causes)."""
    apply: Doctor
    variant: str = "w11"
    """The variant whose outputs are doctored."""
    what: str = ""
    """One line for the reader: what went wrong in this engine."""

    @property
    def keyed(self) -> bool:
        """Whether rows carry keys; without them, as in a raw import, rows in another order are `permuted`, not `stale`."""
        return "permuted" not in self.expect


CAUGHT, MISNAMED, MISSED, NOT_EXERCISED = "caught", "misnamed", "missed", "not exercised"
PASSED, FALSE_ALARM = "passed", "false alarm"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One thing that the suite is tried on."""

    name: str
    source: str
    """'compiled', 'doctored', 'blind', 'route', 'unproven' or 'legitimate'."""
    stage: str
    where: str
    """What it ran on: 'text', 'long rows', ..."""
    tensor: str
    """Where it must show; '' for the verdict as a whole."""
    expect: tuple[str, ...]
    """Causes that are right; empty for a legitimate change."""
    make: Callable[[], Tried]
    quick: bool = False
    status: str = "FAIL"
    """The right status (PASS for a legitimate change)."""
    says: str = ""
    """What a reason must say, where no cause tells."""
    shows: str = ""
    """A cause that explains a legitimate change's differences: some element must have it."""
    changes_bits: bool = True
    """False for a change of the way of working alone."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Evidence of a trial, and what is known of its making."""

    items: list[Evidence]
    names: tuple[str, str]
    engaged: tuple[Engagement, Engagement]
    changed: bool
    """Output bits changed, as they must for a fault to be exercised, or as a change that is more than a way of working has it."""
    broken: str = ""
    """Wrong without being compared: bits that had to stay the same."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one trial."""

    name: str
    source: str
    stage: str
    where: str
    tensor: str
    expect: tuple[str, ...]
    result: str
    """CAUGHT, MISNAMED, MISSED, NOT_EXERCISED, PASSED or FALSE_ALARM."""
    status: str
    cause: str
    """The failing cause with most elements in the entries of `tensor`; '' for none."""
    first: str
    """The first entry that does not pass."""
    note: str
    """The first reason."""
