"""Small dumps with every tensor of the schema, seeded."""

import itertools

import numpy as np

from edge0verify.dump.levels import LAYER_TENSORS
from edge0verify.dump.writer import DumpWriter
from edge0verify.numerics.blocks import Blocks
from edge0verify.records.manifest import DeviceInfo, EngineInfo, Manifest, PromptInfo, Signature

WIDTH = {
    "ffn-in": 96, "route-logits": 16, "route-ids": 4, "route-weights": 4, "d-hq": 96, "d-xl": 64, "d-xlq": 64,
    "a-gate": 32, "a-up": 32, "a-h": 32, "a-y": 64, "a-yl": 64, "u-ylq": 64, "u": 96,
}
LAYERS = (0, 1, "mtp")


def manifest(level="full", **changes):
    values = {
        "engine": EngineInfo(name="sample"), "device": DeviceInfo(name="cpu"), "prompt": PromptInfo(sha256="0" * 64, tokens=1),
        "signature": Signature(tensors=(), layers=(), rows=0), "level": level, "time": "2026-01-01T00:00:00+00:00", "launches": {},
    }
    return Manifest(**{**values, **changes})


def blocks(rng, rows, n, s=True):
    d = rng.random((rows, n // 32)).astype(np.float16)
    return Blocks(rng.integers(-127, 128, (rows, n)).astype(np.int8), d, -d if s else None, "mmvq" if s else "mmq")


def token_keys(tokens, first=0):
    at = np.arange(first, first + tokens)
    return np.stack([np.zeros(tokens), at, np.ones(tokens)], 1).astype(np.int32)


def pair_keys(tokens, k=4, first=0):
    at = np.repeat(np.arange(first, first + tokens), k)
    slot = np.tile(np.arange(k), tokens)
    return np.stack([np.zeros(tokens * k), at, slot, (at + slot) % 16, np.ones(tokens * k)], 1).astype(np.int32)


def tensors(rng, tokens):
    """{(layer, name): value} of a whole run."""
    out = {}
    for layer in LAYERS:
        for spec in LAYER_TENSORS:
            rows = tokens * (4 if spec.rows == "pairs" else 1)
            if spec.kind == "q8_1":
                out[layer, spec.name] = blocks(rng, rows, WIDTH[spec.name])
            elif spec.kind == "i32":
                out[layer, spec.name] = rng.integers(0, 16, (rows, WIDTH[spec.name])).astype(np.int32)
            else:
                out[layer, spec.name] = rng.standard_normal((rows, WIDTH[spec.name]), dtype=np.float32)
    return out


def fill(writer, values, tokens, pieces=1):
    """Write a run in `pieces` of tokens, layer by layer, as an engine does."""
    edges = np.linspace(0, tokens, pieces + 1).astype(int)
    for begin, end in itertools.pairwise(edges):
        writer.rows(token_keys(end - begin, begin))
        for layer in LAYERS:
            writer.pairs(layer, pair_keys(end - begin, first=begin))
        for (layer, name), value in values.items():
            scale = 4 if name in ("a-gate", "a-up", "a-h", "a-y") else 1
            rows = slice(begin * scale, end * scale)
            writer.write(layer, name, value.take(rows) if isinstance(value, Blocks) else value[rows])
    writer.head(np.arange(8), -np.arange(8.0))


def make(path, *, level="full", tokens=40, seed=0, pieces=1, **options):
    """A complete dump; the values written."""
    values = tensors(np.random.default_rng(seed), tokens)
    with DumpWriter(path, manifest=manifest(level), **options) as writer:
        fill(writer, values, tokens, pieces)
    return values
