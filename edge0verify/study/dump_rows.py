"""Which rows of two dumps belong together: by keys, never by where they lie; pairs put in token order first.

Without keys on one side (raw imports) rows go by their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edge0verify.compare.join import Join, join
from edge0verify.dump import levels
from edge0verify.dump.reader import ArrayInfo, Dump
from edge0verify.numerics.blocks import Blocks
from edge0verify.records.errors import InputError


@dataclass(frozen=True, eq=False)
class SideRows:
    """One layer of one dump, its pairs in token-major slot order."""

    dump: Dump
    layer: int | str

    @cached_property
    def tokens(self) -> np.ndarray | None:
        """i32 [n, 3] keys, or None."""
        return self.dump.token_keys(self.layer)

    @cached_property
    def _stored_pairs(self) -> np.ndarray | None:
        return self.dump.pairs(self.layer)

    @cached_property
    def _order(self) -> np.ndarray | None:
        """Where the pairs lie in the file, in token-major slot order; None where that is their order already."""
        keys = self._stored_pairs
        if keys is None or self.tokens is None:
            return None
        token = _token_of(keys, self.tokens, f"{self.dump.path}: {levels.layer_path(self.layer)}/pairs")
        order = np.lexsort((keys[:, 2], token))
        return None if np.array_equal(order, np.arange(len(order))) else order

    @property
    def reordered(self) -> bool:
        """Whether the pairs lie in another order in the file."""
        return self._order is not None

    @cached_property
    def pairs(self) -> np.ndarray | None:
        """i32 [pairs, 5] keys, token-major; InputError where an expert is not the one that route-ids has in that slot."""
        keys = self._stored_pairs
        if keys is None:
            return None
        keys = keys if self._order is None else keys[self._order]
        if self.has("route-ids"):
            ids = self.read("route-ids").reshape(-1)
            if len(ids) != len(keys) or not np.array_equal(ids, keys[:, 3]):
                where = f"{self.dump.path}: {levels.layer_path(self.layer)}/pairs"
                found = f"{len(keys)} pairs" if len(ids) != len(keys) else f"others in {int((ids != keys[:, 3]).sum())} pairs"
                raise InputError(f"{where}: expected the {len(ids)} experts of route-ids, found {found}")
        return keys

    def infos(self, tensor: str) -> list[ArrayInfo]:
        """The stored arrays of the tensor."""
        return [i for i in self.dump.arrays.values() if i.layer == self.layer and i.tensor == tensor]

    def has(self, tensor: str) -> bool:
        """Whether the layer holds the tensor with at least one row."""
        return self.dump.has(self.layer, tensor) and self.dump.shape(self.layer, tensor)[0] > 0

    def read(self, tensor: str) -> np.ndarray | Blocks:
        """The whole tensor, pair rows in the order of `pairs`."""
        value = self.dump.read(self.layer, tensor)
        if self._order is not None and of_pairs(tensor):
            return take(value, self._order)
        return value

    def count(self, per: str) -> int:
        """Rows of token ('tokens') or pair ('pairs') tensors."""
        keys = self.tokens if per == "tokens" else self.pairs
        if keys is not None:
            return len(keys)
        names = [t for t in self.dump.tensors(self.layer) if of_pairs(t) == (per == "pairs") and self.has(t)]
        return self.dump.shape(self.layer, names[0])[0] if names else 0

    def pair_places(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(token row, expert) of each pair, int [pairs]; from the keys, else from route-ids; None where neither is there."""
        if self.pairs is not None and self.tokens is not None:
            return _token_of(self.pairs, self.tokens, str(self.dump.path)), np.ascontiguousarray(self.pairs[:, 3])
        if self.has("route-ids"):
            ids = self.read("route-ids")
            return np.repeat(np.arange(len(ids)), ids.shape[1]), ids.reshape(-1)
        return None


@dataclass(frozen=True, eq=False)
class Lone:
    """Pairs of joined tokens that one side alone has: keys i32 [l, 5] and the number of the joined token of each."""

    keys: np.ndarray
    token: np.ndarray


@dataclass(frozen=True, eq=False)
class LayerJoin:
    """The rows of one layer that both sides have."""

    a: SideRows
    b: SideRows
    tokens: Join
    pairs: Join
    keys: np.ndarray | None
    """i32 [joined tokens, 3], None without keys."""
    pair_keys: np.ndarray | None
    pair_token: np.ndarray | None
    """int [joined pairs]: number of the joined token that a pair belongs to; None where that is not known."""
    lone_a: Lone
    lone_b: Lone

    def positions(self) -> np.ndarray:
        """Position of each joined token; its number where there are no keys."""
        return self.keys[:, 1] if self.keys is not None else self.tokens.a

    def straight(self, tensor: str) -> bool:
        """Whether every row of the tensor belongs to the row of that number on the other side."""
        way = self.pairs if of_pairs(tensor) else self.tokens
        rows = [side.dump.shape(self.a.layer, tensor)[0] for side in (self.a, self.b)]
        if self.a.reordered or self.b.reordered or rows[0] != rows[1] or len(way.a) != rows[0]:
            return False
        return np.array_equal(way.a, way.b) and np.array_equal(way.a, np.arange(rows[0]))

    def both(self, tensor: str, a: np.ndarray | Blocks, b: np.ndarray | Blocks) -> tuple[np.ndarray | Blocks, np.ndarray | Blocks]:
        """The joined rows of a tensor's whole values."""
        way = self.pairs if of_pairs(tensor) else self.tokens
        return take(a, way.a), take(b, way.b)

    def unmatched_pairs(self) -> np.ndarray:
        """bool [joined tokens]: a pair of this token has no partner on the other side."""
        found = np.zeros(len(self.tokens.a), bool)
        found[self.lone_a.token] = found[self.lone_b.token] = True
        return found


