"""The architecture of a latent-MoE model, read from a GGUF file's metadata or from a checkpoint's config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge0verify.records.errors import InputError


@dataclass(frozen=True)
class Config:
    """Sizes and constants of one model.  Counts are in elements; `layers` does not count the drafter layer."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    latent: int
    ff: int
    experts: int
    k: int
    vocab: int
    context: int
    mtp_layers: int
    rope_theta: float
    attn_scale: float
    eps: float
    bos: int
    eos: int
    pad: int

    @property
    def q_rows(self) -> int:
        """Rows of the query projection."""
        return self.heads * self.head_dim

    @property
    def kv_rows(self) -> int:
        """Rows of the key and of the value projection."""
        return self.kv_heads * self.head_dim

    @property
    def layer_ids(self) -> tuple[int | str, ...]:
        """Every layer that has the four stages: 0 .. layers-1, then 'mtp' where there is a drafter."""
        return (*range(self.layers), *(["mtp"] if self.mtp_layers else []))


# field of Config: (GGUF metadata key, key of config.json, type)
_KEYS: dict[str, tuple[str, str, type]] = {
    "name": ("general.name", "name", str),
    "hidden": ("edge0.embedding_length", "hidden", int),
    "layers": ("edge0.block_count", "layers", int),
    "heads": ("edge0.attention.head_count", "n_heads", int),
    "kv_heads": ("edge0.attention.head_count_kv", "n_kv_heads", int),
    "head_dim": ("edge0.attention.key_length", "head_dim", int),
    "latent": ("edge0.latent_length", "latent", int),
    "ff": ("edge0.expert_feed_forward_length", "expert_ff", int),
    "experts": ("edge0.expert_count", "experts", int),
    "k": ("edge0.expert_used_count", "experts_per_token", int),
    "vocab": ("edge0.vocab_size", "vocab", int),
    "context": ("edge0.context_length", "max_trained_context", int),
    "mtp_layers": ("edge0.nextn_predict_layers", "mtp_layers", int),
    "rope_theta": ("edge0.rope.freq_base", "rope_theta", float),
    "attn_scale": ("edge0.attention.scale", "attn_scale", float),
    "eps": ("edge0.attention.layer_norm_rms_epsilon", "rms_eps", float),
    "bos": ("tokenizer.ggml.bos_token_id", "bos", int),
    "eos": ("tokenizer.ggml.eos_token_id", "eos", int),
    "pad": ("tokenizer.ggml.padding_token_id", "pad", int),
}
# what the forward pass is written for: (GGUF key, config.json key, the one accepted value)
_FIXED: tuple[tuple[str, str, Any], ...] = (
    ("edge0.rope.type", "rope", "neox"),
    ("edge0.latent_shared", "shared_latent_projections", True),
    ("edge0.expert_weights_norm", "", True),
    ("tokenizer.ggml.model", "", "bytes"),
    ("", "tied_embeddings", False),
    ("", "bias", False),
    ("", "shared_expert", False),
)


def config_from_gguf(metadata: Mapping[str, Any], where: str) -> Config:
    """Config from a GGUF file's metadata.  `where` names the file in errors; raises InputError."""
    return _build(metadata, 0, where, "metadata key")


def config_from_json(values: Mapping[str, Any], where: str) -> Config:
    """Config from the fields of a checkpoint's config.json.  `where` names the file in errors; raises InputError."""
    return _build(values, 1, where, "field")


def _build(source: Mapping[str, Any], column: int, where: str, word: str) -> Config:
    found: dict[str, Any] = {}
    for field, keys in _KEYS.items():
        found[field] = _typed(source, keys[column], keys[2], where, word)
    for row in _FIXED:
        key, want = row[column], row[2]
        if key and source.get(key) != want:
            have = f"found {source[key]!r}" if key in source else "it is missing"
            raise InputError(f"{where}: {word} {key}: expected {want!r}, {have}")
    # A checkpoint writes 1e-6, GGUF its nearest float32: the arithmetic is float32's, so both mean the latter.
    found["eps"] = float(np.float32(found["eps"]))
    config = Config(**found)
    _consistent(config, {f: keys[column] for f, keys in _KEYS.items()}, where, word)
    return config


def _typed(source: Mapping[str, Any], key: str, kind: type, where: str, word: str) -> Any:
    if key not in source:
        raise InputError(f"{where}: {word} {key}: expected {_NAMES[kind]}, it is missing")
    value = source[key]
    good = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if not good or isinstance(value, bool):
        raise InputError(f"{where}: {word} {key}: expected {_NAMES[kind]}, found {value!r}")
    return kind(value)


_NAMES = {int: "an integer", float: "a number", str: "a string"}


def _consistent(c: Config, keys: Mapping[str, str], where: str, word: str) -> None:
    def need(ok: bool, field: str, expected: str) -> None:
        if not ok:
            raise InputError(f"{where}: {word} {keys[field]}: expected {expected}, found {getattr(c, field)!r}")

    for field in ("hidden", "layers", "heads", "kv_heads", "head_dim", "latent", "ff", "experts", "k", "vocab", "context"):
        need(0 < getattr(c, field) < 1 << 24, field, "a positive count below 2^24")
    need(c.heads % c.kv_heads == 0, "kv_heads", f"a divisor of {c.heads} heads")
    need(c.head_dim % 2 == 0, "head_dim", "an even number")
    need(c.k <= c.experts, "k", f"at most {c.experts} experts")
    need(c.mtp_layers in (0, 1), "mtp_layers", "0 or 1")
    for field in ("hidden", "latent", "ff"):
        need(getattr(c, field) % 32 == 0, field, "a multiple of 32, the block of every quantiser")
    for field in ("bos", "eos", "pad"):
        need(256 <= getattr(c, field) < c.vocab, field, f"an id in 256..{c.vocab - 1}")
    for field in ("rope_theta", "attn_scale", "eps"):
        need(0 < getattr(c, field) < float("inf"), field, "a positive number")
