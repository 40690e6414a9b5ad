"""What a comparison is handed: two sides of one tensor of one layer, and whether their kernels ran.

`study` builds these from a replay or from dumps; `compare` reads nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edge0verify.numerics.bias import Bias
    from edge0verify.numerics.blocks import Blocks

KINDS = ("rows", "blocks", "ids")
Misreadings = Callable[[np.ndarray], Iterable[tuple[str, np.ndarray]]]
"""Of row numbers int [r]: (what is wrong with the operands, f64 [r, m] the rows that follow), mistake by mistake."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One variant's result for one tensor of one layer. n rows of m values; None is "not known"."""

    rows: np.ndarray | None = None
    """f32 [n, m]. Kind `rows`: the kernel's result. Kind `blocks`: the f32 rows its store quantiser saw, if they are
    known (then the blocks must equal that quantiser of them, bit for bit)."""
    blocks: Blocks | None = None
    """Kind `blocks`: the stored codes [n, m], scales [n, m/32] and, for some quantisers, block sums."""
    ids: np.ndarray | None = None
    """Kind `ids`: i32 [n, k]."""
    chosen: np.ndarray | None = None
    """Kind `ids`: i32 [n, k], what the declared rule chooses from the side's own known logits."""
    t: np.ndarray | None = None
    """f64 [n, m], own oracle: the value from the variant's own declared operands."""
    bound: np.ndarray | None = None
    """f64 [n, m]: the result conforms within t +- bound."""
    exact: Blocks | None = None
    """The blocks that a declared quantiser makes of known rows (d-hq, u-ylq); then no bound is needed. `rows` alone
    does the same: `compare` quantises them by `store`."""
    store: str | None = None
    """Name of the store quantiser; default: that of `blocks`."""
    chained: bool = False
    """The bound runs through a requantisation: rigorous, but so wide that differences are labelled `loose`."""
    bias: Bias | Mapping[str, Any] | None = None
    """Kind `rows`: outcome of the bias test on this side's rows (`numerics.bias.Bias`, or its `as_dict()` with `rows`, the number
    of rows it saw); None where it was not made."""
    previous: Callable[[], tuple[str, Side] | None] | None = None
    """Gives what the same buffer held before, with its name ('layer 2', 'an earlier run'): a row of it that shows up here is
    `stale`. Asked only where something is wrong."""
    terms: Callable[[np.ndarray, int], np.ndarray] | None = None
    """terms(rows int [r], width) -> f64 [K/width, r, m], what each `width` values of the inner dimension add to t; asked only
    where something is wrong, to find a part of the sum that was left out or taken twice."""

    misread: Misreadings | None = None
    """What the side would hold had its kernel read the operands wrongly; asked only where nearly all of it is wrong."""

    def present(self, kind: str) -> bool:
        """Whether this side holds a result of that kind at all."""
        return {"rows": self.rows, "blocks": self.blocks, "ids": self.ids}[kind] is not None


@dataclass(frozen=True, kw_only=True)
class Router:
    """What the experts of a route were chosen from."""

    a: np.ndarray | None
    """f32 [n, experts], side a's logits."""
    b: np.ndarray | None
    bound: np.ndarray | None = None
    """f64 [n, experts]: how far a logit may lie from its exact value; None where nothing is known of it."""


@dataclass(frozen=True, kw_only=True)
class LoneRows:
    """Rows that one side alone has: its router chose an expert that the other's did not."""

    a: np.ndarray
    """i32 [l, c], keys of the rows that only a has."""
    b: np.ndarray
    within: bool | None = None
    """Whether the flips behind them lie within the router's bound; None where that is not known."""
    declared: bool = False
    """A flag declares that the routes differ, and both sides' follow from their flags: they count as `by-design`."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Two sides of one tensor of one layer, row i of one belonging to row i of the other."""

    layer: int | str
    """0-based, or 'mtp', or 'head'."""
    tensor: str
    """Name in a dump: d-xlq, a-yl, ..."""
    kind: str
    """'rows', 'blocks' or 'ids'."""
    a: Side
    b: Side
    stage: str = ""
    """Where the tensor is written: route, D, A1, A2, U, head."""
    oracle: np.ndarray | None = None
    """f64 [n, m]: value from the stage's f32 input, activations not quantised; both sides' unless given apart."""
    oracle_a: np.ndarray | None = None
    oracle_b: np.ndarray | None = None
    keys: np.ndarray | None = None
    """i32 [n, c]: what each row stands for."""
    key_names: tuple[str, ...] = ()
    """Names of the c key columns: (pass, position, accepted) or (pass, position, slot, expert, accepted)."""
    limit: int | None = None
    """Kind `ids`: ids must be below this."""
    inherited: np.ndarray | None = None
    """bool [n]: rows whose stage inputs differ between the sides, so that what differs in them, though each side conforms on its
    own inputs, came from an earlier stage (cause `cascade`). None where both sides had the same inputs."""
    remains: Mapping[str, np.ndarray] | None = None
    """Per entry ('d-xlq', 'd-xlq.d', ...) bool [n, columns]: what b's variant, replayed on a's inputs, makes other than a holds. It
    is the variant's own difference and not inherited, whatever its row's inputs are."""
    removed: np.ndarray | None = None
    """bool [n]: rows in which replaying the stage on identical inputs removes the difference (cause `cascade`), for sides that
    nothing judges on their own inputs."""
    earlier: str = ""
    """The stage where an inherited difference began, for the reader: 'layer 2 route'."""
    router: Router | None = None
    """Kind `ids`: the logits behind them."""
    lone: LoneRows | None = None
    """Rows without a partner; they count as `route-flip`, or as `by-design` where a flag declares them."""
    reference: Side | None = None
    """The reference path's own result where it is neither a nor b: `compare.reference` says whether it can be trusted."""
    declared: str = ""
    """The flag that declares that this tensor differs (cause `by-design`)."""
    declared_rows: np.ndarray | None = None
    """bool [n]: rows that the flag declares, since both sides are what their flags' rules make of them; None for all rows."""


@dataclass(frozen=True, kw_only=True)
class Engagement:
    """Whether the kernels that were asked for ran: counted inside their compiled entries or on the device."""

    asked: str
    """Variant name that was asked for."""
    wanted: tuple[str, ...] = ()
    """Counter keys that must have moved, one per stage compared: 'D/w11/Q8_0'."""
    launches: Mapping[str, int] | None = None
    """Launches per counter key during the compared run; None for a foreign dump, which has none."""
    written: bool | None = True
    """The poison that the outputs were preset to is gone; None where outputs were not preset."""

    @property
    def engaged(self) -> bool | None:
        """True, False, or None where launches are not known."""
        if self.launches is None:
            return None
        return bool(self.wanted) and all(self.launches.get(key, 0) > 0 for key in self.wanted) and self.written is not False

    @property
    def ran(self) -> dict[str, int]:
        """Kernels of the wanted stages that did run, with their launches."""
        stages = {key.split("/")[0] for key in self.wanted}
        return {key: n for key, n in (self.launches or {}).items() if n > 0 and key.split("/")[0] in stages}


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What a run says next, at p positions."""

    ids: np.ndarray
    """i32 [p, k], best first (k is 8 in a dump)."""
    logprobs: np.ndarray
    """f32 [p, k], natural log."""
    logits: np.ndarray | None = None
    """f32 [p, vocabulary], where they were kept."""
    names: tuple[str, ...] = ()
    """What each position is called (a prompt's name), for the reader."""