def of_pairs(tensor: str) -> bool:
    """Whether a row of the tensor belongs to a pair of token and expert."""
    spec = levels.find(tensor)
    return spec is not None and spec.rows == "pairs"


def take(value: np.ndarray | Blocks, rows: np.ndarray) -> np.ndarray | Blocks:
    """The given rows, without a copy where they are all of them in order."""
    total = value.rows if isinstance(value, Blocks) else len(value)
    if len(rows) == total and np.array_equal(rows, np.arange(total)):
        return value
    return value.take(rows) if isinstance(value, Blocks) else value[rows]


def join_layer(a: Dump, b: Dump, layer: int | str, rows: tuple[int, int] | None = None) -> LayerJoin:
    """Join the rows of a layer; `rows` keeps positions first..last-1. InputError for duplicate or unlike keys."""
    left, right = SideRows(a, layer), SideRows(b, layer)
    tokens = _joined(left, right, "tokens")
    keyed = left.tokens is not None and right.tokens is not None
    keys = left.tokens[tokens.a] if keyed else None
    if rows is not None:
        position = keys[:, 1] if keys is not None else tokens.a
        kept = (position >= rows[0]) & (position < rows[1])
        tokens = Join(tokens.a[kept], tokens.b[kept], tokens.only_a, tokens.only_b)
        keys = None if keys is None else keys[kept]
    pairs = _joined(left, right, "pairs")
    lone_a, lone_b = _lone(left, tokens.a, pairs.only_a), _lone(right, tokens.b, pairs.only_b)
    mine = _joined_token(left, tokens.a)
    pair_token = None
    if mine is not None:
        mine = mine[pairs.a]
        pairs = Join(pairs.a[mine >= 0], pairs.b[mine >= 0], pairs.only_a, pairs.only_b)
        pair_token = mine[mine >= 0]
    pair_keys = left.pairs[pairs.a] if left.pairs is not None and right.pairs is not None else None
    return LayerJoin(left, right, tokens, pairs, keys, pair_keys, pair_token, lone_a, lone_b)


def _joined_token(side: SideRows, tokens: np.ndarray) -> np.ndarray | None:
    """int [pairs]: number among the joined tokens (whose rows are `tokens`) of each pair, -1 for those of others."""
    places = side.pair_places()
    if places is None:
        return None
    number = np.full(side.count("tokens"), -1)
    number[tokens] = np.arange(len(tokens))
    return number[places[0]]


def _lone(side: SideRows, tokens: np.ndarray, only: np.ndarray) -> Lone:
    keys, mine = side.pairs, _joined_token(side, tokens)
    if keys is None or mine is None or not len(only):
        return Lone(np.empty((0, 5), np.int32), np.empty(0, np.int64))
    only = only[mine[only] >= 0]
    return Lone(keys[only], mine[only])


def _joined(a: SideRows, b: SideRows, per: str) -> Join:
    keys = [side.tokens if per == "tokens" else side.pairs for side in (a, b)]
    if keys[0] is not None and keys[1] is not None:
        names = [f"{side.dump.path}: {per} of layer {side.layer}" for side in (a, b)]
        return join(keys[0], keys[1], source_a=names[0], source_b=names[1])
    n, m = a.count(per), b.count(per)
    shared = np.arange(min(n, m))
    return Join(shared, shared, np.arange(len(shared), n), np.arange(len(shared), m))


def _token_of(pairs: np.ndarray, tokens: np.ndarray, where: str) -> np.ndarray:
    """Row in `tokens` of each pair; InputError for a pair without its token."""
    _, number = np.unique(np.concatenate([tokens[:, :2], pairs[:, :2]]), axis=0, return_inverse=True)
    number = number.reshape(-1)
    at = np.full(int(number.max(initial=-1)) + 1, -1)
    at[number[: len(tokens)]] = np.arange(len(tokens))
    found = at[number[len(tokens) :]]
    if (found < 0).any():
        raise InputError(f"{where}: expected pairs of the tokens in rows, found {pairs[int(np.argmax(found < 0)), :2].tolist()}")
    return found
