"""Rows of two dumps belong together by what they stand for, never by where they happen to lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge0verify.records.errors import InputError


@dataclass(frozen=True)
class Join:
    """Row numbers on each side: `a[i]` belongs to `b[i]`; the rest have no partner."""

    a: np.ndarray
    b: np.ndarray
    only_a: np.ndarray
    only_b: np.ndarray


def refuse_duplicates(keys: np.ndarray, source: str) -> None:
    """InputError naming `source` where two rows of `keys` [n, c] are the same."""
    found, n = np.unique(keys, axis=0, return_counts=True)
    if (n > 1).any():
        at = int(np.argmax(n > 1))
        raise InputError(f"{source}: expected each key once, found {found[at].tolist()} {int(n[at])} times")


def join(keys_a: np.ndarray, keys_b: np.ndarray, *, source_a: str = "keys of a", source_b: str = "keys of b") -> Join:
    """Join key rows i32 [n_a, c] and [n_b, c]; pairs in the order of a. InputError for a duplicate or unlike key columns."""
    if keys_a.ndim != 2 or keys_b.ndim != 2 or keys_a.shape[1] != keys_b.shape[1]:
        raise InputError(f"{source_b}: expected keys with the columns of {source_a}, {keys_a.shape}, found {keys_b.shape}")
    refuse_duplicates(keys_a, source_a)
    refuse_duplicates(keys_b, source_b)
    _, number = np.unique(np.concatenate([keys_a, keys_b]), axis=0, return_inverse=True)
    number = number.reshape(-1)
    number_a, number_b = number[: len(keys_a)], number[len(keys_a) :]
    at_b = np.full(len(number), -1, np.int64)
    at_b[number_b] = np.arange(len(keys_b))
    partner = at_b[number_a] if len(keys_a) else np.empty(0, np.int64)
    has = partner >= 0
    only_b = np.ones(len(keys_b), bool)
    only_b[partner[has]] = False
    return Join(np.flatnonzero(has), partner[has], np.flatnonzero(~has), np.flatnonzero(only_b))
