"""The byte tokenizer: ids 0..255 are bytes, 256 starts a text, 257 ends it; nothing else is a token."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from edge0verify.records.errors import InputError

BOS = 256
EOS = 257


def encode(text: str | bytes, *, bos: bool = True, eos: bool = False) -> np.ndarray:
    """Token ids of a text (UTF-8 where it is a str): int32 [bytes + bos + eos]."""
    data = text.encode("utf-8") if isinstance(text, str) else bytes(text)
    ids = np.frombuffer(data, np.uint8).astype(np.int32)
    return np.concatenate([np.full(int(bos), BOS, np.int32), ids, np.full(int(eos), EOS, np.int32)])


def decode(ids: Iterable[int] | np.ndarray) -> bytes:
    """The bytes of token ids; start and end markers give none.  InputError for an id that is no token."""
    ids = np.asarray(list(ids) if not isinstance(ids, np.ndarray) else ids)
    if ids.size == 0:
        return b""
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise InputError(f"token ids: expected a list of integers, found {ids.dtype} of shape {list(ids.shape)}")
    wrong = np.flatnonzero((ids < 0) | (ids > EOS))
    if wrong.size:
        raise InputError(f"token ids: expected 0..{EOS}, found {int(ids[wrong[0]])} at position {int(wrong[0])}")
    return ids[ids < 256].astype(np.uint8).tobytes()
